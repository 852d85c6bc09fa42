"""A history of what pictures of series can show: reference, published figure, transient, drift, suspicion."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iowatch.core import Output, Result, Scalar
from iowatch.findings import update_findings
from iowatch.store import History, RunRecord, SessionRecord, StackRecord

DAY_S = 86400
START = 1_735_700_000
NIGHTS = 120
AWAY = range(50, 56)
# Published and accepted of this case: 4944 MiB/s (seed 000, table 2; reference/bandwidth/archer.yaml).
CASE: Mapping[str, Scalar] = {
    "api": "MPIIO",
    "collective": True,
    "file": "shared",
    "file_system": "fs3",
    "local_size": "128x128x128",
    "nodes": 8,
    "pattern": "block3d",
    "ranks": 192,
    "stripe_bytes": 2**20,
    "stripe_count": -1,
}
# Nothing that is published; each is a series of its own.
SHAPES = ("reference", "transient", "drift", "suspected")


def values(shape: str) -> NDArray[np.float64]:
    """A series of 4944 MiB/s with 2 % of noise, seeded, and one thing that happened."""
    nights = np.arange(NIGHTS)
    factor = np.ones(NIGHTS)
    if shape == "transient":
        factor[AWAY.start : AWAY.stop] = 0.5
    elif shape == "drift":
        factor = 2.0 ** (-nights / NIGHTS)
    elif shape == "suspected":
        factor[-2:] = 0.4
    noise = np.random.default_rng(SHAPES.index(shape)).normal(0, 0.02, NIGHTS)
    return np.asarray(4944 * factor * np.exp(noise))


def fill(database: Path | str, nights: int = NIGHTS, without: Container[int] = ()) -> None:
    """Write the first nights of it, but those `without`: a run a shape and night on the system `archer`."""
    series = {shape: values(shape) for shape in SHAPES}
    with History.open(str(database)) as history:
        for night in (n for n in range(nights) if n not in without):
            begin = START + night * DAY_S
            session = SessionRecord(f"archer-{night:03d}", "archer", "nightly", "run", begin, {})
            history.begin_session(session, [])
            history.record_runs(
                session.uuid,
                [_run(shape, float(series[shape][night]), night, begin + 60 * n) for n, shape in enumerate(SHAPES)],
            )
            history.end_session(session.uuid, "ok", begin + 600)
        update_findings(history, "archer", datetime.fromtimestamp(START + nights * DAY_S, UTC))


def _run(shape: str, value: float, night: int, begin: int) -> RunRecord:
    case = dict(CASE) if shape == "reference" else {**CASE, "mode": shape}
    result = Result("write", "bandwidth", "MiB/s", (value, value * 0.97, value * 0.93), case)
    return RunRecord(
        name=f"benchio:{shape}",
        partition="default",
        stack=StackRecord("published"),
        fingerprint=f"{shape}-{night}",
        started_at=begin,
        output=Output("benchio", "1.0.0", "ok", None, (result,)),
    )
