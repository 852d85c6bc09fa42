"""The limit of the time of work that waits: it ends the work, also where that takes the end for an error of its own."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from iowatch.core import MachineError, UsageError
from iowatch.experiments.common.time_limit import time_limit
from iowatch.session.deadline import Deadline, TimeIsUpError


def test_work_in_time_keeps_no_alarm() -> None:
    handler = signal.getsignal(signal.SIGALRM)
    with time_limit(Deadline(time.monotonic() + 60)):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == handler


def test_end_of_the_time_interrupts_what_waits() -> None:
    started = time.monotonic()
    with pytest.raises(TimeIsUpError), time_limit(Deadline(started + 0.05)):
        time.sleep(30)
    assert time.monotonic() - started < 10


def wait_with_an_error_of_its_own() -> None:
    try:
        time.sleep(30)
    except MachineError as error:
        raise UsageError("the build cannot be used") from error


def wait_and_ignore_errors() -> None:
    with suppress(MachineError):
        time.sleep(30)


@pytest.mark.parametrize("work", [wait_with_an_error_of_its_own, wait_and_ignore_errors])
def test_end_that_the_work_handles_is_not_lost(work: Callable[[], None]) -> None:
    """Otherwise the work would go on without any limit, or report a fault of the build."""
    with pytest.raises(TimeIsUpError), time_limit(Deadline(time.monotonic() + 0.05)):
        work()
