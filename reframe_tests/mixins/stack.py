"""Record of the stack of a run; the configuration sets up its environment (`activate.sh`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import reframe as rfm


class StackMixin(rfm.RegressionTestPlugin):
    """`stack_name()` and `stack_document()` (stack.json) of the environment that a run used."""

    def stack_name(self) -> str:
        """Name of the stack; the name of the environment may differ, because ReFrame does not accept dots."""
        return str(self.current_environ.extras.get("stack", self.current_environ.name))

    def stack_document(self) -> dict[str, Any]:
        """Content of the stack.json of the environment; empty without one."""
        path = self.current_environ.extras.get("stack_json")
        document: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
        return document
