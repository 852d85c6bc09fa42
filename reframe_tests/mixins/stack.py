"""The stack under a run. The configuration sets its environment (`activate.sh`); this module records it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import reframe as rfm


class StackMixin(rfm.RegressionTestPlugin):
    """`stack_name()` and `stack_document()` (stack.json) of the environment that a run used."""

    def stack_name(self) -> str:
        """The stack's name; the environment's may differ, because ReFrame takes no dots."""
        return str(self.current_environ.extras.get("stack", self.current_environ.name))

    def stack_document(self, environment: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        """Content of the environment's stack.json; empty where it has none.

        Args:
            environment: variables of the job that affect I/O; they are part of the stack's identity, whoever set them.
        """
        path = self.current_environ.extras.get("stack_json")
        document: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
        return {**document, "settings": {**document.get("settings", {}), **environment}} if document else {}
