"""The starts of the program in a job: preparation, times, exit codes, further starts, verification of the data."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from iowatch.benchmarks.options import Options
from iowatch.checks.order import verifying_options
from iowatch.checks.run import (
    ENDED_FILE,
    PREPARATION,
    STARTED_FILE,
    TRACE,
    VERIFICATION,
    CheckedRun,
    JobScript,
    StartFiles,
)
from iowatch.site import covariates

# Names of the files that a job's directory had when the job started first.
_FIRST_FILES = "iowatch.files"


def remove_earlier_start(stage: Path) -> list[str]:
    """Return the first lines of a job's script: what an earlier start of the same job left is no result of this one.

    A scheduler starts a job again when a node failed or somebody asked for it; some lines of the script append.

    Args:
        stage: directory of the job. Nothing is removed by a job that a scheduler starts elsewhere.
    """
    return [
        f"if ! [ . -ef {shlex.quote(str(stage))} ]; then :",
        f"elif [ -e {_FIRST_FILES} ]; then",
        f'for _file in * .[!.]*; do grep -qxF -e "$_file" {_FIRST_FILES} || rm -rf -- "$_file"; done',
        # As a whole, because the job may end at any moment.
        f"else ls -A > {_FIRST_FILES}.new; echo {_FIRST_FILES} >> {_FIRST_FILES}.new",
        f"mv {_FIRST_FILES}.new {_FIRST_FILES}; fi",
    ]


def add_starts(run: CheckedRun, script: JobScript) -> JobScript:
    """Return the script with all that a measurement has around ReFrame's own start of the program."""
    tool, options, scratch = run.case.tool, run.case.options, str(run.scratch)
    before_each = on_every_node(run, tool.before(options, scratch))
    command = " ".join([run.launcher, *script.command])
    after_each = [f"{run.launcher} {shlex.join(words)}" for words in tool.after(options, scratch)]

    before = [_snapshot(run, "before")]
    for words in tool.prepare(options, scratch):
        preparation = f"{_launched(run, words)} >> {PREPARATION.stdout} 2>> {PREPARATION.stderr}"
        before.append(f"{preparation} || {{ echo $? > {PREPARATION.exit_code}; exit 1; }}")
    before += [f"date +%s.%N > {STARTED_FILE}", *before_each]

    after = _end_of_start(run, StartFiles(0), after_each)
    for number in range(1, tool.runs(options)):
        start = StartFiles(number)
        redirection = f">> {start.stdout} 2>> {start.stderr}"
        after += [*before_each, f"{command} {redirection}"]
        after += _end_of_start(run, start, [f"{words} {redirection}" for words in after_each])
    after += [f"date +%s.%N > {ENDED_FILE}", _snapshot(run, "after")]
    return script.preparing(before).followed_by([*after, *_verification(run)])


def _snapshot(run: CheckedRun, moment: covariates.Side) -> str:
    """What goes on around the run, recorded on its first node: load, jobs, fill, counters, settings."""
    return covariates.snapshot_command(str(run.scratch), moment)


def _launched(run: CheckedRun, words: Sequence[str]) -> str:
    return f"{run.launcher} {shlex.join(with_program(run, words))}"


def with_program(run: CheckedRun, words: Sequence[str]) -> list[str]:
    """Return a preparing command with the run's program where it is the benchmark's."""
    is_program = words[0] == run.case.tool.program(run.case.options)
    return [run.program if is_program else words[0], *words[1:]]


def on_every_node(run: CheckedRun, words: str) -> list[str]:
    """Return the line that executes a shell's words on all nodes of a run; none without words.

    Each node has its own page cache: on several nodes every task does what one shell does on one. In an allocation the
    job's shell may be that of a login node.
    """
    if not words:
        return []
    if run.case.nodes == 1 and not run.places_tasks:
        return [words]
    return [f"{run.launcher} sh -c {shlex.quote(words)} >> {PREPARATION.stdout} 2>> {PREPARATION.stderr}"]


def _end_of_start(run: CheckedRun, start: StartFiles, after: Iterable[str]) -> list[str]:
    """After a start: what follows it, its exit code (schedulers differ in what they report), its result files."""
    lines = [f"rc=$?; [ $rc -ne 0 ] || {{ {words}; rc=$?; }}; (exit $rc)" for words in after]
    lines.append(f"echo $? > {start.exit_code}")
    for name in run.case.tool.results:
        lines.append(_move(name, start.result(name)))
    if run.case.tool.rank_times is not None:
        lines.append(_move(run.case.tool.rank_times.file, start.result(run.case.tool.rank_times.file)))
    lines.append(_move(TRACE, start.trace))
    return lines


def _move(name: str, target: str) -> str:
    return f"[ ! -e {name} ] || mv {name} {target}"


def options_of_verification(run: CheckedRun) -> Options | None:
    """Return the options of the repetition that compares its data; None unless the session orders it."""
    return verifying_options(run.case) if VERIFICATION in run.extra_work else None


def _verification(run: CheckedRun) -> list[str]:
    """One more repetition that compares the data, after the measurement."""
    options = options_of_verification(run)
    if options is None:
        return []
    tool, scratch = run.case.tool, str(run.scratch)
    program = [tool.program(options), *tool.arguments(options, scratch), *tool.run_id(run.run_id)]
    starts = []
    for words in (*tool.prepare(options, scratch), program):
        starts.append(f"{_launched(run, words)} > {VERIFICATION}.out 2> {VERIFICATION}.err")
    lines = [f"{' && '.join(starts)}; echo $? > {VERIFICATION}.rc"]
    for name in tool.results:
        lines.append(_move(name, f"{VERIFICATION}.{name}"))
    return lines
