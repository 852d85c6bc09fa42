"""Data of tests: archives in the repository (tests/data), and external data.

`IOWATCH_TEST_DATA` names a folder with what cannot be committed: `seeds/` (texts of papers),
`data/archer-benchio` (GPL) and `data/darshan-logs`. Its default is `../shared`, relative to the repository.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
EDISON = ROOT / "tests/data/tokio/edison-summaries_2017-02-14-2018-02-15.csv.xz"
OUTSIDE = Path(os.environ.get("IOWATCH_TEST_DATA") or ROOT.parent / "shared").resolve()
ABSENT = "needs data that cannot be in the repository (IOWATCH_TEST_DATA, default ../shared)"


@cache
def unpacked(name: str) -> Path:
    """The contents of `tests/data/NAME.tar.xz`, in a temporary folder that is removed at the end of this process."""
    place = Path(tempfile.mkdtemp(prefix=f"iowatch-tests-{name}-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        # Python 3.11.3 and earlier have no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        archive.extractall(place)
    return place / name


def outside_data_exist() -> bool:
    """Whether the external data are on this machine."""
    return (OUTSIDE / "seeds").is_dir() and (OUTSIDE / "data").is_dir()


def cases_if(available: bool, cases: Iterable[Any], *marks: pytest.MarkDecorator) -> list[Any]:
    """Parameters of a test; if the test is skipped, a single one that represents all cases."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    if available:
        return [pytest.param(*row, marks=marks) for row in rows]
    return [pytest.param(*(rows[0] if rows else (None,)), marks=marks, id=f"{len(rows)} cases")]


def outside_cases(cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test of external data."""
    return cases_if(outside_data_exist(), cases, pytest.mark.outside_data)
