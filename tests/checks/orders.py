"""Orders of a session to the checks, for tests that stand for one of both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from iowatch.checks import ORDER_VARIABLE, RunOrder, read_order, write_order


def order_of(environment: Mapping[str, str]) -> RunOrder:
    """The order that a start of ReFrame with these variables follows."""
    return read_order(Path(environment[ORDER_VARIABLE]))


def order_variables(directory: Path, order: RunOrder) -> dict[str, str]:
    """Variables of a start of ReFrame that follows the order, which is written to the directory."""
    directory.mkdir(exist_ok=True)
    return write_order(directory, order)
