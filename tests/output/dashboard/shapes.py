"""A history of what plots of series show: reference, published figure, transient, drift, suspected change."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iowatch.core import Scalar
from iowatch.findings import update_findings
from iowatch.store import History, RunRecord
from tests.builders import build_output, build_result, build_run, build_session

DAY_S = 86400
START = 1_735_700_000
SESSIONS = 120
TRANSIENT_DAYS = range(50, 56)
# Published and accepted of this case: 4944 MiB/s ([lawrence2017], table 2; reference/bandwidth/archer.yaml).
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
# Shapes without a published figure; each is a separate series.
SHAPES = ("reference", "transient", "drift", "suspected")


def values(shape: str) -> NDArray[np.float64]:
    """A series of 4944 MiB/s with 2 % of noise, seeded, and one event."""
    days = np.arange(SESSIONS)
    factor = np.ones(SESSIONS)
    if shape == "transient":
        factor[TRANSIENT_DAYS.start : TRANSIENT_DAYS.stop] = 0.5
    elif shape == "drift":
        factor = 2.0 ** (-days / SESSIONS)
    elif shape == "suspected":
        factor[-2:] = 0.85
    noise = np.random.default_rng(SHAPES.index(shape)).normal(0, 0.02, SESSIONS)
    return np.asarray(4944 * factor * np.exp(noise))


def fill(database: Path | str, days: int = SESSIONS, without: Container[int] = ()) -> None:
    """Write the sessions of the first `days` except `without`: one run per shape and session on the system `archer`."""
    series = {shape: values(shape) for shape in SHAPES}
    with History.open(str(database)) as history:
        for day in (n for n in range(days) if n not in without):
            begin = START + day * DAY_S
            session = build_session(f"archer-{day:03d}", system="archer", started_at=begin)
            history.begin_session(session, [])
            history.record_runs(
                session.uuid,
                [make_run(shape, float(series[shape][day]), day, begin + 60 * n) for n, shape in enumerate(SHAPES)],
            )
            history.end_session(session.uuid, "ok", begin + 600)
        update_findings(history, "archer", datetime.fromtimestamp(START + days * DAY_S, UTC))


def make_run(shape: str, value: float, day: int, begin: int) -> RunRecord:
    """A run of benchio with three samples, the largest `value` (MiB/s), at `begin` (epoch s)."""
    case = dict(CASE) if shape == "reference" else {**CASE, "mode": shape}
    result = build_result(value, value * 0.97, value * 0.93, case=case)
    return build_run(
        name=f"benchio:{shape}", stack="published", started_at=begin, output=build_output(result, tool="benchio")
    )
