"""All samples of a run: parsed once, validated, written to the spool for the history, reported to ReFrame."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import replace
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function

from iowatch import handoff
from iowatch.benchmarks import registry
from iowatch.core import METRICS, Output, Result
from iowatch.handoff import merge_outputs
from iowatch.site import job_state

_TRACE = "darshan/trace.darshan"  # DarshanMixin
_STARTED, _ENDED = "iowatch.started", "iowatch.ended"


class SamplesMixin(rfm.RegressionTestPlugin):
    """Starts the program as often as the tool requires, and reads the outputs; their status decides the sanity.

    The check defines `benchmark`. The best sample of each result is its performance value.
    """

    @run_before("run")
    def start_and_note(self) -> None:
        """Add preparation, times, exit codes and further starts around ReFrame's own start of the program."""
        tool, options, place = self.case.tool, self.case.options, str(self.scratch_directory)
        # ReFrame sets these in the job only after this hook; the command line of the launcher needs them now.
        self.job.num_tasks, self.job.num_tasks_per_node = self.num_tasks, self.num_tasks_per_node
        launcher = self.job.launcher.run_command(self.job)
        prepare = [
            f"{launcher} {shlex.join(self._own(words))} >> prepare.out 2>> prepare.err || exit 1"
            for words in tool.prepare(options, place)
        ]
        before = self._before(tool.before(options, place), launcher)
        command = " ".join([launcher, self.executable, *self.executable_opts])  # already quoted for the shell
        further_starts: list[str] = []
        for start in range(1, tool.runs(options)):
            further_starts += [*before, f"{command} > {_stdout(start)} 2> {_stderr(start)}", *self._close(start)]
        self.prerun_cmds = [*self.prerun_cmds, *prepare, f"date +%s.%N > {_STARTED}", *before]
        self.postrun_cmds = [*self._close(0), *further_starts, f"date +%s.%N > {_ENDED}", *self.postrun_cmds]

    def _before(self, words: str, launcher: str) -> list[str]:
        """Commands before each start: on several nodes executed by every task, because each node has its page cache.

        In an allocation they are always executed by tasks, because the shell may run on a login node.
        """
        if not words or (self.case.nodes == 1 and not hasattr(self.job.launcher, "placed")):
            return [words] if words else []
        return [f"{launcher} sh -c {shlex.quote(words)} >> prepare.out 2>> prepare.err"]

    def _own(self, words: list[str]) -> list[str]:
        """A preparation command in which the program of the check replaces the default program of the tool."""
        same = words[0] == self.case.tool.program(self.case.options)
        return [self.program if same else words[0], *words[1:]]

    def _close(self, start: int) -> list[str]:
        """Lines after a start: keep its exit code (schedulers report it differently) and its result files."""
        kept = [f"[ ! -e {name} ] || mv {name} {_result(start, name)}" for name in self.case.tool.results]
        kept += [f"[ ! -e {_TRACE} ] || mv {_TRACE} darshan/start-{start}.darshan"]
        return [f"echo $? > {_rc(start)}", *kept]

    @run_before("sanity")
    def read_output(self) -> None:
        starts = range(self.case.tool.runs(self.case.options))
        merged = merge_outputs([self._parse(start) for start in starts])
        # An A/B run repeats a case many times per session, so its results are separate series without detection.
        ab_run = {"ab_run": True} if "pair" in handoff.read_turn_facts() else {}
        added = {**self.case.tool.case(self.case.options), **ab_run}
        for name in self.striping_that_failed():
            del added[name]
        results = tuple(replace(result, case={**result.case, **added}) for result in merged.results)
        whole = replace(merged, results=results)
        self.output_record = handoff.validate_output(self.case, whole, self.striping_failure())
        session = os.environ.get("IOWATCH_SESSION_DIR")
        if session:
            self._spool(Path(session))

    @sanity_function
    def is_complete(self) -> bool:
        """The output is complete and validated, and contains every expected (operation, metric)."""
        output: Output = self.output_record
        missing = handoff.missing_results(self.case, output)
        return sn.all(
            [
                sn.assert_eq(output.status, "ok", msg=f"{output.status}: {output.reason}"),
                sn.assert_false(missing, msg=f"no result for {', '.join(missing)}"),
            ]
        )

    @run_before("performance")
    def report_best(self) -> None:
        self.perf_variables = {
            _variable(one): sn.make_performance_function(sn.defer(METRICS[one.metric].best(one.samples)), one.unit)
            for one in self.output_record.results
        }

    def _parse(self, start: int) -> Output:
        """Parse the output of one start of the program; its result file has precedence over standard output."""
        stage = Path(self.stagedir)
        if not (stage / _rc(start)).is_file():
            return Output(self.benchmark, None, "failed", self._never_ended(stage), ())
        stdout = stage / (str(self.stdout) if start == 0 else _stdout(start))
        stderr = stage / (str(self.stderr) if start == 0 else _stderr(start))
        candidates = [stage / _result(start, name) for name in self.case.tool.results]
        source = next((path for path in candidates if path.is_file() and path.stat().st_size), stdout)
        rc = _number(stage / _rc(start))
        return registry.parse_output_file(
            self.benchmark,
            source,
            stderr=stderr,
            rc=None if rc is None else int(rc),
            ranks=self.case.ranks,
            log=None if source == stdout else stdout,
        )

    def _never_ended(self, stage: Path) -> str:
        """Reason why a start of the program left no exit code: output of the job, and job state."""
        state = job_state(self.current_partition.scheduler.registered_name, self.job.jobid)
        reason = "; ".join(words for words in (_last_words(stage), state) if words)
        return "the program was not started or did not end" + (f": {reason}" if reason else "")

    def _spool(self, session: Path) -> None:
        stage = Path(self.stagedir)
        started, ended = _number(stage / _STARTED), _number(stage / _ENDED)
        tool, options, turn = self.case.tool, self.case.options, handoff.read_turn_facts()
        case = handoff.SpooledCase(
            name=handoff.turn_run_name(f"{self.benchmark}:{self.case.name}", turn),
            benchmark=self.benchmark,
            partition=self.current_partition.name,
            stack_name=self.stack_name(),
            stack=self.stack_document(),
            started_at=int(started or time.time()),
            wall_s=None if started is None or ended is None else ended - started,
            output=self.output_record.to_json(),
            facts={
                "command": shlex.join([self.program, *tool.arguments(options, str(self.scratch_directory))]),
                "reframe_test": self.unique_name,
                **self.striping_facts(),
                **self.machine_facts(),
                "exit_code": _number(stage / _rc(0)),
                "nodes": self._nodes(),
                **turn,
            },
        )
        handoff.spool_case(session, case, self._files(stage))

    def _nodes(self) -> list[str]:
        """Nodes of the case: in an allocation from the launcher, else from the scheduler."""
        placed = getattr(self.job.launcher, "placed", None)
        if placed is not None:
            return list(placed(self.job))
        # If a job ends between two polls of Slurm's `squeue`, ReFrame reports the node "None".
        return [node for node in self.job.nodelist or [] if node != "None"]

    def _files(self, stage: Path) -> dict[str, list[Path]]:
        tool = self.case.tool
        return {
            "stdout": [stage / str(self.stdout), *sorted(stage.glob("start-*.out"))],
            "stderr": [stage / str(self.stderr), *sorted(stage.glob("start-*.err"))],
            "record": [path for name in tool.results for path in sorted(stage.glob(_result("*", name)))],
            "configuration": [stage / name for name in tool.configuration(self.case.options)],
            "script": [stage / Path(self.job.script_filename).name],
            "darshan": sorted(stage.glob("darshan/**/*.darshan")),
            "overhead": [stage / "darshan" / "pairs"],
        }


def _result(start: int | str, name: str) -> str:
    return f"start-{start}.{name}"


def _stdout(start: int) -> str:
    return f"start-{start}.out"


def _stderr(start: int) -> str:
    return f"start-{start}.err"


def _rc(start: int) -> str:
    return f"start-{start}.rc"


def _last_words(stage: Path) -> str:
    """First nonempty line of the errors or output of the preparation, else of the errors of the job."""
    lines: list[str] = []
    for name in ("prepare.err", "prepare.out", "rfm_job.err"):
        if (stage / name).is_file():
            lines += (stage / name).read_text(errors="replace").splitlines()
    return next((line.strip() for line in lines if any(map(str.isalnum, line))), "")


def _variable(result: Result) -> str:
    """Name of a result in ReFrame, without the blanks and hyphens of some operations."""
    return f"{result.operation}_{result.metric}".replace(" ", "_").replace("-", "_")


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
