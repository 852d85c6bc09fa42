"""The case of an IOR test: its parameters, each printed at least twice in different forms.

A parameter that is missing, or whose forms contradict each other, raises `FieldError`, which names it.
"""

from __future__ import annotations

import math

from iowatch.benchmarks.ior_command import IorCommand, parse_ior_size
from iowatch.benchmarks.ior_output import ROW_SIZES, IorTest
from iowatch.benchmarks.parsing import MAX_ALIGNMENT, MAX_RANKS, CaseParameters, parse_count, parse_printed_size
from iowatch.core import GIB, KIB, MIB, TIB, Scalar

_CASE_API = {"NCMPI": "PNETCDF", "DUMMY": "NULL"}
# An interface that IOR was built with, where `-a` names none.
_DEFAULT_APIS = frozenset(("POSIX", "MPIIO", "HDF5", "NCMPI"))
_FILES = {"single-shared-file": "shared", "file-per-process": "per-process"}
_REORDER = {"no tasks offsets": "none", "constant task offset": "constant", "random task offset": "random"}
_ORDER = {"sequential": None, "random": "random"}
_TYPES = {"independent": False, "collective": True}
# Exact parameter -> the equivalent option.
_SAME = {"tasks": "tasks", "segments": "segments", "repetitions": "repetitions", "per_node": "clients per node"}
# Versions that do not print the number of nodes; among development versions of 3.3 some do.
_WITHOUT_NODES = ("3.0", "3.1", "3.2", "3.3")
# Parameters that only a command line names -> its forms, and the largest plausible value.
_COMMAND_LINE_SIZES = {
    "stripe_count": (("posix.lustre.stripecount", "lustreStripeCount"), 1 << 20),
    "stripe_bytes": (("posix.lustre.stripesize", "lustreStripeSize"), MAX_ALIGNMENT),
    "alignment_bytes": (("hdf5.setAlignment", "J", "setAlignment"), MAX_ALIGNMENT),
}
_LARGEST_INT64 = (1 << 63) - 1


class FieldError(Exception):
    """A parameter of a case that is missing or contradicts another one; the message names it."""


def ior_case(test: IorTest, command: IorCommand, version: str | None) -> CaseParameters:
    """Return the parameters of a test.

    Raises:
        FieldError: one is missing or unknown, or two contradict each other.
    """
    if test.contradictions:
        raise FieldError(f"'{min(test.contradictions)}' is missing, or printed with different values")
    if command.damage is not None:
        raise FieldError(command.damage)
    _check_exact_values(test)
    api = interface_name(test, command)
    unknown = command.unknown_option(api)
    if unknown is not None:
        raise FieldError(f"option '--{unknown}' of the command line is not known")
    sizes = _size_parameters(test, command)
    if command.describes_tests:
        _check_command_line(test, command)
    return {
        "api": _CASE_API.get(api, api),
        **_access_parameters(test, command),
        **sizes,
        "nodes": _nodes(test, command, version),
        **_command_line_sizes(command),
    }


def _text(test: IorTest, name: str) -> str:
    text = test.options.get(name)
    if text is None:
        raise FieldError(f"option '{name}' is missing")
    return text


def _count(test: IorTest, name: str) -> int:
    text = _text(test, name)
    count = parse_count(text)
    if count is None:
        raise FieldError(f"option '{name}' is '{text}': expected a whole number")
    return count


def _check_exact_values(test: IorTest) -> None:
    for name, option in _SAME.items():
        if name not in test.exact or option not in test.options:
            continue
        if _count(test, option) != test.exact[name]:
            raise FieldError(f"option '{option}' is {test.options[option]}, the summary has {test.exact[name]}")


def interface_name(test: IorTest, command: IorCommand) -> str:
    """Return the interface in capitals: what `-a` asks for, or the default of the build.

    Raises:
        FieldError: another one was used, as far as the output states.
    """
    requested = (command.value("a", "api") or "").upper()
    for printed in (_text(test, "api"), test.summary_api):
        if printed is None:
            continue
        # Versions before 3.2 add that of the library: `MPIIO (version=3, subversion=0)`, `HDF5-1.8.14 (Parallel)`.
        name, _, version = printed.upper().partition(" ")
        if requested == "":
            requested = _default_interface(name)
        is_requested = name == requested or name.startswith(f"{requested}-")
        if not is_requested or (version != "" and not printed.endswith(")")):
            raise FieldError(f"the interface is '{printed}', requested was '{requested}' (-a)")
    return requested


def _default_interface(name: str) -> str:
    interface = name.partition("-")[0]
    if interface not in _DEFAULT_APIS:
        raise FieldError(f"the interface is '{name}', and the command line names none (-a)")
    return interface


def format_ior_size(size_bytes: int, has_tib: bool = True) -> str:
    """Format a size as IOR prints it (`HumanReadable` in `utilities.c`).

    Args:
        size_bytes: the size; above 2^63 IOR's number overflows.
        has_tib: whether the version knows TiB; 3.0 and 3.1 do not.
    """
    if size_bytes > _LARGEST_INT64:
        size_bytes = (size_bytes + _LARGEST_INT64 + 1) % (1 << 64) - _LARGEST_INT64 - 1
    if size_bytes < 0:
        return "-"
    for name, unit in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB)):
        if size_bytes < unit or (unit == TIB and not has_tib):
            continue
        if size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
        return f"{size_bytes / unit:.2f} {name}"
    return f"{size_bytes} bytes"


def _size_parameters(test: IorTest, command: IorCommand) -> CaseParameters:
    """Return ranks, segments and sizes, whose product is the aggregate size."""
    tasks = _count(test, "tasks")
    if test.old:
        segments = test.exact.get("segments") or parse_count(command.value("s") or "1")
    else:
        segments = _count(test, "segments")
    if segments is None:
        raise FieldError("the number of segments (-s) is not known")
    transfer = _size(test, command, "xfersize", "transfer", "t")
    block = _size(test, command, "blocksize", "block", "b")
    if block % transfer:
        raise FieldError(f"block size {block} is no multiple of the transfer size {transfer}")
    for column, size in zip(ROW_SIZES, (block, transfer), strict=True):
        shown = test.options.get(column)
        if shown is not None and not _is_rounded(shown, size / KIB):
            raise FieldError(f"column '{column}' of the rows is {shown}, the options say {size} bytes")
    total = tasks * segments * block
    aggregate = _text(test, "aggregate filesize")
    if format_ior_size(total, not test.old) != aggregate:
        raise FieldError(f"'aggregate filesize' is {aggregate}, tasks x segments x blocksize is {total} bytes")
    return {
        "ranks": tasks,
        "segments": segments,
        "transfer_bytes": transfer,
        "block_bytes": block,
        "total_bytes": total,
    }


def _is_rounded(shown: str, value: float) -> bool:
    """Return whether a printed number is the value within half a unit of its last digit."""
    decimals = len(shown.partition(".")[2])
    return abs(float(shown) - value) <= 0.5005 * 10.0**-decimals


def _size(test: IorTest, command: IorCommand, option: str, exact_name: str, letter: str) -> int:
    """Return the bytes of a size that the options print rounded ("3.81 MiB"), from the first exact source."""
    printed = _text(test, option)
    size = test.exact.get(exact_name)
    if size is None:
        size = parse_ior_size(command.value(letter)) or parse_printed_size(printed)
    if not size or format_ior_size(size, not test.old) != printed:
        raise FieldError(f"option '{option}' is '{printed}', elsewhere it is {size or 'not printed'}")
    return size


def _nodes(test: IorTest, command: IorCommand, version: str | None) -> int:
    """Return the number of nodes, which agrees with tasks and clients per node."""
    tasks, per_node = _count(test, "tasks"), _count(test, "clients per node")
    if "nodes" not in test.options and (version or "").startswith(_WITHOUT_NODES):
        nodes = math.ceil(tasks / per_node)
    else:
        nodes = _count(test, "nodes")
    # The last node may have fewer ranks than the others; with -N many ranks may do nothing.
    slots = nodes * per_node
    is_filled = "N" in command.line.names or slots / 2 < tasks < slots * 2
    if slots > MAX_RANKS or not is_filled:
        raise FieldError(f"{tasks} tasks do not fit {nodes} nodes with {per_node} clients per node")
    return nodes


def _access_parameters(test: IorTest, command: IorCommand) -> CaseParameters:
    """Return the parameters that are words or flags."""
    access, order = _text(test, "access"), _text(test, "ordering in a file")
    if access not in _FILES:
        raise FieldError(f"option 'access' is '{access}'")
    if order not in _ORDER:
        raise FieldError(f"option 'ordering in a file' is '{order}'")
    return {
        "file": _FILES[access],
        "collective": _collective(test, command),
        "pattern": _ORDER[order],
        "reorder": _reorder(test, command),
        "sync": _sync_policy(test, command),
        "cache": "direct" if command.is_set("B", "posix.odirect", "useO_DIRECT") else None,
        "stonewall_s": _stonewall_s(test, command),
        "fill": False if command.is_set("hdf5.noFill") else None,
        "collective_metadata": command.is_set("hdf5.collectiveMetadata") or None,
        # Reads compare within the timed operation.
        "verify": command.is_set("W", "R", "checkWrite", "checkRead") or None,
        "mode": command.ways,
    }


def _reorder(test: IorTest, command: IorCommand) -> str:
    text = test.options.get("ordering inter file")
    # IOR prints nothing if the flag is given twice.
    if text is None and command.line.count("C") > 1:
        return "constant"
    if text is None and command.line.count("Z") > 1:
        return "random"
    if text not in _REORDER:
        raise FieldError(f"option 'ordering inter file' is {text or 'missing'}")
    return _REORDER[text]


def _collective(test: IorTest, command: IorCommand) -> bool:
    """Return whether transfers were collective, which is what was requested."""
    requested = command.is_set("c", "collective")
    transfer_type = test.options.get("type")
    # 3.0 and 3.1 omit some options.
    if transfer_type is None and test.old and not command.is_scripted:
        return requested
    collective = _TYPES.get(transfer_type or "")
    if collective is None:
        raise FieldError(f"option 'type' is {transfer_type or 'missing'}")
    if collective != requested and not command.is_scripted:
        raise FieldError(f"option 'type' is '{transfer_type}', and the command line says otherwise (-c)")
    return collective


def _stonewall_s(test: IorTest, command: IorCommand) -> int | None:
    printed = _count(test, "stonewallingTime") if "stonewallingTime" in test.options else None
    requested = parse_count(command.value("D"))
    if printed != requested and not command.is_scripted:
        raise FieldError(f"option 'stonewallingTime' is {printed or 'missing'}, the command line says {requested} (-D)")
    return printed


def _sync_policy(test: IorTest, command: IorCommand) -> Scalar | None:
    """Return whether fsync was requested, and after each write; None if a script may have requested it."""
    if command.is_set("Y"):
        return "each"
    is_requested = command.is_set("e", "fsync")
    did_sync = test.exact.get("fsync")
    if is_requested and did_sync == 0:
        return False  # the interface has no fsync: IOR resets the option
    if command.is_scripted and not is_requested:
        return None if did_sync is None else did_sync > 0
    return is_requested


def _check_command_line(test: IorTest, command: IorCommand) -> None:
    """Check that the options are those of the command line, or IOR's defaults."""
    transfer, block = parse_ior_size(command.value("t") or "262144"), parse_ior_size(command.value("b") or "1048576")
    segments = command.value("s") or "1"
    printed_and_given = {
        "repetitions": (test.options.get("repetitions"), command.value("i") or "1"),
        "xfersize": (test.options.get("xfersize"), format_ior_size(transfer or 0, not test.old)),
        "blocksize": (test.options.get("blocksize"), format_ior_size(block or 0, not test.old)),
        "access": (test.options.get("access") == "file-per-process", command.is_set("F")),
        "test filename": (test.options.get("test filename"), command.value("o") or "testFile"),
        "segments": (test.options.get("segments", segments), segments),
        "ordering in a file": (test.options.get("ordering in a file") == "random", command.is_set("z")),
        "ordering inter file": (
            test.options.get("ordering inter file") == "no tasks offsets",
            not command.is_set("C", "Z"),
        ),
    }
    for name, (printed, given) in printed_and_given.items():
        if printed != given:
            raise FieldError(f"option '{name}' is '{test.options.get(name)}', the command line says otherwise")


def _command_line_sizes(command: IorCommand) -> CaseParameters:
    """Return parameters that are only in the command line."""
    parameters: dict[str, Scalar] = {}
    for name, (forms, largest) in _COMMAND_LINE_SIZES.items():
        text = command.value(*forms)
        if text is None:
            continue
        number = -1 if text == "-1" else parse_printed_size(text)
        if number is None or number > largest:
            raise FieldError(f"option '{forms[0]}' of the command line is '{text}'")
        parameters[name] = number
    return parameters
