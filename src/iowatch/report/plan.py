"""What `iowatch run --dry-run` tells: the runs, what they cost, and what cannot or will not be run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console

from iowatch.runner.night import key
from iowatch.runner.plan import PlannedRun
from iowatch.runner.run import Prepared, opening
from iowatch.tables import table
from iowatch.units import counted, format_size


def render(prepared: Prepared, console: Console) -> None:
    """The sum first, then a line a run, then what is left out and why."""
    console.print(opening(prepared), markup=False, soft_wrap=True)
    console.print(_cost(prepared), markup=False, soft_wrap=True)
    console.print(_runs(prepared))
    for title, lines in _others(prepared):
        console.print(f"{title}:", markup=False)
        for (stack, reason), count in lines.items():
            console.print(f"  {stack} {counted(count, 'run')}: {reason}", markup=False, soft_wrap=True)


def to_json(prepared: Prepared) -> dict[str, Any]:
    """The same for programs. Sizes are bytes, times seconds."""
    plan = prepared.plan
    return {
        "system": prepared.site.system,
        "suite": prepared.suite,
        "scratch": str(prepared.base),
        "expected_results": len(plan.expected()),
        "volume_bytes": plan.volume_bytes,
        "file_bytes": plan.file_bytes,
        "files": plan.inodes,
        "runs": [_run(prepared, run) for run in plan.runs],
        **{
            title.lower().replace(" ", "_"): [
                {"stack": stack, "runs": count, "reason": reason} for (stack, reason), count in lines.items()
            ]
            for title, lines in _others(prepared)
        },
    }


def _run(prepared: Prepared, run: PlannedRun) -> dict[str, Any]:
    return {
        "run": run.name,
        "partition": run.partition,
        "stack": run.stack,
        "ranks": run.case.ranks,
        "nodes": run.case.nodes,
        "volume_bytes": run.case.tool.volume_bytes(run.case.options),
        "time_limit_s": run.case.time_limit_s,
        "longest_s": _longest_s(prepared, run),
        "results": [{"operation": one.operation, "metric": one.metric} for one in run.expected()],
    }


def _longest_s(prepared: Prepared, run: PlannedRun) -> float | None:
    known = prepared.past.get(key(run))
    return known.wall_s if known else None


def _cost(prepared: Prepared) -> str:
    """Results, room and time. What never ran is counted apart: its limit says little of what it will take."""
    plan = prepared.plan
    known = [_longest_s(prepared, run) for run in plan.runs]
    new = [run.case.time_limit_s for run, seconds in zip(plan.runs, known, strict=True) if seconds is None]
    minutes = sum(seconds for seconds in known if seconds is not None) / 60
    times = [f"at most {minutes:.1f} minutes by the last sessions"] if len(new) < len(plan.runs) else []
    times += [f"{counted(len(new), 'run')} never made (limits: {sum(new) / 60:.0f} minutes)"] if new else []
    room = f"{format_size(plan.file_bytes)} in {counted(plan.inodes, 'file')}"
    return (
        f"{counted(len(plan.expected()), 'result')} expected; in scratch at most {room} at a time; "
        f"{', '.join(times)}."
    )


def _runs(prepared: Prepared) -> Any:
    columns = ("stack", "run", "ranks", "nodes", "bytes", "results", "longest s", "limit s")
    shown = table(*columns, right=columns[2:])
    for run in prepared.plan.runs:
        seconds = _longest_s(prepared, run)
        shown.add_row(
            run.stack,
            run.name,
            str(run.case.ranks),
            str(run.case.nodes),
            format_size(run.case.tool.volume_bytes(run.case.options)),
            str(len(run.expected())),
            "never ran" if seconds is None else f"{seconds:.1f}",
            str(run.case.time_limit_s),
        )
    return shown


def _others(prepared: Prepared) -> list[tuple[str, Counter[tuple[str, str]]]]:
    """What will not run, by stack and reason."""
    groups = {
        "Would be absent": [(one.stack, one.reason) for one in prepared.lost],
        "Left for another night": [(one.run.stack, one.reason) for one in prepared.left_out],
        "Not available here": [(one.stack, one.reason) for one in prepared.plan.unavailable],
    }
    return [(title, Counter(pairs)) for title, pairs in groups.items() if pairs]
