"""The table of covariates: what went on around a run, and their values per run.

A job records them on its first node immediately before and after a run, as the fact `covariates`: {"before": {name:
number or text}, "after": {…}}, each with `time_s`, the epoch time. A name may have an instance: `target_fill:OST0001`.
Imports store averages over the run as facts of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

PROCESSOR_PRESSURE = "cpu_pressure"
"""Name of the covariate that states whether a node is saturated."""

Side = Literal["before", "after"]
SIDES: tuple[Side, ...] = ("before", "after")

CovariateKind = Literal["state", "moment", "counter", "stock", "average", "detail"]
"""How a value per run is made.

state: the value before the run. moment: a count at one moment, the smaller of those before and after: what is there for
milliseconds says nothing about the time between. counter: a total that only increases; its rate between before and
after. stock: an amount; its net change per second. average: over the run, as the import states it. detail: shown only;
no value per run.
"""


@dataclass(frozen=True, slots=True)
class Covariate:
    """The meaning of a covariate.

    Attributes:
        name: key in the facts.
        unit: of the recorded values; of a counter or stock, the value per run has this unit per second.
        label: name in pages and reports.
        includes_run: whether the value per run contains what the run itself caused, which cannot be separated. Such a
            value is no independent explanation of a slow run: a slow run moves fewer bytes per second.
    """

    name: str
    unit: str
    label: str
    kind: CovariateKind
    includes_run: bool = False

    @property
    def run_unit(self) -> str:
        """Unit of the value per run."""
        return f"{self.unit}/s" if self.kind in ("counter", "stock") else self.unit


def _all_covariates() -> tuple[Covariate, ...]:
    """The covariates by kind; a row is the name, the unit of the value, and the words that people read."""
    # The state of a node, a file system or the system, at one moment.
    states = (
        ("load_1m", "", "load average of the node (1 minute)"),
        ("io_pressure", "%", "time that processes of the node waited for I/O (10 s)"),
        (PROCESSOR_PRESSURE, "%", "time that processes of the node waited for a processor (10 s)"),
        ("memory_available_bytes", "bytes", "available memory of the node"),
        ("memory_cached_bytes", "bytes", "page cache of the node"),
        ("memory_dirty_bytes", "bytes", "dirty memory of the node"),
        ("fill", "%", "fill of the file system"),
        ("free_inodes", "", "free inodes of the file system"),
        ("target_fill_max", "%", "fill of the fullest target"),
        ("target_fill_mean", "%", "mean fill of the targets"),
        ("target_inodes_free_min", "", "free inodes of the target with fewest"),
        ("targets", "", "targets that answered"),
        ("targets_down", "", "targets that are not up"),
        ("targets_disconnected", "", "targets to which the node has no connection"),
        ("health_checks", "", "warnings and errors that the file system reports"),
        ("jobs_running", "", "jobs running on the system"),
        ("jobs_pending", "", "jobs waiting on the system"),
        ("jobs_own_nodes", "", "other jobs on the nodes of the run"),
        ("prometheus", "", "answer of Prometheus"),
    )
    moments = (
        ("processes_blocked", "", "processes of the node blocked by I/O"),
        ("device_in_flight", "", "requests in flight to the block device"),
    )
    # Of the client on the first node of the run; the counters of other nodes are not read.
    traffic = (
        ("client_read_bytes", "bytes", "data read by the client"),
        ("client_written_bytes", "bytes", "data written by the client"),
        ("client_data_ops", "", "data requests of the client"),
        ("client_metadata_ops", "", "metadata requests of the client"),
        ("client_wait_s", "s", "time that requests of the client took"),
        ("network_wait", "", "ticks in which an InfiniBand port could not send"),
    )
    errors = (
        ("client_retransmissions", "", "requests that the client sent again"),
        ("network_errors", "", "errors of the network interfaces"),
        ("network_discards", "", "packets that the network interfaces dropped"),
    )
    # TOKIO: activity of the servers during the run (LMT), state of the file system, jobs and placement (Slurm).
    # The last column says whether the run itself is counted.
    averages = (
        ("fs_ave_gibs_read_per_sec", "GiB/s", "read from the file system by all jobs", True),
        ("fs_ave_gibs_written_per_sec", "GiB/s", "written to the file system by all jobs", True),
        ("fs_ave_mds_cpu", "%", "processor load of the metadata server", True),
        ("fs_ave_oss_cpu", "%", "processor load of the object storage servers", True),
        ("fshealth_ost_avg_full_pct", "%", "mean fill of the targets", False),
        ("fshealth_ost_overloaded_ost_count", "", "overloaded targets", False),
        ("jobsdb_concurrent_jobs", "", "jobs running on the system", False),
        ("topology_job_max_radius", "", "largest distance of the nodes in the network", False),
    )
    return (
        *(Covariate(*row, kind="state") for row in states),
        *(Covariate(*row, kind="moment") for row in moments),
        *(Covariate(*row, kind="counter", includes_run=True) for row in traffic),
        *(Covariate(*row, kind="counter") for row in errors),
        Covariate("used_bytes", "bytes", "growth of the file system", "stock", includes_run=True),
        *(Covariate(name, unit, label, "average", includes_run) for name, unit, label, includes_run in averages),
        Covariate("target_fill", "%", "fill of the target", "detail"),
        Covariate("setting", "", "setting", "detail"),
    )


COVARIATES = {covariate.name: covariate for covariate in _all_covariates()}
"""All covariates by name, without instance."""

AVERAGED_COVARIATES = tuple(row.name for row in COVARIATES.values() if row.kind == "average")

COVARIATE_FACTS = ("covariates", *AVERAGED_COVARIATES)
"""Names of the facts of a run that `run_covariates` uses."""


def get_covariate(name: str) -> Covariate | None:
    """Return the covariate of a recorded name, which may have an instance; None if it is not in the table."""
    return COVARIATES.get(name.partition(":")[0])


def covariate_label(name: str) -> str:
    """Return the label of a recorded name with its instance: `fill of the target OST0001`."""
    covariate, instance = get_covariate(name), name.partition(":")[2]
    if covariate is None:
        return name
    return f"{covariate.label} {instance}".strip()


def recorded_covariates(facts: Mapping[str, Any], side: Side) -> Mapping[str, Any]:
    """Return what a run recorded before or after it, by name; empty if it recorded none."""
    recorded = facts.get("covariates")
    if not isinstance(recorded, Mapping):
        return {}
    of_side = recorded.get(side)
    return of_side if isinstance(of_side, Mapping) else {}


def run_covariates(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the covariates of a run by name, in the units `Covariate.run_unit`; finite.

    What the run itself transferred is part of counters and stocks and cannot be subtracted: caches and protocols change
    its amount. `Covariate.includes_run` marks these.

    Args:
        facts: of the run; those that are absent or damaged are left out, and so is a counter that was reset.
    """
    before, after = (recorded_covariates(facts, side) for side in SIDES)
    duration_s = (_number(after.get("time_s")) or 0.0) - (_number(before.get("time_s")) or 0.0)
    values = {name: _number(facts.get(name)) for name in AVERAGED_COVARIATES}
    for name, value in before.items():
        values[name] = _run_value(name, _number(value), _number(after.get(name)), duration_s)
    return {name: value for name, value in values.items() if value is not None}


def _run_value(name: str, before: float | None, after: float | None, duration_s: float) -> float | None:
    """Return the value per run of a recorded covariate, in `Covariate.run_unit`, as its `CovariateKind` says.

    A state is the value before the run, a moment the smaller one of both, a counter or a stock the change per second.
    None where the run has no such value: the covariate is not in the table or not recorded, or its counter was reset.

    Args:
        name: as recorded; it may have an instance.
        before, after: what was recorded before and after the run, in `Covariate.unit`; None if it is no number.
        duration_s: seconds between the two.
    """
    covariate = get_covariate(name)
    if covariate is None or before is None:
        return None
    # A detail is only shown; an average is a fact of its own, which no job records before and after.
    if covariate.kind in ("detail", "average"):
        return None
    if covariate.kind == "state":
        return before
    if covariate.kind == "moment":
        # A request that is in flight for milliseconds is in one of the two counts only, and says nothing about the run.
        return before if after is None else min(before, after)
    # The rate of a counter or a stock.
    if after is None or duration_s <= 0:
        return None
    was_reset = covariate.kind == "counter" and after < before
    return None if was_reset else (after - before) / duration_s


SATURATED_PERCENT = 90.0
"""Processor pressure before a run from which on its node counts as saturated, in % of the time.

The kernel (Documentation/accounting/psi.rst) averages it over 10 s: after an own run with more ranks than processors it
falls below 75 % within 3 s, the time between two jobs. With 45 % a node with half of its processors in use by others
would count, too; above 100 % there is none.
"""


def processor_saturation(facts: Mapping[str, Any]) -> float | None:
    """Return the processor pressure (%) before a run whose node was saturated by others; None for other runs.

    Such a run measures how the processors are shared, not the file system. Kernels without /proc/pressure do not say.

    Args:
        facts: of the run.
    """
    pressure = _number(recorded_covariates(facts, "before").get(PROCESSOR_PRESSURE))
    if pressure is None or pressure < SATURATED_PERCENT:
        return None
    return pressure


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
