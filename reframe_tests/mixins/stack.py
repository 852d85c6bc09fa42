"""The stack under a run. The configuration sets its environment (`activate.sh`); this module records it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import reframe as rfm


class StackMixin(rfm.RegressionTestPlugin):
    """`stack_name()` and `stack_document()` (stack.json) of the environment that a run used."""

    def stack_name(self) -> str:
        """The stack's name; the environment's may differ, because ReFrame takes no dots."""
        return str(self.current_environ.extras.get("stack", self.current_environ.name))

    def stack_document(self) -> dict[str, Any]:
        """Content of the environment's stack.json; empty where it has none."""
        path = self.current_environ.extras.get("stack_json")
        document: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
        return document
