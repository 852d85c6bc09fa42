"""Which runs ReFrame shall make: written by the runner, read by the checks.

`IOWATCH_SELECTION` names a JSON file, a list of `[partition, stack, "<benchmark>:<case>"]`; without it the
checks run whatever the tags choose, as for somebody who only knows ReFrame.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from iowatch.errors import InputError
from iowatch.spool import write_json

VARIABLE = "IOWATCH_SELECTION"
_NAME = "selection.json"

Key = tuple[str, str, str]


def write(place: Path, keys: Iterable[Key]) -> dict[str, str]:
    """Keep the runs in the directory `place`; returns the environment that tells the checks of it."""
    path = place / _NAME
    write_json(path, [list(key) for key in keys])
    return {VARIABLE: str(path)}


def chosen() -> frozenset[Key] | None:
    """(partition, stack, run's name) of every chosen run, or None where nobody chose.

    Raises:
        InputError: the file is absent or damaged.
    """
    named = os.environ.get(VARIABLE)
    return _read(named) if named else None


@cache
def _read(path: str) -> frozenset[Key]:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        return frozenset((str(p), str(stack), str(name)) for p, stack, name in document)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not a selection of runs: {error}") from error
