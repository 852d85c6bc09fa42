"""Some attempts at a false green (`python -m tests.faults.campaign --only false-green` makes all of them)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.faults.conftest import LONG
from tests.faults.false_green import ATTEMPTS, Attempt, run_attempt

# The others need a mount, IOR, or many sessions; their parts have tests of their own.
_SAMPLE = ("library disappears from PATH", "record names another MPI", "check class is renamed", "launcher is replaced")

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.skipif(shutil.which("mpicc") is None, reason="needs an MPI compiler (mpicc)"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attempts") / "site"


@pytest.mark.slow
@pytest.mark.parametrize(
    "attempt", [one for one in ATTEMPTS if LONG or one.name in _SAMPLE], ids=lambda attempt: attempt.name
)
def test_session_with_a_fault_is_red_and_has_the_reason(attempt: Attempt, place: Path) -> None:
    if reason := attempt.impossible():
        pytest.skip(reason)
    assert run_attempt(attempt, place) == []


def test_every_attempt_has_its_own_name() -> None:
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS) >= 25
