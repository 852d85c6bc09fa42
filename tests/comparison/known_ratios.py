"""A history with known ratios, for the tests of sides, exports and the command."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from iowatch.core import OutputStatus, Result, Scalar
from iowatch.store import History
from tests.builders import build_output, build_run, build_session

DAY_S = 86_400
START = 1_700_000_000  # 2023-11-14, 22:13 UTC


def record(
    history: History,
    session: str,
    samples: Mapping[int, tuple[float, ...]],
    *,
    stack: str = "old",
    system: str = "local",
    time: int = START,
    status: OutputStatus = "ok",
    metric: str = "bandwidth",
    facts: Mapping[str, Scalar] | None = None,
    suffix: str = "",
) -> None:
    """Record the runs of one session of `ior write` with `ranks` from the keys of `samples`."""
    history.begin_session(build_session(session, system=system, started_at=time))
    for ranks, values in samples.items():
        name = f"ior:{ranks}{suffix}"
        result = Result("write", metric, "MiB/s", values, {"api": "MPIIO", "ranks": ranks})
        output, fingerprint = build_output(result, status=status), f"{session}/{stack}/{name}"
        run = build_run(name=name, stack=stack, fingerprint=fingerprint, started_at=time, output=output, facts=facts)
        history.record_runs(session, [run])
    history.end_session(session, "ok", time + 600)


def nightly(history: History, sessions: int, ratios: Mapping[str, float], *, first: int = 0, seed: int = 1) -> None:
    """Record `sessions` sessions, each with every stack of `ratios` (level relative to 1000 MiB/s) at 1, 2 and 4
    ranks."""
    rng = np.random.default_rng(seed)
    for number in range(first, first + sessions):
        effect = np.exp(0.1 * rng.standard_normal())
        for stack, ratio in ratios.items():
            samples = {
                ranks: tuple(1000 * ranks * ratio * effect * np.exp(0.03 * rng.standard_normal(5)))
                for ranks in (1, 2, 4)
            }
            record(history, f"night-{number:03d}", samples, stack=stack, time=START + number * DAY_S)
