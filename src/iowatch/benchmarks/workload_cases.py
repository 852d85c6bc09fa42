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
from iowatch.benchmarks.options import Option, OptionError, Options, OptionType
from iowatch.benchmarks.workloads import Workload, data_bytes, file_count, read_description
from iowatch.core import MIB, InputError, Scalar, settings, suggest_name

WORKLOAD = Option(
    "workload",
    OptionType.TEXT,
    "name of a workload (`iowatch workload list`), or a file of the site, in the place of a pattern",
)
SET = Option("set", OptionType.TEXT, "values of its parameters: NAME=VALUE, joined by +")
# Options of benchio that a workload leaves open.
_FITTING = {
    WORKLOAD.name,
    SET.name,
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
    """A description, its parameters as set, and what it needs on so many ranks.

    Attributes:
        path: file of the description.
        name: name in the description.
        description: beginning of the digest of the file.
        apis: interfaces of its files, each once.
        layouts: layouts of its files, each once.
        operations: operations of the phases, in order.
        moving: those of them that move data.
        data_bytes: bytes of all files.
        files: number of files.
    """

    path: Path
    name: str
    description: str
    apis: tuple[str, ...]
    layouts: tuple[str, ...]
    operations: tuple[str, ...]
    moving: tuple[str, ...]
    data_bytes: int
    files: int


def plan(options: Options) -> PlannedWorkload:
    """Return what the options ask for.

    Raises:
        OptionError: no such workload, a parameter that it does not have, or an option without a meaning for workloads.
        InputError: an invalid description.
    """
    for name in sorted(options):
        if name not in _FITTING:
            raise OptionError(name, f"option '{name}' has no meaning for a workload, whose description has it")
    path = find_description(options.text(WORKLOAD.name))
    assignments = options.text(SET.name) if SET.name in options else ""
    return _plan(path, path.stat().st_mtime_ns, options.number("ranks"), options.number("nodes"), assignments)


def find_description(name: str) -> Path:
    """Return the file of a workload: of the site, else of iowatch; a path is relative to the site.

    Raises:
        OptionError: there is none.
    """
    if "/" in name or name.endswith(".yaml"):
        path = settings.site_root() / name
    else:
        path = settings.find_file("workload", name)
    if not path.is_file():
        names = [workload for (workload,) in settings.list_files("workload")]
        raise OptionError(WORKLOAD.name, f"no workload '{name}'. {suggest_name(name, names)}")
    return path.absolute()


@cache
def _plan(path: Path, _changed_ns: int, ranks: int, nodes: int, assignments: str) -> PlannedWorkload:
    """Return the plan of a description; `_changed_ns` is the time of its file, so that a changed one is read again."""
    document = read_description(path)
    workload = Workload(document, ranks, nodes, requested_values(assignments, document))
    files = document["files"]
    # Files and phases in the order of the description; names that several of them have are kept once.
    apis = dict.fromkeys(workload.text(file["api"]) for file in files.values())
    layouts = dict.fromkeys(_layout(workload, file) for file in files.values())
    operations: list[str] = []
    moving: list[str] = []
    for phase in document["phases"]:
        phase_type = _phase_type(phase, workload)
        operation = operation_name(phase["name"], phase_type)
        operations.append(operation)
        if phase_type != "metadata":
            moving.append(operation)
    return PlannedWorkload(
        path=path,
        name=str(document["name"]),
        description=hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGEST],
        apis=tuple(apis),
        layouts=tuple(layouts),
        operations=tuple(operations),
        moving=tuple(moving),
        data_bytes=sum(data_bytes(workload, name) for name in files),
        files=sum(file_count(workload, name) for name in files),
    )


def requested_values(assignments: str, document: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the values of an option `set`: `api=pnetcdf+blocks=20`.

    Raises:
        OptionError: not in that form, or no such parameter.
    """
    parameters = document.get("parameters", {})
    values: dict[str, Scalar] = {}
    for assignment in _split_assignments(assignments):
        name, equals, value = assignment.partition("=")
        if not equals or not value or name not in parameters:
            expected = f"expected NAME=VALUE of a parameter of the workload ({', '.join(parameters) or 'none'})"
            raise OptionError(SET.name, f"set: '{assignment}': {expected}")
        values[name] = value
    return values


def _split_assignments(assignments: str) -> list[str]:
    return assignments.split("+") if assignments else []


def _layout(workload: Workload, file: Mapping[str, Any]) -> str:
    if "group" in file:
        return "groups"
    return workload.text(file.get("layout", "shared"))


def _phase_type(phase: Mapping[str, Any], workload: Workload) -> str:
    """Return `read`, `write`, `read-write` or `metadata`: as `operation` in the record."""
    verbs = set(_verbs(phase["actions"], workload))
    moved = [verb for verb in ("read", "write") if verb in verbs]
    return "-".join(moved) or "metadata"


def _verbs(actions: Sequence[Any], workload: Workload) -> Iterator[str]:
    """Yield `read` and `write` as often as actions do it."""
    for action in actions:
        if "repeat" in action:
            if not _is_left_out(action["repeat"], workload):
                yield from _verbs(action["actions"], workload)
        elif isinstance(action, dict):
            yield from {"read", "write"} & set(action)


def _is_left_out(turns: Any, workload: Workload) -> bool:
    """Whether a repeat has no turns, whatever the rank; with an index of another one it has some."""
    try:
        return all(workload.value(turns, rank) <= 0 for rank in range(workload.ranks))
    except InputError:
        return False


def operation_name(phase: str, phase_type: str) -> str:
    """Return the operation of a phase in cases: `checkpoint write`; `write` for a phase of that name.

    Args:
        phase_type: `read`, `write`, `read-write` or `metadata`.
    """
    if phase == phase_type:
        return phase_type
    if phase_type in ("read", "write"):
        return f"{phase} {phase_type}"
    return f"{phase} run"


def arguments(options: Options) -> list[str]:
    """Return the words that choose the workload and its parameters."""
    words = [f"--workload={plan(options).path}"]
    if SET.name in options:
        words += [f"--set={assignment}" for assignment in _split_assignments(options.text(SET.name)) if assignment]
    return words


def requires(options: Options) -> tuple[str, ...]:
    """Return the features that a stack must have."""
    libraries = [api for api in plan(options).apis if api in _LIBRARIES]
    return ("libyaml", *libraries)


def expects(options: Options) -> tuple[tuple[str, str], ...]:
    """Return the expected results: the time of each phase, its bandwidth if it moves data, and both of all."""
    planned = plan(options)
    results = [(operation, "bandwidth") for operation in planned.moving]
    if planned.moving:
        results.append(("run", "bandwidth"))
    results += [(operation, "time") for operation in (*planned.operations, "run")]
    return tuple(results)


def printed_parameters(options: Options) -> dict[str, Scalar]:
    """Return the case parameters that the record of such a run has."""
    planned = plan(options)
    parameters: dict[str, Scalar] = {
        "workload": planned.name,
        "description": planned.description,
        "ranks": options.number("ranks"),
        "nodes": options.number("nodes"),
        **hints.hint_parameter(options),
    }
    # Cases name these only where a suite sets them.
    for name in (SET.name, "cache"):
        if name in options:
            parameters[name] = options.text(name)
    # With several interfaces or layouts the phases have the parameter.
    if len(planned.apis) == 1:
        parameters["api"] = _APIS[planned.apis[0]]
    if len(planned.layouts) == 1:
        parameters["file"] = planned.layouts[0]
    if options.flag("verify"):
        parameters["verify"] = True
    return parameters


def volume_bytes(options: Options) -> int:
    """Return bytes moved by all repetitions, as if each phase moved all data; benchio's `--check` counts them."""
    planned = plan(options)
    return planned.data_bytes * max(1, len(planned.moving)) * options.number("repeat")


def check_record(builder: parsing.OutputBuilder, record: Mapping[str, Any], case: parsing.CaseParameters) -> None:
    """Add the results of a workload's record to the builder.

    Args:
        case: parameters that all its results have.
    """
    workload, requested = record["workload"], record["options"]["repeat"]
    values = record["options"].get("set") or {}
    common = {
        **case,
        "workload": workload["name"],
        "description": workload["sha256"][:_DIGEST],
        "set": "+".join(f"{name}={value}" for name, value in values.items()) or None,
    }
    files = {file["name"]: file for file in workload["files"]}
    # Each phase has the interface and the layout of the files that it uses.
    for phase in record["phases"]:
        files_of_phase = [files[name] for name in phase["files"]]
        size = phase["bytes_read"] + phase["bytes_written"]
        case_of_phase = {**common, **_common_parameters(files_of_phase), "total_bytes": size or None}
        operation = operation_name(phase["name"], phase["operation"])
        _add(builder, operation, phase["repetitions"], size, case_of_phase)
    size = record["geometry"]["bytes_per_repetition"]
    case_of_run = {**common, **_common_parameters(list(files.values())), "total_bytes": size or None}
    _add(builder, "run", record["total"], size, case_of_run)
    counts = {len(phase["repetitions"]) for phase in record["phases"]}
    counts.add(len(record["total"]))
    if len(counts) > 1 or (min(counts) < requested and builder.has_no_problem):
        builder.add_truncation(f"{min(counts)} of {requested} repetitions")


def _common_parameters(files: Sequence[Mapping[str, Any]]) -> dict[str, Scalar | None]:
    """Return interface and layout of files; None where they differ."""
    apis = {_APIS[file["api"]] for file in files}
    layouts = {file["layout"] for file in files}
    api = apis.pop() if len(apis) == 1 else None
    layout = layouts.pop() if len(layouts) == 1 else None
    return {"api": api, "file": layout}


def _add(
    builder: parsing.OutputBuilder,
    operation: str,
    repetitions: Sequence[Mapping[str, Any]],
    size: int,
    case: parsing.CaseParameters,
) -> None:
    """Add the repetitions that agree with their own bytes; an operation without data has only a time."""
    consistent = [repetition for repetition in repetitions if _is_consistent(repetition, size)]
    if len(consistent) < len(repetitions):
        builder.add_truncation(f"{operation}: repetitions contradict their own bytes, time and bandwidth")
    if size:
        bandwidths = [repetition["bandwidth_bytes_per_second"] / MIB for repetition in consistent]
        builder.add_samples(operation, "bandwidth", bandwidths, case)
    builder.add_samples(operation, "time", [repetition["io_seconds"] for repetition in consistent], case)


def _is_consistent(repetition: Mapping[str, Any], size: int) -> bool:
    """Whether time x bandwidth is the size, and the I/O takes no longer than the repetition."""
    seconds, io_seconds = repetition["seconds"], repetition["io_seconds"]
    bandwidth = repetition["bandwidth_bytes_per_second"]
    if not 0 < io_seconds <= seconds * (1 + 1e-9) < math.inf:
        return False
    if not size:
        return bandwidth is None
    return math.isclose(io_seconds * bandwidth, size, rel_tol=_TOLERANCE)
