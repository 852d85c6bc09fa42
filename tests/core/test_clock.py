"""A command that begins at another time: IOWATCH_NOW."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from iowatch.core import UsageError, clock, utc_now

MARCH = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
_PRINT_NOW = "from iowatch.core import utc_now; print(int(utc_now().timestamp()))"


@pytest.fixture(autouse=True)
def _no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test sets is gone after it."""
    monkeypatch.setenv("IOWATCH_CLOCK_OFFSET_S", "")
    monkeypatch.setenv("IOWATCH_NOW", "")


def test_clock_goes_on_from_the_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock.time, "time", lambda: 1_000_000.0)
    monkeypatch.setenv("IOWATCH_NOW", "2026-03-01T02:00")
    assert clock.set_clock() == MARCH
    assert utc_now() == MARCH
    monkeypatch.setattr(clock.time, "time", lambda: 1_000_090.0)
    assert (utc_now() - MARCH).total_seconds() == 90


def test_programs_of_a_command_go_on_from_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """ReFrame is such a program; it must not begin again at the given time."""
    monkeypatch.setenv("IOWATCH_NOW", "2026-03-01T02:00")
    clock.set_clock()
    assert "IOWATCH_NOW" not in os.environ
    printed = subprocess.run([sys.executable, "-c", _PRINT_NOW], capture_output=True, text=True, check=True).stdout
    assert 0 <= int(printed) - MARCH.timestamp() < 60


def test_without_the_variable_it_is_the_machine_s_clock() -> None:
    assert clock.set_clock() is None
    assert abs(utc_now().timestamp() - time.time()) <= 1


def test_text_that_is_no_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOWATCH_NOW", "yesterday")
    with pytest.raises(UsageError, match=r"IOWATCH_NOW: .*yesterday"):
        clock.set_clock()
