"""A limit of processor time for work in this process: an output that a parser cannot cope with must not stop a session.

A regular expression runs in C, where Python looks for signals all the same: a timer can end it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimitError(BaseException):
    """The processor time is over. No `Exception`: work that catches all of these must end, too."""


@contextmanager
def limited_time(limit_s: float) -> Iterator[None]:
    """Limit the processor time of the block.

    There is no limit outside of the main thread, which alone gets signals, or where another timer runs already: that
    of a block around this one.

    Args:
        limit_s: seconds of processor time of this process.

    Raises:
        TimeLimitError: the time was over before the end of the block.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or signal.getitimer(signal.ITIMER_PROF)[0]:
        yield
        return
    before = signal.signal(signal.SIGPROF, _end_work)
    # Again each second: code that caught the first one must end as well.
    signal.setitimer(signal.ITIMER_PROF, limit_s, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _end_work(_number: int, _frame: FrameType | None) -> None:
    raise TimeLimitError
