"""Validation of an IOR output: the rows that agree with all other printed values.

IOR prints every number at least twice in different forms (rate x time = bytes; the summary contains maximum, minimum
and mean of the rows). A number is accepted only if all of them agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from iowatch.benchmarks.hints import parameter_of_info
from iowatch.benchmarks.ior_case import FieldError, ior_case
from iowatch.benchmarks.ior_command import OPERATIONS, IorCommand
from iowatch.benchmarks.ior_output import IorRow, IorRun, IorTest
from iowatch.benchmarks.parsing import CONFIRMED, MAX_ROWS, CaseParameters, OutputBuilder, RunContext, parse_count
from iowatch.core import MIB

WITHOUT_SUMMARY = "none: IOR was part of another program, such as IO500"

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
    if run.is_without_summary and not context.fresh:
        builder.facts["summary"] = WITHOUT_SUMMARY
    elif run.ends == 0:
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
        _check_test(builder, run, test, where, context)


def _hint_parameter(run: IorRun, command: IorCommand) -> CaseParameters:
    """Return the hints that were passed and, where MPI returned others, had effect; `unknown` if none was printed."""
    if "passed" not in run.hints:
        has_file = any(name == "U" or name.endswith(".hintsFileName") for name in command.line.names)
        return {"hints": "unknown"} if has_file else {}
    passed, returned = run.hints["passed"], run.hints.get("returned")
    if returned is None:
        return {"hints": parameter_of_info(passed)}
    in_force = {key: value for key, value in passed.items() if returned.get(key) == value}
    return {"hints": parameter_of_info(in_force)}


def _check_test(builder: OutputBuilder, run: IorRun, test: IorTest, where: str, context: RunContext) -> None:
    """Check one test of a run, and add those of its rows that agree with its case and summary.

    Nothing is added without a complete case, from a dry run, from an interface without I/O, or with other ranks than
    were started.

    Args:
        where: beginning of reasons, where an output has several tests.
        context: what is known about the start of the program.
    """
    command = run.command or IorCommand()
    repetitions = parse_count(test.options.get("repetitions"))
    try:
        case = ior_case(test, command, run.version)
        if repetitions is None:
            raise FieldError("option 'repetitions' is missing")
    except FieldError as error:
        builder.add_truncation(f"{where}{error}")
        return
    case = {**case, **_hint_parameter(run, command)}
    if test.options.get("dryRun", "0") != "0":
        builder.add_failure(f"{where}dry run: no I/O was done")
        return
    if case["api"] == "NULL":
        builder.add_failure(f"{where}the DUMMY interface does no I/O")
        return
    if any("fsync() not supported" in line for line in run.warnings):
        case = {**case, "sync": False}
    # With `-N` IOR may use fewer ranks than were started; otherwise both must be equal.
    mismatch = context.rank_mismatch_reason(case["ranks"], "IOR")
    started = int(test.options["clients per node"]) * int(case["nodes"] or 1)
    if mismatch is not None and not ("N" in command.line.names and started == context.ranks):
        builder.add_failure(mismatch)
        return
    if test.count >= MAX_ROWS:
        builder.add_failure(f"{where}more than {MAX_ROWS} rows")
    # Expected is what was printed, and what the command line asks for.
    printed = {operation for operation, rows in test.rows.items() if rows}
    expected = printed | command.operations() | set(test.summaries)
    lacks_summary = run.is_without_summary and not context.fresh
    test_of_run = _CheckedTest(builder, test, case, repetitions, where, lacks_summary)
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
        lacks_summary: whether IOR prints no summary, because it is part of another program.
    """

    builder: OutputBuilder
    test: IorTest
    case: CaseParameters
    repetitions: int
    where: str
    lacks_summary: bool

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
        if self.lacks_summary:
            return self._confirmed_rows(operation, rows)
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

    def _confirmed_rows(self, operation: str, rows: list[IorRow]) -> list[IorRow]:
        """Return the rows if bandwidth and time have enough digits to confirm each other, without a summary."""
        for row in rows:
            for number in (row.bandwidth, row.time):
                if 2 * self.test.half_unit(number) > CONFIRMED * number:
                    self.builder.add_truncation(
                        f"{self.where}nothing confirms the {operation} rows: no summary, and {number:g} has few digits"
                    )
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
