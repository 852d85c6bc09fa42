"""Where tasks run: in processes of this host, or on workers of Dask, here or of a scheduler."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing import get_context

from iowatch.core import MachineError, UsageError

# Opens an executor, with its number of workers.
Engine = Callable[[], AbstractContextManager[tuple[Executor, int]]]
# The number of workers of a scheduler changes while their jobs start and end; so many are kept busy.
_REMOTE_WORKERS = 64
WORKER_MEMORY = "1GiB"
# A task is given up when so many workers ended while they had it: what a log does ends its reader, not the worker.
_ALLOWED_FAILURES = 20


@contextmanager
def local_processes(workers: int) -> Iterator[tuple[Executor, int]]:
    """Yield an executor of processes on this host, and their number."""
    # Spawned, not forked: a forked process would inherit open connections to the history.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield pool, workers


@contextmanager
def dask_workers(scheduler: str | None, workers: int | None) -> Iterator[tuple[Executor, int]]:
    """Yield an executor of Dask and its number of workers.

    Args:
        scheduler: address of a running scheduler, whose workers see the logs and have iowatch; None starts workers on
            this host, which only this process can reach.
        workers: number of local workers [default: the cores that this process may use].

    Raises:
        UsageError: both arguments. MachineError: Dask is not installed, the scheduler cannot be reached, or a worker
            does not start.
    """
    if scheduler and workers:
        raise UsageError("--workers is for workers on this host, not for those of a scheduler")
    try:
        import dask
        import distributed
    except ImportError as error:
        raise MachineError(f"{error.name or 'Dask'} is missing", hint="pip install 'iowatch[fleet]'") from error
    worker_count = workers or len(os.sched_getaffinity(0))
    for name in ("distributed", "distributed.client"):  # the caller reports a lost connection, once
        logging.getLogger(name).setLevel(logging.CRITICAL)
    dask_settings = {
        "distributed.scheduler.allowed-failures": _ALLOWED_FAILURES,
        # Workers sample their own stacks a hundred times per second for a page that is not shown.
        "distributed.worker.profile.enabled": False,
        # The HTTP server of a scheduler cannot be left out, and other accounts could read it.
        "distributed.scheduler.http.routes": [],
    }
    with dask.config.set(dask_settings):
        if scheduler:
            try:
                client = distributed.Client(scheduler, timeout="20s")
            except (OSError, ValueError) as error:
                message = f"no Dask scheduler at {scheduler}: {error}"
                raise MachineError(message, hint="An address is tcp://HOST:8786 or tls://HOST:8786.") from error
            with client:
                yield client.get_executor(pure=False), _REMOTE_WORKERS
            return
        # security: the port of a scheduler executes what is sent to it, and other accounts use this host, too.
        try:
            cluster = distributed.LocalCluster(
                n_workers=worker_count,
                threads_per_worker=1,
                memory_limit=WORKER_MEMORY,
                dashboard_address="127.0.0.1:0",  # None would be port 8787, of which a host has one
                scheduler_kwargs={"dashboard": False},
                security=True,
                silence_logs="CRITICAL",
            )
        except RuntimeError as error:  # a worker was killed before it was ready
            message = f"the workers did not start: {error}"
            raise MachineError(message, hint="Nothing is lost; repeat the command.") from error
        with cluster, distributed.Client(cluster) as client:
            yield client.get_executor(pure=False), worker_count


def choose_engine(tasks: Sequence[object], workers: int | None, scheduler: str | None) -> Engine | None:
    """The engine of the options `--workers` and `--scheduler`; None for tasks one after the other in this process."""
    if scheduler:
        return partial(dask_workers, scheduler, workers)
    processes = workers or min(len(os.sched_getaffinity(0)), len(tasks))
    return partial(local_processes, processes) if processes > 1 else None
