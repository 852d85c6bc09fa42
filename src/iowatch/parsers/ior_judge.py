"""Whether the parts of an IOR output agree with each other, and what is passed on of it.

Every number is printed at least twice in other words (rate x time = bytes; the summary is the maximum, minimum
and mean of the rows), and is believed where they agree.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

from iowatch.parsers.draft import MOST_ROWS, Draft, Evidence
from iowatch.parsers.ior_case import Case, case_of, whole
from iowatch.parsers.ior_run import OPERATIONS, CommandLine, Row, Run, Test
from iowatch.units import MIB

# Binary floating point, and C's rounding of halves.
_SLACK = 1e-9


def judge(draft: Draft, run: Run, evidence: Evidence) -> None:
    """Judge everything that was read, and keep what is believed."""
    draft.version = run.version
    draft.facts.update(run.facts)
    if run.warnings:
        draft.facts["warnings"] = run.warnings
    if run.titles > 1:
        draft.fail("more than one IOR wrote into this output")
        return
    if run.titles == 0:
        draft.cut("the beginning of an output of IOR is missing")
    if run.ends == 0:
        draft.cut("the output ends before 'Finished'")
    if run.unreal:
        draft.fail(f"{run.unreal} rows with numbers that cannot be (inf, nan, negative)")
    if run.nobodys.count or run.nobodys.options:
        draft.cut("the beginning of a test is missing")
    if run.damaged:
        draft.cut(f"{run.damaged} damaged or doubled rows")
    if run.short_file:
        draft.fail(run.short_file)
    if not run.tests or run.command is None:
        draft.cut("no test was printed" if run.command else "the command line is missing")
        return
    if list(run.tests) != list(range(len(run.tests))):
        draft.cut("a test is missing")
    for number, test in run.tests.items():
        where = f"test {number}: " if len(run.tests) > 1 else ""
        _judge_test(draft, run, run.command, test, where, evidence)


def _judge_test(
    draft: Draft, run: Run, command: CommandLine, test: Test, where: str, evidence: Evidence
) -> None:
    case = case_of(test, command)
    repetitions = whole(test.options.get("repetitions"))
    if case is None or repetitions is None:
        draft.cut(f"{where}the options are not printed whole, or contradict each other")
        return
    if not _was_performed(draft, test, where) or not _ranks_fit(draft, test, case, command, evidence):
        return
    if test.count >= MOST_ROWS:
        draft.fail(f"{where}more than {MOST_ROWS} rows")
    expected = {name for name, rows in test.rows.items() if rows} | command.operations() | set(test.summaries)
    for operation in OPERATIONS:
        if operation in expected:
            rows = _believed(draft, test, operation, case, repetitions, where)
            if run.summarised:
                rows = _like_summary(draft, test, operation, rows, repetitions, where)
            _keep(draft, operation, rows, case)


def _was_performed(draft: Draft, test: Test, where: str) -> bool:
    if test.options.get("dryRun", "0") != "0":
        draft.fail(f"{where}dry run: no I/O was done")
    elif test.options.get("api") == "DUMMY":
        draft.fail(f"{where}the DUMMY interface does no I/O")
    else:
        return True
    return False


def _ranks_fit(draft: Draft, test: Test, case: Case, command: CommandLine, evidence: Evidence) -> bool:
    """`-N` makes IOR use fewer ranks than were started; otherwise both must be the same."""
    others = evidence.other_ranks(case["ranks"], "IOR")
    started = int(test.options["clients per node"]) * int(case["nodes"] or 1)
    if others is None or ("N" in command.letters and started == evidence.ranks):
        return True
    draft.fail(others)
    return False


def _believed(draft: Draft, test: Test, operation: str, case: Case, repetitions: int, where: str) -> list[Row]:
    """The rows of one operation in the order of repetitions."""
    rows = test.rows[operation]
    keys = sorted(rows)
    if keys and keys[-1] >= repetitions:
        draft.cut(f"{where}more {operation} rows than repetitions")
        return []
    total, transfer = int(case["total_bytes"] or 0), int(case["transfer_bytes"] or 1)
    moved = [test.moved.get((operation, key), total) for key in keys] if test.moved else repeat(total)
    good = [
        rows[key]
        for key, size in zip(keys, moved, strict=False)
        if _row_agrees(rows[key], size, transfer, test.half)
    ]
    if len(good) < len(keys):
        draft.cut(f"{where}{len(keys) - len(good)} {operation} rows contradict themselves")
    if len(keys) < repetitions:
        draft.cut(f"{where}{len(keys)} of {repetitions} {operation} repetitions were printed whole")
    return good


def _row_agrees(row: Row, moved: int, transfer: int, half: Callable[[float], float]) -> bool:
    """Bandwidth x time and rate x transfer time x transfer size are both the bytes that were moved.

    The transfers alone take no longer than the whole.
    """
    bandwidth, rate, open_s, transfer_s, close_s, time_s = row
    longest = max(open_s, transfer_s, close_s)
    if longest > time_s and longest - half(longest) > time_s + half(time_s):
        return False
    if not _product_fits(bandwidth, time_s, moved / MIB, half):
        return False
    if rate is None:
        return True
    highest = rate * transfer / MIB
    if bandwidth > highest and bandwidth - half(bandwidth) > highest + half(rate) * transfer / MIB:
        return False
    return _product_fits(rate, transfer_s, moved / transfer, half)


def _product_fits(a: float, b: float, product: float, half: Callable[[float], float]) -> bool:
    """Whether a x b can be the product, given that both are rounded."""
    half_a, half_b, slack = half(a), half(b), _SLACK * product
    return (a - half_a) * (b - half_b) - slack <= product <= (a + half_a) * (b + half_b) + slack


def _like_summary(
    draft: Draft, test: Test, operation: str, rows: list[Row], repetitions: int, where: str
) -> list[Row]:
    """The rows, where the summary agrees with them; none where it does not."""
    summary = test.summaries.get(operation)
    if summary is None:
        draft.cut(f"{where}the summary of {operation} is missing or damaged")
        return rows
    values = [row.bandwidth for row in rows]
    high, low = max(values, default=0.0), min(values, default=summary.min)
    slack = summary.half + test.half(high) + _SLACK * summary.max
    fits = summary.min - slack <= low and high <= summary.max + slack
    if fits and len(values) == repetitions:
        found = (high, low, sum(values) / repetitions)
        fits = all(abs(f - s) <= slack for f, s in zip(found, summary[:3], strict=True))
    if not fits:
        draft.cut(f"{where}the {operation} rows do not agree with their summary")
        return []
    return rows


def _keep(draft: Draft, operation: str, rows: list[Row], case: Case) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * len(Row._fields)
    for metric, values in zip(Row._fields, columns, strict=True):
        if None not in values:
            draft.keep(operation, metric, values, case)
