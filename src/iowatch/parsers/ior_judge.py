"""Whether the parts of an IOR output agree with each other, and what is passed on of it.

Every number is printed at least twice in other words (rate x time = bytes; the summary is the maximum, minimum
and mean of the rows), and is believed where they agree.
"""

from __future__ import annotations

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
    if run.nobodys.rows or run.nobodys.options:
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
    if len(test.rows) >= MOST_ROWS:
        draft.fail(f"{where}more than {MOST_ROWS} rows")
    expected = {name for name, _ in test.rows} | command.operations() | set(test.summaries)
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
    asked, used = evidence.ranks, case["ranks"]
    started = int(test.options["clients per node"]) * int(case["nodes"] or 1)
    if asked is None or used == asked or ("N" in command.letters and started == asked):
        return True
    draft.fail(f"{asked} ranks were asked for, IOR ran with {used}")
    return False


def _believed(
    draft: Draft, test: Test, operation: str, case: Case, repetitions: int, where: str
) -> list[tuple[Row, Row]]:
    """The rows of one operation (numbers, halves of their last digits), in the order of repetitions."""
    keys = [(operation, i) for i in range(repetitions) if (operation, i) in test.rows]
    if len(keys) < sum(1 for name, _ in test.rows if name == operation):
        draft.cut(f"{where}more {operation} rows than repetitions")
        return []
    good = [key for key in keys if _row_agrees(test, key, case)]
    if len(good) < len(keys):
        draft.cut(f"{where}{len(keys) - len(good)} {operation} rows contradict themselves")
    if len(keys) < repetitions:
        draft.cut(f"{where}{len(keys)} of {repetitions} {operation} repetitions were printed whole")
    return [(test.rows[key], test.halves[key]) for key in good]


def _row_agrees(test: Test, key: tuple[str, int], case: Case) -> bool:
    """Bandwidth x time and rate x transfer time x transfer size are both the bytes that were moved.

    The transfers alone take no longer than the whole.
    """
    row, half = test.rows[key], test.halves[key]
    moved = test.moved.get(key, int(case["total_bytes"] or 0))
    transfers = moved / int(case["transfer_bytes"] or 1)
    if not _product_fits(row.bandwidth, half.bandwidth, row.time, half.time, moved / MIB):
        return False
    parts = (row.open_time - half.open_time, row.close_time - half.close_time)
    if max(*parts, row.transfer_time - half.transfer_time) > row.time + half.time:
        return False
    if row.rate is None or half.rate is None:
        return True
    highest = (row.rate + half.rate) * int(case["transfer_bytes"] or 0) / MIB
    if row.bandwidth - half.bandwidth > highest * (1 + _SLACK):
        return False
    return _product_fits(row.rate, half.rate, row.transfer_time, half.transfer_time, transfers)


def _product_fits(a: float, half_a: float, b: float, half_b: float, product: float) -> bool:
    low = (a - half_a) * max(b - half_b, 0.0)
    high = (a + half_a) * (b + half_b)
    return low * (1 - _SLACK) <= product <= high * (1 + _SLACK)


def _like_summary(
    draft: Draft, test: Test, operation: str, rows: list[tuple[Row, Row]], repetitions: int, where: str
) -> list[tuple[Row, Row]]:
    """The rows, where the summary agrees with them; none where it does not."""
    summary = test.summaries.get(operation)
    if summary is None:
        draft.cut(f"{where}the summary of {operation} is missing or damaged")
        return rows
    slack = summary.half + max((half.bandwidth for _, half in rows), default=0.0) + _SLACK * summary.max
    values = [row.bandwidth for row, _ in rows]
    fits = all(summary.min - slack <= v <= summary.max + slack for v in values)
    if fits and len(values) == repetitions:
        found = (max(values), min(values), sum(values) / repetitions)
        fits = all(abs(f - s) <= slack for f, s in zip(found, summary[:3], strict=True))
    if not fits:
        draft.cut(f"{where}the {operation} rows do not agree with their summary")
        return []
    return rows


def _keep(draft: Draft, operation: str, rows: list[tuple[Row, Row]], case: Case) -> None:
    for metric in Row._fields:
        values = [getattr(row, metric) for row, _ in rows]
        if None not in values:
            draft.keep(operation, metric, values, case)
