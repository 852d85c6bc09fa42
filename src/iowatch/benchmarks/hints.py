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

from iowatch.benchmarks.options import NODES, RANKS, Option, OptionError, Options, OptionType, declare_options
from iowatch.core import HINTS, NO_HINTS, STRIPING_HINTS, Scalar, fold_hints, format_hints, parse_hints

OPTION = "hints"
DECLARATION = Option(
    OPTION,
    OptionType.TEXT,
    "MPI-IO hints, such as cb=off or cb_nodes=2+cb_buffer_size=4m; none for the MPI's own choice",
    default=NO_HINTS,
    check=parse_hints,
)
# OMPIO of Open MPI 4.1.4 takes `collective_buffering=true` for off, so a component without buffering is forced, too.
_OMPIO_OFF = ("collective_buffering", "false")
_NO_FILE_HINTS = ("posix", "null")


def parameter_of_info(info: Mapping[str, str]) -> str | None:
    """Return the case parameter of the keys that a program passed to MPI; None without any."""
    keys = dict(info)
    # `mpi_info` adds this one to cb_nodes; a suite does not name it.
    if "cb_nodes" in keys and re.fullmatch(r"\*:\d+", keys.get("cb_config_list", "")):
        del keys["cb_config_list"]
    hints = fold_hints(keys)
    # `mpi_info` adds this one to cb=off.
    if hints.get("cb") == "off" and hints.get(_OMPIO_OFF[0]) == _OMPIO_OFF[1]:
        del hints[_OMPIO_OFF[0]]
    return format_hints(hints) or None


def requested_hints(options: Options) -> dict[str, str]:
    """Return the hints of a case's options.

    Raises:
        InputError: as `parse_hints`.
        OptionError: hints of an interface without MPI-IO; more aggregators than ranks.
    """
    hints = parse_hints(options.text(OPTION))
    if not hints:
        return {}
    # A benchmark without this option has an interface that takes hints.
    api = options.text("api") if options.declares("api") else ""
    if api in _NO_FILE_HINTS:
        raise OptionError(OPTION, f"api {api} takes no MPI-IO hints")
    aggregators, ranks = int(hints.get("cb_nodes", 1)), options.number("ranks")
    if aggregators > ranks:
        raise OptionError(OPTION, f"cb_nodes={aggregators} is more than the {ranks} ranks of the case")
    return hints


def hint_parameter(options: Options) -> dict[str, Scalar]:
    """Return the case parameter `hints`; empty without hints."""
    text = format_hints(requested_hints(options))
    return {OPTION: text} if text else {}


def without_striping(options: Options) -> dict[str, Scalar]:
    """Return options as on a file system without striping: hints that only set it are left out."""
    hints = requested_hints(options)
    for name in STRIPING_HINTS:
        hints.pop(name, None)
    changed = {name: value for name, value in options.items() if name != OPTION}
    if hints:
        changed[OPTION] = format_hints(hints)
    return changed


def required_features(options: Options, *, through_info: bool = True) -> tuple[str, ...]:
    """Return `romio` if OMPIO does not understand the hints of a case.

    Args:
        through_info: the program passes hints in an MPI_Info; OMPIO reads no file of hints.
    """
    for name, value in requested_hints(options).items():
        if not through_info or not _ompio_understands(name, value):
            return ("romio",)
    return ()


def _ompio_understands(name: str, value: str) -> bool:
    understood = HINTS[name].ompio
    if isinstance(understood, bool):
        return understood
    return value in understood


def understood_hints(mpi_io: str) -> list[str]:
    """Return the hints of the option that an MPI-IO (ROMIO or OMPIO) understands; `cb=off` where only that value."""
    names: list[str] = []
    for name, hint in HINTS.items():
        values = True if mpi_io == "ROMIO" else hint.ompio
        if values is True:
            names.append(name)
        elif values:
            names.append(f"{name}={'|'.join(sorted(values))}")
    return names


def mpi_info(options: Options) -> dict[str, str]:
    """Return the keys and values to put into the MPI_Info of the file, for ROMIO and OMPIO."""
    info: dict[str, str] = {}
    hints = requested_hints(options)
    for name, value in hints.items():
        for key in HINTS[name].keys:
            info[key] = _raw_value(name, value)
    if hints.get("cb") == "off":
        key, value = _OMPIO_OFF
        info[key] = value
    # ROMIO has one aggregator per node unless it is allowed more.
    aggregators_per_node = math.ceil(int(hints.get("cb_nodes", 1)) / options.number("nodes"))
    if aggregators_per_node > 1:
        info["cb_config_list"] = f"*:{aggregators_per_node}"
    return info


def _raw_value(name: str, value: str) -> str:
    """Return the value of a hint's keys: `disable` for `off`."""
    values = HINTS[name].values or {}
    return values.get(value, value)


def job_environment(options: Options) -> dict[str, str]:
    """Return variables that make each MPI-IO print its hints, and OMPIO do without collective buffering."""
    hints = requested_hints(options)
    if not hints:
        return {}
    variables = dict.fromkeys(
        ("ROMIO_PRINT_HINTS", "MPICH_MPIIO_HINTS_DISPLAY", "OMPI_MCA_io_ompio_verbose_info_parsing"), "1"
    )
    if hints.get("cb") == "off":
        variables["OMPI_MCA_fcoll"] = "individual"
    return variables


def romio_file(options: Options) -> str:
    """Return the content of the file that `ROMIO_HINTS` names; empty without hints."""
    lines = [f"{key} {value}\n" for key, value in mpi_info(options).items() if key != _OMPIO_OFF[0]]
    return "".join(lines)


def romio_file_of(text: str, *, ranks: int, nodes: int) -> str:
    """Return the content of a file of hints that is not of a case.

    Raises:
        InputError: as `requested_hints`.
    """
    declared = declare_options(DECLARATION, RANKS, NODES)
    return romio_file(Options("hints", declared, {OPTION: text, "ranks": ranks, "nodes": nodes}))


# What MPI-IO prints for each open file: ROMIO, Cray MPICH (its manual page intro_mpi), OMPIO.
_ROMIO_LINE = re.compile(r"key = (\w+) +value = (\S.*)| +(\w+) += (\S+)")
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
        text = line.rstrip("\n")
        romio_line, ompio_line = _ROMIO_LINE.fullmatch(text.rstrip(" ")), _OMPIO_LINE.fullmatch(text)
        key = (romio_line[1] or romio_line[3]) if romio_line else ""
        if romio_line and key in _ROMIO_KEYS:
            romio[key].add(romio_line[2] or romio_line[4])
        elif ompio_line:
            ompio[ompio_line[1]].add(ompio_line[2])
    if not romio and recorded:
        romio = defaultdict(set, {key: {value} for key, value in recorded.items()})
    if romio:
        return HintsInForce("ROMIO", _frozen(romio))
    if ompio:
        return HintsInForce("OMPIO", _frozen(ompio))
    return HintsInForce(None, {})


def _frozen(values: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    return {key: frozenset(of_key) for key, of_key in values.items()}


def hints_not_in_force(options: Options, in_force: HintsInForce) -> list[str]:
    """Return why hints that a case asked for are not in force; empty if all are."""
    reasons: list[str] = []
    for name, value in requested_hints(options).items():
        fault = _fault(name, value, in_force)
        if fault is not None:
            reasons.append(f"hint {name}={value} {fault}")
    return reasons


def _fault(name: str, value: str, in_force: HintsInForce) -> str | None:
    """Return in which way a hint is not in force; None if it is."""
    if in_force.mpi_io is None:
        return "may not be in force: the MPI printed no hints"
    if in_force.mpi_io == "OMPIO" and not _ompio_understands(name, value):
        return "is not in force: OMPIO does not understand it"
    expected = dict.fromkeys(HINTS[name].keys, _raw_value(name, value))
    if name == "cb" and in_force.mpi_io == "OMPIO":
        expected = dict([_OMPIO_OFF])
    differences: list[str] = []
    for key, expected_value in expected.items():
        values = in_force.values.get(key, frozenset())
        allowed = {expected_value}
        # A file that one process opens has one aggregator: IOR opens files so before it removes them.
        if key == "cb_nodes":
            allowed.add("1")
        if expected_value in values and values <= allowed:
            continue
        differences.append(f"has {key} {' and '.join(sorted(values))}" if values else f"has no {key}")
    if not differences:
        return None
    return f"is not in force: {in_force.mpi_io} {' and '.join(differences)}"
