"""A limit of the time of work that waits for programs, such as the build of a library."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from iowatch.core import IowatchError
from iowatch.session.deadline import Deadline, TimeIsUpError

# Seconds of a limit that has passed already: an alarm of 0 s never rings.
_SHORTEST_S = 0.001


@contextmanager
def time_limit(deadline: Deadline) -> Iterator[None]:
    """End the block at the deadline, with an exception in whatever it waits for; only in the main thread.

    Raises:
        TimeIsUpError: the deadline passed before the block ended.
    """

    is_over = False

    def ring(_signal_number: int, _frame: FrameType | None) -> None:
        nonlocal is_over
        is_over = True
        raise TimeIsUpError("the time was over")

    previous_handler = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(_SHORTEST_S, deadline.left_s))
    try:
        yield
    except IowatchError as error:
        # What the alarm interrupted may have reported it as an error of its own.
        if is_over:
            raise TimeIsUpError("the time was over") from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous_handler)
    # What the alarm interrupted may also have taken it for something that can be done without.
    if is_over:
        raise TimeIsUpError("the time was over")
