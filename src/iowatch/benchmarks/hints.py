"""MPI-IO hints of a case: what programs and each MPI-IO are given, and the hints that a run had in force.

ROMIO (MPICH, Cray MPICH, Intel MPI; Open MPI with `OMPI_MCA_io=romio321`) and OMPIO (Open MPI) understand different
keys, and ignore those that they do not know. MPI_File_get_info cannot show what is in force: Open MPI 4.1 and later
return whatever they were given. So each run makes its MPI-IO print the hints that it uses (docs/benchmarks.md).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from iowatch.benchmarks.benchmark import BenchmarkOptions, integer_option
from iowatch.core import HINTS, NO_HINTS, STRIPING_HINTS, InputError, Scalar, fold_hints, format_hints, parse_hints

OPTION = "hints"
DESCRIPTION = "MPI-IO hints, such as cb=off or cb_nodes=2+cb_buffer_size=4m; none for the MPI's own choice"
# OMPIO of Open MPI 4.1.4 takes `collective_buffering=true` for off, so a component without buffering is forced, too.
_OMPIO_OFF = ("collective_buffering", "false")
_NO_FILE_HINTS = ("posix", "null")


def parameter_of_info(info: Mapping[str, str]) -> str | None:
    """Return the case parameter of the keys that a program passed to MPI; None without any."""
    kept = dict(info)
    if "cb_nodes" in kept and re.fullmatch(r"\*:\d+", kept.get("cb_config_list", "")):
        del kept["cb_config_list"]  # added by `mpi_info`
    hints = fold_hints(kept)
    if hints.get("cb") == "off" and hints.get(_OMPIO_OFF[0]) == _OMPIO_OFF[1]:
        del hints[_OMPIO_OFF[0]]
    return format_hints(hints) or None


def requested_hints(options: BenchmarkOptions) -> dict[str, str]:
    """Return the hints of a case's options.

    Raises:
        InputError: as `parse_hints`; hints of an interface without MPI-IO; more aggregators than ranks.
    """
    hints = parse_hints(str(options.get(OPTION, NO_HINTS)))
    api = str(options.get("api"))
    if hints and api in _NO_FILE_HINTS:
        raise InputError(f"api {api} takes no MPI-IO hints")
    nodes, ranks = int(hints.get("cb_nodes", 1)), integer_option(options, "ranks", 1)
    if nodes > ranks:
        raise InputError(f"cb_nodes={nodes} is more than the {ranks} ranks of the case")
    return hints


def hint_parameter(options: BenchmarkOptions) -> dict[str, Scalar]:
    """Return the case parameter `hints`; empty without hints."""
    text = format_hints(requested_hints(options))
    return {OPTION: text} if text else {}


def without_striping(options: BenchmarkOptions) -> dict[str, Scalar]:
    """Return options as on a file system without striping: hints that only set it are left out."""
    kept = {name: value for name, value in requested_hints(options).items() if name not in STRIPING_HINTS}
    rest = {name: value for name, value in options.items() if name != OPTION}
    return {**rest, OPTION: format_hints(kept)} if kept else rest


def required_features(options: BenchmarkOptions, *, through_info: bool = True) -> tuple[str, ...]:
    """Return `romio` if OMPIO does not understand the hints of a case.

    Args:
        through_info: the program passes hints in an MPI_Info; OMPIO reads no file of hints.
    """
    hints = requested_hints(options)
    understood = through_info and all(_ompio_understands(name, value) for name, value in hints.items())
    return () if understood or not hints else ("romio",)


def _ompio_understands(name: str, value: str) -> bool:
    known = HINTS[name].ompio
    return known if isinstance(known, bool) else value in known


def understood_hints(mpi_io: str) -> list[str]:
    """Return the hints of the option that an MPI-IO (ROMIO or OMPIO) understands; `cb=off` where only that value."""
    values = {name: True if mpi_io == "ROMIO" else hint.ompio for name, hint in HINTS.items()}
    return [name if known is True else f"{name}={'|'.join(sorted(known))}" for name, known in values.items() if known]


def mpi_info(options: BenchmarkOptions) -> dict[str, str]:
    """Return the keys and values to put into the MPI_Info of the file, for ROMIO and OMPIO."""
    info: dict[str, str] = {}
    hints = requested_hints(options)
    for name, value in hints.items():
        info |= dict.fromkeys(HINTS[name].keys, (HINTS[name].values or {}).get(value, value))
    if hints.get("cb") == "off":
        info |= dict([_OMPIO_OFF])
    # ROMIO has one aggregator per node unless it is allowed more.
    per_node = math.ceil(int(hints.get("cb_nodes", 1)) / integer_option(options, "nodes", 1))
    return info | ({"cb_config_list": f"*:{per_node}"} if per_node > 1 else {})


def job_environment(options: BenchmarkOptions) -> dict[str, str]:
    """Return variables that make each MPI-IO print its hints, and OMPIO do without collective buffering."""
    hints = requested_hints(options)
    shown = ("ROMIO_PRINT_HINTS", "MPICH_MPIIO_HINTS_DISPLAY", "OMPI_MCA_io_ompio_verbose_info_parsing")
    without = {"OMPI_MCA_fcoll": "individual"} if hints.get("cb") == "off" else {}
    return {**dict.fromkeys(shown, "1"), **without} if hints else {}


def romio_file(options: BenchmarkOptions) -> str:
    """Return the content of the file that `ROMIO_HINTS` names; empty without hints."""
    return "".join(f"{key} {value}\n" for key, value in mpi_info(options).items() if key != _OMPIO_OFF[0])


# What MPI-IO prints for each open file: ROMIO, Cray MPICH (its manual page intro_mpi), OMPIO.
_ROMIO_LINE = re.compile(r"(?:key = (\w+) +value = (\S.*?)| +(\w+) += (\S+)) *")
_OMPIO_LINE = re.compile(r"File: .* info: (\w+) value (\S+) .*")
_ROMIO_KEYS = {key for hint in HINTS.values() for key in hint.keys}


@dataclass(frozen=True)
class HintsInForce:
    """Hints that MPI-IO reported: key -> every value that it had; `mpi_io` None if there was no report."""

    mpi_io: str | None
    values: Mapping[str, frozenset[str]]


def read_hints(lines: Iterable[str], recorded: Mapping[str, str] | None = None) -> HintsInForce:
    """Return the hints in force from what a run printed.

    Args:
        recorded: keys and values that the program read from the file, where its MPI does not repeat any hint.
    """
    romio: dict[str, set[str]] = defaultdict(set)
    ompio: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        if (match := _ROMIO_LINE.fullmatch(line.rstrip("\n"))) and (key := match[1] or match[3]) in _ROMIO_KEYS:
            romio[key].add(match[2] or match[4])
        elif match := _OMPIO_LINE.fullmatch(line.rstrip("\n")):
            ompio[match[1]].add(match[2])
    if not romio and recorded:
        romio = defaultdict(set, {key: {value} for key, value in recorded.items()})
    name, found = ("ROMIO", romio) if romio else ("OMPIO", ompio) if ompio else (None, {})
    return HintsInForce(name, {key: frozenset(values) for key, values in found.items()})


def hints_not_in_force(options: BenchmarkOptions, found: HintsInForce) -> list[str]:
    """Return why hints that a case asked for are not in force; empty if all are."""
    faults = ((name, value, _fault(name, value, found)) for name, value in requested_hints(options).items())
    return [f"hint {name}={value} {fault}" for name, value, fault in faults if fault]


def _fault(name: str, value: str, found: HintsInForce) -> str | None:
    if found.mpi_io is None:
        return "may not be in force: the MPI printed no hints"
    hint, off = HINTS[name], name == "cb" and found.mpi_io == "OMPIO"
    if found.mpi_io == "OMPIO" and not _ompio_understands(name, value):
        return "is not in force: OMPIO does not understand it"
    raw = (hint.values or {}).get(value, value)
    expected = dict([_OMPIO_OFF]) if off else dict.fromkeys(hint.keys, raw)
    wrong = []
    for key, one in expected.items():
        values = found.values.get(key, frozenset())
        # A file that one process opens has one aggregator: IOR opens files so before it removes them.
        if not {one} <= values <= ({one, "1"} if key == "cb_nodes" else {one}):
            wrong.append(f"has {key} {' and '.join(sorted(values))}" if values else f"has no {key}")
    return f"is not in force: {found.mpi_io} {' and '.join(wrong)}" if wrong else None
