"""Workloads as cases of benchio: what a suite asks for before a run, and the results in the record of a run.

A suite names a description, `workload: flash-io` (or a file of the site), and values of its parameters,
`set: api=pnetcdf+blocks=20`. Each phase has its operation, `checkpoint write`, with bandwidth and time; a phase named
as what it does is only `write`. The whole workload is `run`. In the history the workload is the benchmark of its cases
(`iowatch.core.Result.full_case`), as in imported histories; `description` is the beginning of its digest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from iowatch.benchmarks import hints, parsing
from iowatch.benchmarks.benchmark import BenchmarkOptions, integer_option
from iowatch.benchmarks.workloads import Workload, data_bytes, file_count, read_description
from iowatch.core import MIB, InputError, Scalar, settings, suggest_name

OPTIONS = {
    "workload": "name of a workload (`iowatch workload list`), or a file of the site, in the place of a pattern",
    "set": "values of its parameters: NAME=VALUE, joined by +",
}
# Options of benchio that a workload leaves open.
_FITTING = {
    "workload",
    "set",
    "ranks",
    "nodes",
    "repeat",
    "cache",
    "verify",
    "stripe-count",
    "stripe-size",
    hints.OPTION,
}
_APIS = {"posix": "POSIX", "mpiio": "MPIIO", "hdf5": "HDF5", "netcdf4": "NETCDF4", "pnetcdf": "PNETCDF"}
_LIBRARIES = ("hdf5", "netcdf4", "pnetcdf")
_DIGEST = 8
_TOLERANCE = 1e-13


@dataclass(frozen=True)
class PlannedWorkload:
    """A description, its parameters as set, and what it needs on so many ranks."""

    path: Path
    name: str
    description: str
    apis: tuple[str, ...]
    layouts: tuple[str, ...]
    operations: tuple[str, ...]
    moving: tuple[str, ...]
    data_bytes: int
    files: int


def plan(options: BenchmarkOptions) -> PlannedWorkload:
    """Return what the options ask for.

    Raises:
        InputError: no such workload, an invalid description, a parameter that it does not have, or an option that has
            no meaning for workloads.
    """
    if wrong := sorted(set(options) - _FITTING):
        raise InputError(f"option '{wrong[0]}' has no meaning for a workload, whose description has it")
    path = find_description(str(options["workload"]))
    ranks, nodes = (integer_option(options, name, 1) for name in ("ranks", "nodes"))
    return _plan(path, path.stat().st_mtime_ns, ranks, nodes, str(options.get("set", "")))


def find_description(name: str) -> Path:
    """Return the file of a workload: of the site, else of iowatch; a path is relative to the site.

    Raises:
        InputError: there is none.
    """
    if "/" in name or name.endswith(".yaml"):
        path = settings.site_root() / name
    else:
        path = settings.find_file("workload", name)
    if not path.is_file():
        known = [known for (known,) in settings.list_files("workload")]
        raise InputError(f"no workload '{name}'. {suggest_name(name, known)}")
    return path.absolute()


@cache
def _plan(path: Path, _changed_ns: int, ranks: int, nodes: int, chosen: str) -> PlannedWorkload:
    document = read_description(path)
    workload = Workload(document, ranks, nodes, requested_values(chosen, document))
    described = [(workload.text(file["api"]), _layout(workload, file)) for file in document["files"].values()]
    phases = list(_phases(document, workload))
    return PlannedWorkload(
        path=path,
        name=str(document["name"]),
        description=hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGEST],
        apis=tuple(dict.fromkeys(api for api, _ in described)),
        layouts=tuple(dict.fromkeys(layout for _, layout in described)),
        operations=tuple(operation_name(name, kind) for name, kind in phases),
        moving=tuple(operation_name(name, kind) for name, kind in phases if kind != "metadata"),
        data_bytes=sum(data_bytes(workload, name) for name in document["files"]),
        files=sum(file_count(workload, name) for name in document["files"]),
    )


def requested_values(chosen: str, document: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the values of an option `set`: `api=pnetcdf+blocks=20`.

    Raises:
        InputError: not in that form, or no such parameter.
    """
    found: dict[str, Scalar] = {}
    for pair in chosen.split("+") if chosen else ():
        name, equals, value = pair.partition("=")
        if not equals or not value or name not in document.get("parameters", {}):
            known = ", ".join(document.get("parameters", {})) or "none"
            raise InputError(f"set: '{pair}': expected NAME=VALUE of a parameter of the workload ({known})")
        found[name] = value
    return found


def _layout(workload: Workload, file: Mapping[str, Any]) -> str:
    return "groups" if "group" in file else workload.text(file.get("layout", "shared"))


def _phases(document: Mapping[str, Any], workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield name and kind of each phase: as `operation` in the record."""
    for phase in document["phases"]:
        verbs = set(_verbs(phase["actions"], workload))
        yield phase["name"], "-".join(verb for verb in ("read", "write") if verb in verbs) or "metadata"


def _verbs(actions: Sequence[Any], workload: Workload) -> Iterator[str]:
    for action in actions:
        if "repeat" in action:
            if not _is_left_out(action["repeat"], workload):
                yield from _verbs(action["actions"], workload)
        else:
            yield from ({"read", "write"} & set(action) if isinstance(action, dict) else ())


def _is_left_out(turns: Any, workload: Workload) -> bool:
    """Whether a repeat has no turns, whatever the rank; with an index of another one it has some."""
    try:
        return all(workload.value(turns, rank) <= 0 for rank in range(workload.ranks))
    except InputError:
        return False


def operation_name(phase: str, kind: str) -> str:
    """Return the operation of a phase in cases: `checkpoint write`; `write` for a phase of that name.

    Args:
        kind: `read`, `write`, `read-write` or `metadata`.
    """
    return kind if phase == kind else f"{phase} {kind if kind in ('read', 'write') else 'run'}"


def arguments(options: BenchmarkOptions) -> list[str]:
    """Return the words that choose the workload and its parameters."""
    chosen = plan(options)
    values = [f"--set={pair}" for pair in str(options.get("set", "")).split("+") if pair]
    return [f"--workload={chosen.path}", *values]


def requires(options: BenchmarkOptions) -> tuple[str, ...]:
    """Return the features that a stack must have."""
    return ("libyaml", *(api for api in plan(options).apis if api in _LIBRARIES))


def expects(options: BenchmarkOptions) -> tuple[tuple[str, str], ...]:
    """Return the expected results: the time of each phase, its bandwidth if it moves data, and both of all."""
    chosen = plan(options)
    operations = (*chosen.operations, "run")
    moving = (*chosen.moving, "run") if chosen.moving else ()
    return tuple((one, "bandwidth") for one in moving) + tuple((one, "time") for one in operations)


def printed_parameters(options: BenchmarkOptions) -> dict[str, Scalar]:
    """Return the case parameters that the record of such a run has."""
    chosen = plan(options)
    found: dict[str, Scalar] = {
        "workload": chosen.name,
        "description": chosen.description,
        "ranks": integer_option(options, "ranks", 1),
        "nodes": integer_option(options, "nodes", 1),
        **hints.hint_parameter(options),
    }
    found |= {name: options[name] for name in ("set", "cache") if name in options}
    found |= {"api": _APIS[chosen.apis[0]]} if len(chosen.apis) == 1 else {}
    found |= {"file": chosen.layouts[0]} if len(chosen.layouts) == 1 else {}
    return {**found, "verify": True} if options.get("verify") else found


def volume_bytes(options: BenchmarkOptions) -> int:
    """Return bytes moved by all repetitions, as if each phase moved all data; benchio's `--check` counts them."""
    chosen = plan(options)
    return chosen.data_bytes * max(1, len(chosen.moving)) * integer_option(options, "repeat", 10)


def check_record(builder: parsing.OutputBuilder, record: Mapping[str, Any], case: parsing.CaseParameters) -> None:
    """Add the results of a workload's record to the builder.

    Args:
        case: parameters that all its results have.
    """
    workload, requested = record["workload"], record["options"]["repeat"]
    given = record["options"].get("set") or {}
    common = {
        **case,
        "workload": workload["name"],
        "description": workload["sha256"][:_DIGEST],
        "set": "+".join(f"{name}={value}" for name, value in given.items()) or None,
    }
    files = {file["name"]: file for file in workload["files"]}
    for phase in record["phases"]:
        own = _only([files[name] for name in phase["files"]])
        size = phase["bytes_read"] + phase["bytes_written"]
        name = operation_name(phase["name"], phase["operation"])
        _add(builder, name, phase["repetitions"], size, {**common, **own, "total_bytes": size or None})
    size = record["geometry"]["bytes_per_repetition"]
    _add(builder, "run", record["total"], size, {**common, **_only([*files.values()]), "total_bytes": size or None})
    counts = {len(phase["repetitions"]) for phase in record["phases"]} | {len(record["total"])}
    if len(counts) > 1 or (min(counts) < requested and builder.has_no_problem):
        builder.add_truncation(f"{min(counts)} of {requested} repetitions")


def _only(files: Sequence[Mapping[str, Any]]) -> dict[str, Scalar | None]:
    """Return interface and layout of files, where all have the same."""
    apis, layouts = {_APIS[file["api"]] for file in files}, {file["layout"] for file in files}
    return {"api": apis.pop() if len(apis) == 1 else None, "file": layouts.pop() if len(layouts) == 1 else None}


def _add(
    builder: parsing.OutputBuilder,
    operation: str,
    repetitions: Sequence[Mapping[str, Any]],
    size: int,
    case: parsing.CaseParameters,
) -> None:
    consistent = [one for one in repetitions if _is_consistent(one, size)]
    if len(consistent) < len(repetitions):
        builder.add_truncation(f"{operation}: repetitions contradict their own bytes, time and bandwidth")
    if size:
        builder.add_samples(operation, "bandwidth", [r["bandwidth_bytes_per_second"] / MIB for r in consistent], case)
    builder.add_samples(operation, "time", [r["io_seconds"] for r in consistent], case)


def _is_consistent(repetition: Mapping[str, Any], size: int) -> bool:
    seconds, io, bandwidth = (repetition[n] for n in ("seconds", "io_seconds", "bandwidth_bytes_per_second"))
    if not 0 < io <= seconds * (1 + 1e-9) < math.inf:
        return False
    return bandwidth is None if not size else math.isclose(io * bandwidth, size, rel_tol=_TOLERANCE)
