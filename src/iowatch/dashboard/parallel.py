"""Two processes for what is many and the same: pages of series."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from iowatch.store import History

_T = TypeVar("_T")
# Fewer are done sooner than a process is started.
_WORTH_IT = 200
_work: tuple[History, Callable[[Sequence[Any]], None], Sequence[Any]] | None = None


def in_parallel(history: History, work: Callable[[Sequence[_T]], None], items: Sequence[_T]) -> int:
    """Call `work` with parts of `items`, in other processes where it is worth it; returns how many went there.

    The processes are forks: they see everything that this one has, and take connections of their own.
    """
    global _work
    workers = min(2, os.cpu_count() or 1)
    if len(items) < _WORTH_IT or workers < 2:
        if items:
            work(items)
        return 0
    _work = (history, work, items)
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
            for done in [pool.submit(_part, start, workers) for start in range(workers)]:
                done.result()
    finally:
        _work = None
    return len(items)


def _part(start: int, step: int) -> None:
    assert _work is not None
    history, work, items = _work
    # A connection must not be used by two processes: this one forgets those it was born with.
    history.engine.dispose(close=False)
    work(items[start::step])
