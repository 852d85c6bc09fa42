"""Validation of an IOR output: its case, and the rows that agree with all other printed values.

IOR prints every number at least twice in different forms (rate x time = bytes; the summary contains maximum, minimum
and mean of the rows). A number is accepted only if all of them agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from iowatch.benchmarks.hints import parameter_of_info
from iowatch.benchmarks.ior_output import OPERATIONS, ROW_SIZES, WAYS, IorCommandLine, IorRow, IorRun, IorTest
from iowatch.benchmarks.parsing import (
    CONFIRMED,
    MAX_ALIGNMENT,
    MAX_RANKS,
    MAX_ROWS,
    CaseParameters,
    OutputBuilder,
    RunContext,
    parse_count,
    parse_printed_size,
)
from iowatch.core import GIB, KIB, MIB, TIB, Scalar

_APIS = {"NCMPI": "PNETCDF", "DUMMY": "NULL"}
# Other names are accepted if the command line has the same name.
_KNOWN_APIS = frozenset(("POSIX", "MPIIO", "HDF5", "NCMPI", "DUMMY", "MMAP", "AIO", "DFS", "RADOS", "CEPHFS"))
_FILES = {"single-shared-file": "shared", "file-per-process": "per-process"}
_REORDER = {"no tasks offsets": "none", "constant task offset": "constant", "random task offset": "random"}
_ORDER = {"sequential": None, "random": "random"}
_TYPES = {"independent": False, "collective": True}
# exact parameter -> the equivalent option
_SAME = {"tasks": "tasks", "segments": "segments", "repetitions": "repetitions", "per_node": "clients per node"}


@dataclass(frozen=True, slots=True)
class _CommandLineForm:
    """How a parameter is written on a command line, and the largest plausible value."""

    word: str
    letter: str
    directive: str
    largest: int


_COMMAND_LINE_FORMS = {
    "stripe_count": _CommandLineForm("posix.lustre.stripecount", "", "lustreStripeCount", 1 << 20),
    "stripe_bytes": _CommandLineForm("posix.lustre.stripesize", "", "lustreStripeSize", MAX_ALIGNMENT),
    "alignment_bytes": _CommandLineForm("hdf5.setAlignment", "J", "setAlignment", MAX_ALIGNMENT),
}


_OUTPUT_DIRECTIVES = {"", "summaryFile", "summaryFormat", "saveRankPerformanceDetailsCSV", "savePerOpDataCSV"}


def format_ior_size(size_bytes: int) -> str:
    """Format a size as IOR prints it (`HumanReadable` in `utilities.c`)."""
    for name, unit in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB)):
        if size_bytes >= unit:
            whole = size_bytes % unit == 0
            return f"{size_bytes // unit} {name}" if whole else f"{size_bytes / unit:.2f} {name}"
    return f"{size_bytes} bytes"


def ior_case(test: IorTest, command: IorCommandLine) -> CaseParameters | None:
    """Return the parameters of a test; None if one is missing or two contradict each other."""
    options = test.options
    if test.contradictions or command.damaged or not _exact_values_match(test):
        return None
    tasks, per_node = parse_count(options.get("tasks")), parse_count(options.get("clients per node"))
    segments = parse_count(options.get("segments"))
    if test.old:
        segments = test.exact.get("segments") or parse_count(command.letters.get("s", "1"))
    # Sizes are printed rounded ("3.81 MiB"); the exact ones are elsewhere.
    transfer = _exact_size_bytes(options.get("xfersize"), test.exact.get("transfer"), command.letters.get("t"))
    block = _exact_size_bytes(options.get("blocksize"), test.exact.get("block"), command.letters.get("b"))
    if not (tasks and per_node and segments and transfer and block) or block % transfer:
        return None
    for column, size in zip(ROW_SIZES, (block, transfer), strict=True):
        if not _rows_match_size(options.get(column), size):
            return None
    total = tasks * segments * block
    if format_ior_size(total) != options.get("aggregate filesize"):
        return None
    nodes = math.ceil(tasks / per_node) if test.without_nodes else parse_count(options.get("nodes"))
    words = _command_parameters(test, command)
    if words is None or nodes is None:
        return None
    # The last node may have fewer ranks than the others; with -N many ranks may do nothing.
    slots = nodes * per_node
    if slots > MAX_RANKS:
        return None
    if "N" not in command.letters and not slots / 2 < tasks < slots * 2:
        return None
    numbers: CaseParameters = {"ranks": tasks, "nodes": nodes, "segments": segments, "transfer_bytes": transfer}
    return {**words, **numbers, "block_bytes": block, "total_bytes": total}


def _rows_match_size(shown: str | None, size: int) -> bool:
    """Return whether the size in the rows, if printed, is the same within half a unit of the last digit."""
    return shown is None or abs(float(shown) - size / KIB) <= 0.5005 * 10.0 ** -len(shown.partition(".")[2])


def _exact_values_match(test: IorTest) -> bool:
    """Return whether exactly printed values equal the options."""
    for name, option in _SAME.items():
        if name not in test.exact or option not in test.options:
            continue
        if parse_count(test.options[option]) != test.exact[name]:
            return False
    return test.exact.get("fsync", 0) in (0, 1)


def _exact_size_bytes(printed: str | None, exact: int | None, asked: str | None) -> int | None:
    """Return the bytes of a rounded size ("3.81 MiB") from the first exact source; None if unknown."""
    size = exact
    if exact is None:
        size = parse_printed_size(asked) or parse_printed_size(printed)
    if not size or format_ior_size(size) != printed:
        return None
    return size


def _command_parameters(test: IorTest, command: IorCommandLine) -> CaseParameters | None:
    """Return the parameters that are words or flags; None if one is unknown or contradicts the command line."""
    options = test.options
    api = (options.get("api") or "").partition(" ")[0].upper()
    is_known_api = api in _KNOWN_APIS or (api != "" and api == command.letters.get("a", "").upper())
    if not is_known_api or not command.knows_words(api) or not _matches_command_line(options, command, api):
        return None
    for table, name in ((_FILES, "access"), (_REORDER, "ordering inter file"), (_ORDER, "ordering in a file")):
        if options.get(name) not in table:
            return None
    collective, numbers = _collective(test, command), _numeric_options(command)
    if collective is None or numbers is None:
        return None
    stonewall_s = parse_count(options.get("stonewallingTime"))
    if "stonewallingTime" in options and stonewall_s is None:
        return None
    if not command.scripted and (stonewall_s or 0) != (parse_count(command.letters.get("D", "")) or 0):
        return None
    return {
        "api": _APIS.get(api, api),
        "file": _FILES[options["access"]],
        "collective": collective,
        "pattern": _ORDER[options["ordering in a file"]],
        "reorder": _REORDER[options["ordering inter file"]],
        "sync": _sync_policy(test, command),
        "cache": "direct" if _is_direct(command) else None,
        "stonewall_s": stonewall_s,
        "fill": False if "hdf5.noFill" in command.words else None,
        "collective_metadata": "hdf5.collectiveMetadata" in command.words or None,
        "verify": _is_verified(command) or None,
        "mode": ",".join(sorted(WAYS & command.words.keys())) or None,
        **numbers,
    }


def _collective(test: IorTest, command: IorCommandLine) -> bool | None:
    """Return whether transfers were collective; None if that is not printed, or is not what was requested."""
    requested = "c" in command.letters or "collective" in command.words or command.directives.get("collective") == "1"
    transfer_type = test.options.get("type")
    # 3.0 and 3.1 omit some options.
    if transfer_type is None and test.old and not command.scripted:
        transfer_type = "collective" if "c" in command.letters else "independent"
    collective = _TYPES.get(transfer_type or "")
    if not command.scripted and collective != requested:
        return None
    return collective


def _is_direct(command: IorCommandLine) -> bool:
    """Return whether files were opened with O_DIRECT."""
    if "B" in command.letters or "posix.odirect" in command.words:
        return True
    return command.directives.get("useO_DIRECT") == "1"


def _is_verified(command: IorCommandLine) -> bool:
    """Return whether data were compared; reads do this within the timed operation."""
    if {"W", "R"} & command.letters.keys():
        return True
    for settings in (command.directives, command.words):
        if "1" in (settings.get("checkWrite"), settings.get("checkRead")):
            return True
    return False


def _matches_command_line(options: dict[str, str], command: IorCommandLine, api: str) -> bool:
    """Return whether the options are those of the command line, or IOR's defaults."""
    if command.scripted or not command.directives.keys() <= _OUTPUT_DIRECTIVES:
        return True
    given = command.letters
    transfer, block = parse_printed_size(given.get("t", "262144")), parse_printed_size(given.get("b", "1048576"))
    pairs = (
        (api, given.get("a", "POSIX").upper()),
        (options.get("repetitions"), given.get("i", "1")),
        (options.get("xfersize"), format_ior_size(transfer) if transfer else None),
        (options.get("blocksize"), format_ior_size(block) if block else None),
        (options.get("access") == "file-per-process", "F" in given),
        (options.get("test filename"), given.get("o", "testFile")),
        (options.get("segments", given.get("s", "1")), given.get("s", "1")),
        (options.get("ordering in a file") == "random", "z" in given),
        (options.get("ordering inter file") == "no tasks offsets", not {"C", "Z"} & given.keys()),
    )
    return all(printed == given_value for printed, given_value in pairs)


def _sync_policy(test: IorTest, command: IorCommandLine) -> Scalar | None:
    """Return whether fsync was requested, and after each write; None if a script may have requested it."""
    if "Y" in command.letters:
        return "each"
    is_requested = "e" in command.letters or command.directives.get("fsync") == "1"
    if is_requested and test.exact.get("fsync") == 0:
        return False  # the interface has no fsync: IOR resets the option
    if command.scripted and not is_requested:
        return {0: False, 1: True}.get(test.exact.get("fsync", -1))
    return is_requested


def _numeric_options(command: IorCommandLine) -> CaseParameters | None:
    """Return parameters that are only in the command line; None if one is invalid."""
    numbers: dict[str, Scalar | None] = {}
    for name, form in _COMMAND_LINE_FORMS.items():
        forms = (command.words.get(form.word), command.letters.get(form.letter), command.directives.get(form.directive))
        text = next((given for given in forms if given is not None), None)
        if text is None:
            continue
        number = -1 if text == "-1" else parse_printed_size(text)
        if number is None or number > form.largest:
            return None
        numbers[name] = number
    return numbers


# For binary floating point, and C's rounding of halves.
_SLACK = 1e-9


def check_ior_run(builder: OutputBuilder, run: IorRun, context: RunContext) -> None:
    """Check all parsed data, and add the consistent ones to the builder."""
    builder.version = run.version
    builder.facts.update(run.facts)
    if run.warnings:
        builder.facts["warnings"] = run.warnings
    if run.titles > 1:
        builder.add_failure("output of more than one IOR run")
        return
    if run.titles == 0:
        builder.add_truncation("the beginning of an output of IOR is missing")
    if run.ends == 0:
        builder.add_truncation("the output ends before 'Finished'")
    if run.unreal:
        builder.add_failure(f"{run.unreal} rows with invalid numbers (inf, nan, negative)")
    if run.unassigned.count or run.unassigned.options:
        builder.add_truncation("the beginning of a test is missing")
    if run.damaged:
        builder.add_truncation(f"{run.damaged} damaged or duplicate rows")
    if run.short_file:
        builder.add_failure(run.short_file)
    if not run.tests or run.command is None:
        builder.add_truncation("no test was printed" if run.command else "the command line is missing")
        return
    if list(run.tests) != list(range(len(run.tests))):
        builder.add_truncation("a test is missing")
    for number, test in run.tests.items():
        where = f"test {number}: " if len(run.tests) > 1 else ""
        _check_test(builder, run, run.command, test, where, context)


def _hint_parameter(run: IorRun, command: IorCommandLine) -> CaseParameters:
    """Return the hints that were passed and, where MPI returned others, had effect; `unknown` if none was printed."""
    if "passed" not in run.hints:
        has_file = any(name.endswith(".hintsFileName") for name in command.words) or "U" in command.letters
        return {"hints": "unknown"} if has_file else {}
    passed, returned = run.hints["passed"], run.hints.get("returned")
    if returned is None:
        return {"hints": parameter_of_info(passed)}
    in_force = {key: value for key, value in passed.items() if returned.get(key) == value}
    return {"hints": parameter_of_info(in_force)}


def _check_test(
    builder: OutputBuilder, run: IorRun, command: IorCommandLine, test: IorTest, where: str, context: RunContext
) -> None:
    """Check one test of a run, and add those of its rows that agree with its case and summary.

    Nothing is added without a complete case, from a dry run, from an interface without I/O, or with other ranks than
    were started.

    Args:
        command: the command line of the run.
        where: beginning of reasons, where an output has several tests.
        context: what is known about the start of the program.
    """
    case = ior_case(test, command)
    repetitions = parse_count(test.options.get("repetitions"))
    if case is None or repetitions is None:
        builder.add_truncation(f"{where}the options are incomplete or inconsistent")
        return
    case = {**case, **_hint_parameter(run, command)}
    if test.options.get("dryRun", "0") != "0":
        builder.add_failure(f"{where}dry run: no I/O was done")
        return
    if test.options.get("api") == "DUMMY":
        builder.add_failure(f"{where}the DUMMY interface does no I/O")
        return
    if any("fsync() not supported" in line for line in run.warnings):
        case = {**case, "sync": False}
    # With `-N` IOR may use fewer ranks than were started; otherwise both must be equal.
    mismatch = context.rank_mismatch_reason(case["ranks"], "IOR")
    started = int(test.options["clients per node"]) * int(case["nodes"] or 1)
    if mismatch is not None and not ("N" in command.letters and started == context.ranks):
        builder.add_failure(mismatch)
        return
    if test.count >= MAX_ROWS:
        builder.add_failure(f"{where}more than {MAX_ROWS} rows")
    # Expected is what was printed, and what the command line asks for.
    printed = {operation for operation, rows in test.rows.items() if rows}
    expected = printed | command.operations() | set(test.summaries)
    test_of_run = _CheckedTest(builder, test, case, repetitions, where)
    for operation in OPERATIONS:
        if operation not in expected:
            continue
        rows = test_of_run.rows_matching_summary(operation, test_of_run.consistent_rows(operation))
        columns = list(zip(*rows, strict=True)) or [()] * len(IorRow._fields)
        confirmed = context.fresh or has_confirmed_rates(rows, test.half_unit)
        for metric, values in zip(IorRow._fields, columns, strict=True):
            # A rate that the rounded times do not confirm is left out, and so is one that old versions do not print.
            if metric == "rate" and not confirmed:
                builder.add_below_resolution(operation, metric)
            elif None not in values:
                builder.add_samples(operation, metric, values, case)


@dataclass(frozen=True)
class _CheckedTest:
    """A test with a complete case, whose rows are compared with each other and with their summary.

    Attributes:
        builder: receives what is wrong.
        test: what was printed.
        case: its parameters.
        repetitions: number of rows of each operation that were requested.
        where: beginning of reasons, where an output has several tests.
    """

    builder: OutputBuilder
    test: IorTest
    case: CaseParameters
    repetitions: int
    where: str

    def consistent_rows(self, operation: str) -> list[IorRow]:
        """Return the rows of one operation that agree with the sizes, in the order of repetitions."""
        rows, where = self.test.rows[operation], self.where
        iterations = sorted(rows)
        if iterations and iterations[-1] >= self.repetitions:
            self.builder.add_truncation(f"{where}more {operation} rows than repetitions")
            return []
        total, transfer = int(self.case["total_bytes"] or 0), int(self.case["transfer_bytes"] or 1)
        consistent: list[IorRow] = []
        for iteration in iterations:
            # IOR reports where it moved another number of bytes.
            moved = self.test.moved.get((operation, iteration), total)
            if _is_row_consistent(rows[iteration], moved, transfer, self.test.half_unit):
                consistent.append(rows[iteration])
        if len(consistent) < len(iterations):
            self.builder.add_truncation(f"{where}{len(iterations) - len(consistent)} {operation} rows are inconsistent")
        if len(iterations) < self.repetitions:
            self.builder.add_truncation(
                f"{where}{len(iterations)} of {self.repetitions} {operation} repetitions are complete"
            )
        return consistent

    def rows_matching_summary(self, operation: str, rows: list[IorRow]) -> list[IorRow]:
        """Return the rows of an operation if they agree with its summary; a disagreement is a truncation.

        Without a summary nothing contradicts the rows: they are returned, and the missing summary is a truncation.

        Args:
            operation: `write` or `read`.
            rows: those that agree with the sizes; fewer than the repetitions if some are missing or damaged.
        """
        summary = self.test.summaries.get(operation)
        if summary is None:
            self.builder.add_truncation(f"{self.where}the summary of {operation} is missing or damaged")
            return rows
        bandwidths = [row.bandwidth for row in rows]
        # Without rows nothing contradicts the summary: these two are within any limits.
        highest, lowest = max(bandwidths, default=0.0), min(bandwidths, default=summary.min)
        # Summary and rows are rounded when they are printed, each by at most half a unit of its last digit.
        tolerance = summary.half_unit + self.test.half_unit(highest) + _SLACK * summary.max
        agrees = summary.min - tolerance <= lowest and highest <= summary.max + tolerance
        # With all rows the summary is theirs; without some of them it only limits the others.
        if agrees and len(bandwidths) == self.repetitions:
            mean = sum(bandwidths) / self.repetitions
            differences = (highest - summary.max, lowest - summary.min, mean - summary.mean)
            agrees = all(abs(difference) <= tolerance for difference in differences)
        if not agrees:
            self.builder.add_truncation(f"{self.where}the {operation} rows do not agree with their summary")
            return []
        return rows


def _is_row_consistent(row: IorRow, moved: int, transfer: int, half_unit: Callable[[float], float]) -> bool:
    """Return whether bandwidth x time and rate x transfer time x transfer size equal the bytes moved.

    The transfers alone must not take longer than the total.

    Args:
        moved: bytes that the repetition moved.
        transfer: size of a transfer in bytes.
        half_unit: half a unit of the last digit of a printed number.
    """
    bandwidth, rate, open_s, transfer_s, close_s, time_s = row
    longest = max(open_s, transfer_s, close_s)
    if longest > time_s and longest - half_unit(longest) > time_s + half_unit(time_s):
        return False
    if not _is_product_consistent(bandwidth, time_s, moved / MIB, half_unit):
        return False
    if rate is None:
        return True
    highest = rate * transfer / MIB
    if bandwidth > highest and bandwidth - half_unit(bandwidth) > highest + half_unit(rate) * transfer / MIB:
        return False
    return _is_product_consistent(rate, transfer_s, moved / transfer, half_unit)


def has_confirmed_rates(rows: Iterable[IorRow], half_unit: Callable[[float], float]) -> bool:
    """Return whether the digits of the transfer times suffice to confirm the rates (IOPS); nothing else does."""
    return all(2 * half_unit(row.transfer_time) <= CONFIRMED * row.transfer_time for row in rows)


def _is_product_consistent(a: float, b: float, product: float, half_unit: Callable[[float], float]) -> bool:
    """Return whether a x b can be the product, within the rounding of both."""
    half_a, half_b, slack = half_unit(a), half_unit(b), _SLACK * product
    return (a - half_a) * (b - half_b) - slack <= product <= (a + half_a) * (b + half_b) + slack
