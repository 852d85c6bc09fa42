"""`detect_many` beside the reading of the next series, in processes of its own where there is enough to do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

from numpy.typing import ArrayLike

from iowatch.detect.detector import detect_many
from iowatch.detect.records import Detection

# Half a second to start a process is a tenth of what so many points cost (10 microseconds each).
_WORTH_POINTS = 400_000
_MOST_PROCESSES = 8

Answers = Callable[[], list[Detection]]
Ask = Callable[[Sequence[tuple[ArrayLike, ArrayLike]], Sequence[float | None]], Answers]


@contextmanager
def detecting(points: int, *, processes: int | None = None) -> Iterator[Ask]:
    """How to ask `detect_many` for series and their `since`: what it gives back is called for the answers.

    Args:
        points: of all series that will be asked for.
        processes: with 1 everything is done here, when the answers are called for [default: one a core if there
            are enough points, or 1].
    """
    processes = processes or _processes(points)
    if processes == 1:
        yield lambda series, since: partial(detect_many, series, since=since)
        return
    # Not forked: a copy of this process would hold its connections to the history.
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_end_with_parent) as pool:
        yield lambda series, since: pool.submit(detect_many, series, since=since).result


def _processes(points: int) -> int:
    return min(len(os.sched_getaffinity(0)), _MOST_PROCESSES) if points >= _WORTH_POINTS else 1


def _end_with_parent() -> None:
    """Workers of a killed process would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
