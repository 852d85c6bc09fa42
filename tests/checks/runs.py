"""Runs of a check without ReFrame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from iowatch.benchmarks.registry import get_benchmark
from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks.order import RunOrder
from iowatch.checks.run import CheckedRun
from iowatch.core import RunKey, Scalar

OPTIONS: dict[str, Scalar] = {"op": "write", "ranks": 4, "nodes": 1, "repeat": 3}


def make_run(stage: Path = Path("/stage"), *, options: Mapping[str, Scalar] | None = None, **fields: Any) -> CheckedRun:
    """A run of a case of IOR on an unknown system.

    Args:
        options: of the case, besides or instead of `OPTIONS`.
        fields: of `CheckedRun` that have other values.
    """
    case_options = get_benchmark("ior").read_options({**OPTIONS, **(options or {})})
    case = SuiteCase("mine", "ior", "single", case_options, "none", 60)
    run = CheckedRun(
        case=case,
        key=RunKey("default", "gnu", case.run_name),
        order=RunOrder(session="s1"),
        turn=None,
        system="unknown",
        environment="gnu",
        scheduler="local",
        test="IorCheck_1",
        stack={},
        program="ior",
        built_version=None,
        stage=stage,
        scratch_base=Path("/var/scratch/x.y"),
        stdout="rfm_job.out",
        stderr="rfm_job.err",
        run_id="0123",
        is_traced=False,
        traces_accesses=False,
        launcher="mpirun -np 4",
    )
    return replace(run, **fields)
