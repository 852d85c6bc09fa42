"""The case of one IOR test, from options that must agree with each other and with what was printed exactly."""

from __future__ import annotations

import math
import re

from iowatch.errors import InputError
from iowatch.model import Scalar
from iowatch.parsers.draft import LARGEST_ALIGNMENT, MOST_RANKS
from iowatch.parsers.ior_run import ROW_BLOCK, ROW_TRANSFER, WAYS, CommandLine, Test, half_unit
from iowatch.units import GIB, KIB, MIB, TIB, parse_size

_APIS = {"NCMPI": "PNETCDF", "DUMMY": "NULL"}
# Other names are believed where the command line says the same.
_KNOWN_APIS = frozenset(("POSIX", "MPIIO", "HDF5", "NCMPI", "DUMMY", "MMAP", "AIO", "DFS", "RADOS", "CEPHFS"))
_FILES = {"single-shared-file": "shared", "file-per-process": "per-process"}
_REORDER = {"no tasks offsets": "none", "constant task offset": "constant", "random task offset": "random"}
_ORDER = {"sequential": None, "random": "random"}
_TYPES = {"independent": False, "collective": True}
# exact parameter -> the option that says the same
_SAME = {"tasks": "tasks", "segments": "segments", "repetitions": "repetitions", "per_node": "clients per node"}
_LARGEST_BYTES = 1 << 60
_WHOLE = re.compile(r"[1-9]\d{0,11}")

# parameter -> where a command line asks for it (option spelt out, letter, directive), and what nobody asks for
_ASKED = {
    "stripe_count": ("posix.lustre.stripecount", "", "lustreStripeCount", 1 << 20),
    "stripe_bytes": ("posix.lustre.stripesize", "", "lustreStripeSize", LARGEST_ALIGNMENT),
    "alignment_bytes": ("hdf5.setAlignment", "J", "setAlignment", LARGEST_ALIGNMENT),
}

Case = dict[str, Scalar | None]


def human(size_bytes: int) -> str:
    """A size as IOR prints it (`HumanReadable` in `utilities.c`)."""
    for name, unit in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB)):
        if size_bytes >= unit:
            whole = size_bytes % unit == 0
            return f"{size_bytes // unit} {name}" if whole else f"{size_bytes / unit:.2f} {name}"
    return f"{size_bytes} bytes"


def whole(text: str | None) -> int | None:
    """A positive whole number, or None."""
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None


def case_of(test: Test, command: CommandLine) -> Case | None:
    """The parameters of a test; None where one is missing or two contradict each other."""
    options = test.options
    if test.contradictions or command.damaged or not _exact_agree(test):
        return None
    tasks, per_node = whole(options.get("tasks")), whole(options.get("clients per node"))
    segments = whole(options.get("segments"))
    if test.old:
        segments = test.exact.get("segments") or whole(command.letters.get("s", "1"))
    transfer = _size(options.get("xfersize"), test.exact.get("transfer"), command.letters.get("t"))
    block = _size(options.get("blocksize"), test.exact.get("block"), command.letters.get("b"))
    if not (tasks and per_node and segments and transfer and block) or block % transfer:
        return None
    if not _rows_repeat(options, ROW_BLOCK, block) or not _rows_repeat(options, ROW_TRANSFER, transfer):
        return None
    total = tasks * segments * block
    nodes = math.ceil(tasks / per_node) if test.without_nodes else whole(options.get("nodes"))
    words = _words(test, command)
    if words is None or nodes is None or human(total) != options.get("aggregate filesize"):
        return None
    if nodes * per_node > MOST_RANKS:
        return None
    if "N" not in command.letters and not nodes * per_node / 2 < tasks < nodes * per_node * 2:
        return None
    numbers: Case = {"ranks": tasks, "nodes": nodes, "segments": segments, "transfer_bytes": transfer}
    return {**words, **numbers, "block_bytes": block, "total_bytes": total}


def _rows_repeat(options: dict[str, str], name: str, size: int) -> bool:
    """Whether the rows of the table, where there are any, show the same size."""
    shown = options.get(name)
    return shown is None or abs(float(shown) - size / KIB) <= half_unit(shown) * 1.001


def _exact_agree(test: Test) -> bool:
    """What was printed exactly must be what the options say."""
    if test.exact.get("fsync", 0) not in (0, 1):
        return False
    return all(
        whole(test.options[option]) == test.exact[name]
        for name, option in _SAME.items()
        if name in test.exact and option in test.options
    )


def _size(printed: str | None, exact: int | None, asked: str | None) -> int | None:
    """Bytes of a size that was printed with losses ("3.81 MiB"), from the first exact source; None: unknown."""
    sources = [exact] if exact is not None else [_parsed(asked), _parsed(printed)]
    size = next((s for s in sources if s), None)
    return size if size is not None and human(size) == printed else None


def _parsed(text: str | None) -> int | None:
    try:
        size = parse_size((text or "").removesuffix(" bytes"))
    except InputError:
        return None
    return size if size < _LARGEST_BYTES else None


def _words(test: Test, command: CommandLine) -> Case | None:
    options = test.options
    api = (options.get("api") or "").partition(" ")[0].upper()
    kind = options.get("type")
    if test.old and kind is None and not command.scripted:
        kind = "collective" if "c" in command.letters else "independent"
    collective = _TYPES.get(kind) if kind is not None else None
    known = api in _KNOWN_APIS or (api != "" and api == command.letters.get("a", "").upper())
    tables = ((_FILES, "access"), (_REORDER, "ordering inter file"), (_ORDER, "ordering in a file"))
    stonewall = whole(options.get("stonewallingTime"))
    asked = command.scripted or (stonewall or 0) == (whole(command.letters.get("D", "")) or 0)
    if not asked or ("stonewallingTime" in options and stonewall is None):
        return None
    if not command.scripted and not _as_asked(options, command, api):
        return None
    numbers = _numbers(command)
    if numbers is None or not command.knows_words(api):
        return None
    if not known or collective is None or any(options.get(name) not in table for table, name in tables):
        return None
    if not command.scripted and collective != _collective_asked(command):
        return None
    return {
        "api": _APIS.get(api, api),
        "file": _FILES[options["access"]],
        "collective": collective,
        "pattern": _ORDER[options["ordering in a file"]],
        "reorder": _REORDER[options["ordering inter file"]],
        "sync": _sync(test, command),
        "cache": "direct" if _direct(command) else None,
        "stonewall_s": stonewall,
        "fill": False if "hdf5.noFill" in command.words else None,
        "collective_metadata": "hdf5.collectiveMetadata" in command.words or None,
        "verify": _verified(command) or None,
        "mode": ",".join(sorted(WAYS & command.words.keys())) or None,
        **numbers,
    }


def _as_asked(options: dict[str, str], command: CommandLine, api: str) -> bool:
    """Whether the options are what the command line asked for, or IOR's defaults."""
    if not command.plain:
        return True
    asked = command.letters
    transfer, block = _parsed(asked.get("t", "262144")), _parsed(asked.get("b", "1048576"))
    pairs = (
        (api, asked.get("a", "POSIX").upper()),
        (options.get("repetitions"), asked.get("i", "1")),
        (options.get("xfersize"), human(transfer) if transfer else None),
        (options.get("blocksize"), human(block) if block else None),
        (options.get("access") == "file-per-process", "F" in asked),
        (options.get("test filename"), asked.get("o", "testFile")),
        (options.get("segments", asked.get("s", "1")), asked.get("s", "1")),
        (options.get("ordering in a file") == "random", "z" in asked),
        (options.get("ordering inter file") == "no tasks offsets", not {"C", "Z"} & asked.keys()),
    )
    return all(printed == wanted for printed, wanted in pairs)


def _collective_asked(command: CommandLine) -> bool:
    return "c" in command.letters or "collective" in command.words or command.directive("collective") == "1"


def _sync(test: Test, command: CommandLine) -> Scalar | None:
    """Whether fsync was asked for, and after each write; None where a script may have said so."""
    if "Y" in command.letters:
        return "each"
    asked = "e" in command.letters or command.directive("fsync") == "1"
    if command.scripted and not asked:
        return {0: False, 1: True}.get(test.exact.get("fsync", -1))
    return asked


def _numbers(command: CommandLine) -> Case | None:
    """Parameters that only the command line names; None where one cannot be."""
    numbers: Case = {}
    for name, (word, letter, directive, largest) in _ASKED.items():
        places = (command.words.get(word), command.letters.get(letter), command.directive(directive))
        text = next((place for place in places if place is not None), None)
        if text is None:
            continue
        numbers[name] = number = -1 if text == "-1" else _parsed(text)
        if number is None or number > largest:
            return None
    return numbers


def _verified(command: CommandLine) -> bool:
    """Whether data were compared; reads do that while they are timed."""
    return bool({"W", "R"} & command.letters.keys()) or any(
        "1" in (command.directive(name), command.words.get(name)) for name in ("checkWrite", "checkRead")
    )


def _direct(command: CommandLine) -> bool:
    return "B" in command.letters or "posix.odirect" in command.words or command.directive("useO_DIRECT") == "1"
