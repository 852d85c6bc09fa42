"""Scopes as people type them: `file_system=scratch1`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from iowatch.errors import UsageError
from iowatch.model import Scalar


def parse_scope(given: Sequence[str]) -> dict[str, Scalar]:
    """Parameters of `NAME=VALUE` texts; numbers, true and false are taken as such.

    Raises:
        UsageError: no `=`, or nothing beside it.
    """
    scope: dict[str, Scalar] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not (name and sign and value):
            raise UsageError(
                f"'{text}' is not a scope", hint="Expected NAME=VALUE, for example file_system=scratch1."
            )
        scope[name] = _scalar(value)
    return scope


def _scalar(text: str) -> Scalar:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (int, float, bool)) else text
