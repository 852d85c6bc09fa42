"""Every sample of a run: parsed once, validated, spooled for the history, reported to ReFrame."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function

from iowatch import handoff
from iowatch.benchmarks import hints, registry
from iowatch.benchmarks.options import Options
from iowatch.core import METRICS, Output, Scalar
from iowatch.handoff import merge_outputs
from iowatch.reference.bandwidth import performance_variable
from iowatch.site import job_nodes, job_state, profiler

_TRACE = "darshan/trace.darshan"  # DarshanMixin
_VERIFIED = "verification"  # names of its files
_STARTED, _ENDED = "iowatch.started", "iowatch.ended"


class SamplesMixin(rfm.RegressionTestPlugin):
    """Starts the program as often as the tool requires and reads the outputs; the status decides the sanity.

    The check defines `benchmark`. The best sample of each result is its performance value.
    """

    @run_before("run")
    def compose_starts(self) -> None:
        """Preparation, times, exit codes and further starts around ReFrame's own start of the program."""
        tool, options, place = self.case.tool, self.case.options, str(self.scratch_directory)
        # ReFrame hands these to the job only after this hook; the launcher's command line needs them now.
        self.job.num_tasks, self.job.num_tasks_per_node = self.num_tasks, self.num_tasks_per_node
        launcher = self.job.launcher.run_command(self.job)
        prepare = [
            f"{launcher} {shlex.join(self._own(words))} >> prepare.out 2>> prepare.err || exit 1"
            for words in tool.prepare(options, place)
        ]
        before = self._before(tool.before(options, place), launcher)
        command = " ".join([launcher, self.executable, *self.executable_opts])  # words of a shell already
        after = [f"{launcher} {shlex.join(words)}" for words in tool.after(options, place)]
        further: list[str] = []
        for start in range(1, tool.runs(options)):
            files = f">> {_stdout(start)} 2>> {_stderr(start)}"
            further += [*before, f"{command} {files}", *self._close(start, [f"{words} {files}" for words in after])]
        prepare = [self.covariates_command("before"), *prepare]
        self.prerun_cmds = [*self.prerun_cmds, *prepare, f"date +%s.%N > {_STARTED}", *before]
        measured = [*self._close(0, after), *further, f"date +%s.%N > {_ENDED}", self.covariates_command("after")]
        self.postrun_cmds = [*measured, *self._verify(launcher, place), *self.postrun_cmds]

    def _verify(self, launcher: str, place: str) -> list[str]:
        """One more repetition that compares the data, after the measurement; empty unless it is this run's turn."""
        options, tool = self._verifying_options(), self.case.tool
        if options is None:
            return []
        program = [tool.program(options), *tool.arguments(options, place), *tool.run_id(self.run_id)]
        starts = [shlex.join(self._own(words)) for words in (*tool.prepare(options, place), program)]
        redirected = [f"{launcher} {words} > {_VERIFIED}.out 2> {_VERIFIED}.err" for words in starts]
        kept = [f"[ ! -e {name} ] || mv {name} {_VERIFIED}.{name}" for name in tool.results]
        return [f"{' && '.join(redirected)}; echo $? > {_VERIFIED}.rc", *kept]

    def _verifying_options(self) -> Options | None:
        return handoff.verifying_options(self.case) if "verification" in self.extra_work else None

    def _verification_failure(self) -> str | None:
        """Reason why the data could not be verified; None if they were, or were not to be."""
        options = self._verifying_options()
        if options is None:
            return None
        output = self._parse(_VERIFIED, f"{_VERIFIED}.out", f"{_VERIFIED}.err")
        whole = _with_parameters(output, self.case.tool.case(options))
        checked = handoff.validate_output(replace(self.case, options=options), whole)
        return None if checked.status == "ok" else f"verification after the measurement: {checked.reason}"

    def _before(self, words: str, launcher: str) -> list[str]:
        """Each node has its own page cache: on several nodes every task does what one shell does on one.

        In allocation the shell may be that of a login node.
        """
        if not words or (self.case.nodes == 1 and not hasattr(self.job.launcher, "placed")):
            return [words] if words else []
        return [f"{launcher} sh -c {shlex.quote(words)} >> prepare.out 2>> prepare.err"]

    def _own(self, words: list[str]) -> list[str]:
        """A preparing command with the check's own program where it is the tool's."""
        same = words[0] == self.case.tool.program(self.case.options)
        return [self.program if same else words[0], *words[1:]]

    def _close(self, start: int, after: list[str]) -> list[str]:
        """After a start: what follows it, its exit code (schedulers differ in what they report), its result files."""
        kept = [f"[ ! -e {name} ] || mv {name} {_result(start, name)}" for name in self.case.tool.results]
        kept += [f"[ ! -e {_TRACE} ] || mv {_TRACE} darshan/start-{start}.darshan"]
        ended = [f"rc=$?; [ $rc -ne 0 ] || {{ {words}; rc=$?; }}; (exit $rc)" for words in after]
        return [*ended, f"echo $? > {_rc(start)}", *kept]

    @run_before("sanity")
    def read_output(self) -> None:
        starts = range(self.case.tool.runs(self.case.options))
        outputs = [self._parse(_prefix(0), str(self.stdout), str(self.stderr))]
        outputs += [self._parse(_prefix(start), _stdout(start), _stderr(start)) for start in starts[1:]]
        merged = merge_outputs(outputs)
        where = {"file_system": self.case.file_system} if self.case.file_system else {}
        known = {**handoff.turn_parameters(self.turn_facts), **self.cache_not_dropped(), **where}
        added = {**self.case.tool.case(self.case.options), **known}
        for name in self.striping_that_failed():
            del added[name]
        whole = _with_parameters(merged, added)
        self.output_record = handoff.validate_output(self.case, whole, self._failures(outputs))
        if self.is_profiled:
            self.output_record = self.profiled_output(self.output_record)
        session = os.environ.get("IOWATCH_SESSION_DIR")
        if session:
            self._spool(Path(session))

    def _failures(self, outputs: list[Output]) -> list[str]:
        """Reasons why this is the result of another case, of another run, or of other programs."""
        stage = Path(self.stagedir)
        # A counted run without a Darshan log still has the other counts.
        traceless = None if self.is_profiled else self.missing_trace(len(outputs))
        reasons = [self.scratch_failure(), self.striping_failure(), traceless]
        started, ended = _number(stage / _STARTED), _number(stage / _ENDED)
        reasons += [self.clock_failure(started), *self.other_run_reasons(outputs, started, ended)]
        reasons += [self._verification_failure(), *self._hint_failures(outputs)]
        return [reason for reason in dict.fromkeys(reasons) if reason]

    def _hint_failures(self, outputs: list[Output]) -> Iterator[str]:
        """Hints that a start did not have in force, from what its MPI-IO printed or benchio recorded."""
        if hints.OPTION not in self.case.options:
            return
        stage = Path(self.stagedir)
        names = [(str(self.stdout), str(self.stderr)), *((_stdout(n), _stderr(n)) for n in range(1, len(outputs)))]
        for output, pair in zip(outputs, names, strict=True):
            texts = [path.read_text(errors="replace") for name in pair if (path := stage / name).is_file()]
            recorded = output.facts.get("hints") or {}
            repeats = "repeats any hint" in str(recorded.get("source"))
            found = hints.read_hints("\n".join(texts).splitlines(), {} if repeats else recorded.get("effective"))
            yield from hints.hints_not_in_force(self.case.options, found)

    @sanity_function
    def is_complete(self) -> bool:
        """The output is complete, shows the requested work, and every expected (operation, metric) is present."""
        output: Output = self.output_record
        missing = [] if self.is_profiled else handoff.missing_case_results(self.case, output)
        return sn.all(
            [
                sn.assert_eq(output.status, "ok", msg=f"{output.status}: {output.reason}"),
                sn.assert_false(missing, msg=f"no result for {', '.join(missing)}"),
            ]
        )

    @run_before("performance")
    def report_best(self) -> None:
        self.perf_variables = {
            performance_variable(one.operation, one.metric): sn.make_performance_function(
                sn.defer(METRICS[one.metric].best(one.samples)), one.unit
            )
            for one in self.output_record.results
        }

    def _parse(self, prefix: str, stdout_name: str, stderr_name: str) -> Output:
        """The output of one start of the program; its own result file is preferred to the standard output."""
        stage = Path(self.stagedir)
        if not (stage / f"{prefix}.rc").is_file():
            return Output(self.benchmark, None, "failed", self._never_ended(stage), ())
        stdout, stderr = stage / stdout_name, stage / stderr_name
        candidates = [stage / f"{prefix}.{name}" for name in self.case.tool.results]
        source = next((path for path in candidates if path.is_file() and path.stat().st_size), stdout)
        rc = _number(stage / f"{prefix}.rc")
        return registry.parse_output_file(
            self.benchmark,
            source,
            stderr=stderr,
            rc=None if rc is None else int(rc),
            ranks=self.case.ranks,
            log=None if source == stdout else stdout,
            fresh=True,
        )

    def _never_ended(self, stage: Path) -> str:
        """Why a start of the program left no exit code: what its job printed, and its state in the scheduler."""
        # ReFrame cancels a job that a check still waits for only because of this limit.
        limit_s = self.job.max_pending_time if getattr(self.job, "is_cancelling", False) else None
        scheduler, job = self.current_partition.scheduler.registered_name, self.job.jobid
        state = job_state(scheduler, job, None if limit_s is None else limit_s / 60)
        reason = "; ".join(words for words in (_first_error_line(stage), state) if words)
        return "the program was not started or did not end" + (f": {reason}" if reason else "")

    def _spool(self, session: Path) -> None:
        stage = Path(self.stagedir)
        started, ended = _number(stage / _STARTED), _number(stage / _ENDED)
        tool, options, turn = self.case.tool, self.case.options, self.turn_facts
        case = handoff.SpooledCase(
            name=handoff.turn_run_name(self.case.run_name, turn),
            benchmark=self.benchmark,
            partition=self.current_partition.name,
            stack_name=self.stack_name(),
            stack=self.stack_document(self.program_facts.environment),
            started_at=int(started or time.time()),
            wall_s=None if started is None or ended is None else ended - started,
            output=self.output_record.to_json(),
            facts={
                "command": shlex.join([self.program, *tool.arguments(options, str(self.scratch_directory))]),
                "reframe_test": self.unique_name,
                **self.striping_facts(),
                **self.scratch_facts(),
                **self.machine_facts(),
                **self.covariate_facts(),
                "exit_code": _number(stage / _rc(0)),
                "nodes": self.job_nodes(),
                "program": self.program_facts.to_json(),
                "extra_work": sorted(self.extra_work),
                "tracing": "Darshan" if self.is_traced else "none",
                **turn,
                **({"measured": [started, ended]} if "pair" in turn and started and ended else {}),
                **({"avoided_nodes": self.avoided_nodes} if self.avoided_nodes else {}),
            },
        )
        handoff.spool_case(session, case, self._files(stage))

    def job_nodes(self) -> list[str]:
        """Nodes of the case: in allocation from the launcher, else from the scheduler."""
        placed = getattr(self.job.launcher, "placed", None)
        if placed is not None:
            return list(placed(self.job))
        # A job that ended between two polls is not in `squeue`; ReFrame then reports "None".
        known = [node for node in self.job.nodelist or [] if node != "None"]
        return known or job_nodes(self.current_partition.scheduler.registered_name, self.job.jobid)

    def _files(self, stage: Path) -> dict[str, list[Path]]:
        tool = self.case.tool
        return {
            "stdout": [stage / str(self.stdout), *sorted(stage.glob("start-*.out")), stage / f"{_VERIFIED}.out"],
            "stderr": [stage / str(self.stderr), *sorted(stage.glob("start-*.err")), stage / f"{_VERIFIED}.err"],
            "record": [path for name in tool.results for path in sorted(stage.glob(_result("*", name)))],
            "configuration": [stage / name for name in tool.configuration(self.case.options)],
            "script": [stage / Path(self.job.script_filename).name],
            "darshan": sorted(stage.glob("darshan/**/*.darshan")),
            "overhead": [stage / "darshan" / "pairs"],
            "profile": [stage / profiler.PROFILE_FILE],
        }


def _prefix(start: int | str) -> str:
    return f"start-{start}"


def _result(start: int | str, name: str) -> str:
    return f"{_prefix(start)}.{name}"


def _stdout(start: int) -> str:
    return f"{_prefix(start)}.out"


def _stderr(start: int) -> str:
    return f"{_prefix(start)}.err"


def _rc(start: int) -> str:
    return f"{_prefix(start)}.rc"


def _with_parameters(output: Output, added: Mapping[str, Scalar]) -> Output:
    """Return the output with parameters of the check that the program does not print."""
    return replace(output, results=tuple(replace(result, case={**result.case, **added}) for result in output.results))


def _first_error_line(stage: Path) -> str:
    """The first line that the preparation or else the job wrote as an error."""
    lines: list[str] = []
    for name in ("prepare.err", "prepare.out", "rfm_job.err"):
        if (stage / name).is_file():
            lines += (stage / name).read_text(errors="replace").splitlines()
    return next((line.strip() for line in lines if any(map(str.isalnum, line))), "")


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
