"""The outputs of a finished job: parsed once, validated, and spooled for the history with all facts of the run."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iowatch.benchmarks import hints, registry
from iowatch.checks.extension import find_extension
from iowatch.checks.job import covariate_settings
from iowatch.checks.machine import clock_failure, machine_facts
from iowatch.checks.nodes import differences_between_nodes, each_node_fact, facts_of_nodes
from iowatch.checks.order import turn_run_name
from iowatch.checks.program import other_run_reasons, program_facts
from iowatch.checks.rank_times import node_times_of_ranks
from iowatch.checks.run import (
    ENDED_FILE,
    PREPARATION,
    STARTED_FILE,
    VERIFICATION,
    CheckedRun,
    FinishedJob,
    StartFiles,
    read_number,
)
from iowatch.checks.scratch import (
    cache_not_dropped,
    scratch_facts,
    scratch_failure,
    striping_facts,
    striping_failure,
    striping_that_failed,
)
from iowatch.checks.spool import SpooledCase, spool_case
from iowatch.checks.starts import options_of_verification
from iowatch.checks.targets import missing_targets
from iowatch.checks.tracing import missing_trace
from iowatch.checks.validation import add_parameters, merge_outputs, missing_case_results, validate_output
from iowatch.core import Output, Scalar, clock_offset_s
from iowatch.site import covariates, earlier_starts, job_state

# What benchio records as the source of the hints of an open file (`src/once.c`) if the MPI gives back any hint.
_ANY_HINT_GIVEN_BACK = "repeats any hint"


def is_measured(run: CheckedRun) -> bool:
    """Whether a run has results: no extension of the order traces it instead."""
    return all(find_extension(name).measures for name in run.order.extensions)


def read_output(run: CheckedRun, job: FinishedJob) -> Output:
    """Return the validated output of all starts of the program."""
    outputs = _outputs_of_starts(run, job)
    output = add_parameters(merge_outputs(outputs), _case_parameters(run))
    output = _with_node_differences(run, output)
    output = validate_output(run.case, output, _failures(run, job, outputs))
    for name, settings in run.order.extensions.items():
        output = find_extension(name).change_output(run, output, settings)
    return output


def _with_node_differences(run: CheckedRun, output: Output) -> Output:
    """The output; if it failed, with the differences between the nodes before its reason, which they may explain."""
    if output.status == "ok" or not facts_of_nodes(run.stage):
        return output
    reasons = [*differences_between_nodes(run), output.reason or "no reason reported"]
    return replace(output, reason="; ".join(reasons))


def missing_results_of(run: CheckedRun, output: Output) -> list[str]:
    """Return the missing expected results, for example `write bandwidth`."""
    return missing_case_results(run.case, output) if is_measured(run) else []


def _outputs_of_starts(run: CheckedRun, job: FinishedJob) -> list[Output]:
    """The output of each start; ReFrame itself directs that of the first one."""
    outputs = []
    for streams in _streams_of_starts(run):
        outputs.append(_parse(run, job, streams))
    return outputs


@dataclass(frozen=True, slots=True)
class _StartStreams:
    """Where one start of the program wrote: names of files in the stage directory.

    Attributes:
        prefix: beginning of the names of its result files and its exit code.
        stdout, stderr: its two streams.
    """

    prefix: str
    stdout: str
    stderr: str


def _streams_of_starts(run: CheckedRun) -> Iterator[_StartStreams]:
    """The files of each start, in order; ReFrame itself directs the streams of the first one."""
    yield _StartStreams(StartFiles(0).prefix, run.stdout, run.stderr)
    for number in range(1, run.case.tool.runs(run.case.options)):
        files = StartFiles(number)
        yield _StartStreams(files.prefix, files.stdout, files.stderr)


def _parse(run: CheckedRun, job: FinishedJob, streams: _StartStreams) -> Output:
    """The output of one start of the program; its own result file is preferred to the standard output."""
    stage = run.stage
    exit_code = stage / f"{streams.prefix}.rc"
    if not exit_code.is_file():
        return Output(run.case.benchmark, None, "failed", _never_ended_reason(run, job), ())
    stdout, stderr = stage / streams.stdout, stage / streams.stderr
    source = stdout
    for name in run.case.tool.results:
        path = stage / f"{streams.prefix}.{name}"
        if path.is_file() and path.stat().st_size:
            source = path
            break
    number = read_number(exit_code)
    return registry.parse_output_file(
        run.case.benchmark,
        source,
        stderr=stderr,
        rc=None if number is None else int(number),
        ranks=run.case.ranks,
        log=None if source == stdout else stdout,
        fresh=True,
    )


def _never_ended_reason(run: CheckedRun, job: FinishedJob) -> str:
    """Why a start of the program left no exit code: what its job printed, and its state in the scheduler."""
    state = job_state(run.scheduler, job.job_id, job.wait_limit_minutes)
    reasons = [words for words in (_first_error_line(run.stage), state) if words]
    step = _interrupted_step(run)
    return f"{step}: {'; '.join(reasons)}" if reasons else step


def _interrupted_step(run: CheckedRun) -> str:
    """What a job did last that left no exit code of the program."""
    preparation = run.case.tool.prepare(run.case.options, str(run.scratch))
    if preparation and not (run.stage / STARTED_FILE).is_file():
        exit_code = read_number(run.stage / PREPARATION.exit_code)
        if exit_code is not None:
            command = shlex.join(preparation[0][:3])
            return f"the file to read could not be written: `{command} …` ended with exit code {exit_code:.0f}"
        if (run.stage / PREPARATION.stdout).is_file():
            return "the write of the file to read did not end"
    return "the program was not started or did not end"


def _first_error_line(stage: Path) -> str:
    """The first line that the preparation or else the job wrote as an error."""
    lines: list[str] = []
    for name in (PREPARATION.stderr, PREPARATION.stdout, "rfm_job.err"):
        if (stage / name).is_file():
            lines += (stage / name).read_text(errors="replace").splitlines()
    return next((line.strip() for line in lines if any(map(str.isalnum, line))), "")


def _case_parameters(run: CheckedRun) -> dict[str, Scalar]:
    """Case parameters that the check knows and the program may not print."""
    parameters = dict(run.case.tool.case(run.case.options))
    if run.turn is not None:
        parameters.update(run.turn.parameters)
    parameters.update(cache_not_dropped(run.case, run.stage))
    if run.case.file_system:
        parameters["file_system"] = run.case.file_system
    # What is not in force is not part of the case.
    for name in striping_that_failed(run):
        del parameters[name]
    return parameters


def _failures(run: CheckedRun, job: FinishedJob, outputs: Sequence[Output]) -> list[str]:
    """Reasons why this is the result of another case, of another run, or of other programs."""
    reasons: list[str | None] = [scratch_failure(run), striping_failure(run)]
    if is_measured(run):
        reasons.append(missing_trace(run, len(outputs)))
    reasons.append(clock_failure(run.submitted_s, read_number(run.stage / STARTED_FILE)))
    reasons += differences_between_nodes(run)
    reasons.append(missing_targets(run, outputs))
    reasons += other_run_reasons(run, job, outputs)
    reasons.append(_verification_failure(run, job))
    reasons += _hint_failures(run, outputs)
    return [reason for reason in dict.fromkeys(reasons) if reason]


def _verification_failure(run: CheckedRun, job: FinishedJob) -> str | None:
    """Reason why the data could not be verified; None if they were, or were not to be."""
    options = options_of_verification(run)
    if options is None:
        return None
    output = _parse(run, job, _StartStreams(VERIFICATION, f"{VERIFICATION}.out", f"{VERIFICATION}.err"))
    output = add_parameters(output, run.case.tool.case(options))
    output = validate_output(replace(run.case, options=options), output)
    return None if output.status == "ok" else f"verification after the measurement: {output.reason}"


def _hint_failures(run: CheckedRun, outputs: Sequence[Output]) -> Iterator[str]:
    """Reasons why a start did not use the MPI-IO hints that its case requests; none for a case without hints.

    An MPI-IO prints the hints that it uses. Where it prints none, those count that benchio read from its open file.

    Args:
        outputs: of all starts, in order.
    """
    if hints.OPTION not in run.case.options:
        return
    for output, streams in zip(outputs, _streams_of_starts(run), strict=True):
        lines: list[str] = []
        for path in (run.stage / streams.stdout, run.stage / streams.stderr):
            if path.is_file():
                lines += path.read_text(errors="replace").splitlines()
        in_force = hints.read_hints(lines, _hints_of_open_file(output))
        yield from hints.hints_not_in_force(run.case.options, in_force)


def _hints_of_open_file(output: Output) -> Mapping[str, str] | None:
    """Keys and values of the hints that benchio read from an open file; empty or None if they say nothing.

    Some MPIs give back every hint that they were given, also one that they do not know: these hints need not be in use.
    """
    recorded = output.facts.get("hints") or {}
    if _ANY_HINT_GIVEN_BACK in str(recorded.get("source")):
        return {}
    effective: Mapping[str, str] | None = recorded.get("effective")
    return effective


def spool_run(run: CheckedRun, job: FinishedJob, output: Output) -> None:
    """Spool a finished run, if the order of the session names a spool."""
    if run.order.spool is None:
        return
    started, ended = read_number(run.stage / STARTED_FILE), read_number(run.stage / ENDED_FILE)
    case = SpooledCase(
        name=turn_run_name(run.case.run_name, run.facts_of_turn),
        benchmark=run.case.benchmark,
        partition=run.key.partition,
        stack_name=run.key.stack,
        stack=_stack_with_settings(run.stack, program_facts(run.stage).environment),
        started_at=int((started or time.time()) + clock_offset_s()),
        wall_s=None if started is None or ended is None else ended - started,
        output=output.to_json(),
        facts=_run_facts(run, job),
    )
    spool_case(run.order.spool, case, _files_to_keep(run, job))


def _stack_with_settings(stack: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The stack with the variables of the job that affect I/O, which are part of its identity, whoever set them."""
    if not stack:
        return {}
    return {**stack, "settings": {**stack.get("settings", {}), **environment}}


def _run_facts(run: CheckedRun, job: FinishedJob) -> dict[str, Any]:
    started, ended = read_number(run.stage / STARTED_FILE), read_number(run.stage / ENDED_FILE)
    arguments = run.case.tool.arguments(run.case.options, str(run.scratch))
    facts = {
        "command": shlex.join([run.program, *arguments]),
        "reframe_test": run.test,
        **striping_facts(run),
        **scratch_facts(run),
        **_machine_facts(run, job),
        **each_node_fact(run.stage),
        **node_times_of_ranks(run),
        **covariates.read_snapshots(run.stage, covariate_settings(run.system)),
        "exit_code": read_number(run.stage / StartFiles(0).exit_code),
        "nodes": _nodes_of_run(run, job),
        "program": program_facts(run.stage).to_json(),
        "reframe": {"launcher": run.launcher, "settings": dict(run.settings)},
        "extra_work": sorted(run.extra_work),
        "tracing": "Darshan" if run.is_traced else "none",
        **run.facts_of_turn,
    }
    if run.case.options.declares("repeat"):
        facts["repetitions"] = run.case.options.number("repeat")
    if run.turn is not None and started and ended:
        facts["measured"] = [started, ended]
    if run.avoided_nodes:
        facts["avoided_nodes"] = list(run.avoided_nodes)
    if run.required_nodes:
        facts["required_nodes"] = list(run.required_nodes)
    for name, settings in run.order.extensions.items():
        facts.update(find_extension(name).facts(run, settings))
    return facts


def _nodes_of_run(run: CheckedRun, job: FinishedJob) -> list[str]:
    """The nodes of a run as the scheduler knows them, else as they named themselves."""
    # Of a job that is just ending Slurm lists only the nodes that are not done with it.
    if len(job.nodes) < run.case.nodes:
        return sorted(facts_of_nodes(run.stage)) or list(job.nodes)
    return list(job.nodes)


def _machine_facts(run: CheckedRun, job: FinishedJob) -> dict[str, dict[str, str]]:
    """The facts of the first node; how often the job was started again, with what ended its earlier starts."""
    facts = machine_facts(run.stage)
    machine = facts.get("machine", {})
    if "requeued" in machine:
        earlier = earlier_starts(run.scheduler, job.job_id)
        if earlier:
            machine["requeued"] += f", after {'; '.join(earlier)}"
    return facts


def _files_to_keep(run: CheckedRun, job: FinishedJob) -> dict[str, list[Path]]:
    """Files of the run by kind; absent ones are skipped."""
    stage, tool = run.stage, run.case.tool
    records = []
    for name in tool.results:
        records += sorted(stage.glob(f"start-*.{name}"))
    files = {
        "stdout": [stage / run.stdout, *sorted(stage.glob("start-*.out")), stage / f"{VERIFICATION}.out"],
        "stderr": [stage / run.stderr, *sorted(stage.glob("start-*.err")), stage / f"{VERIFICATION}.err"],
        "record": records,
        "configuration": [stage / name for name in tool.configuration(run.case.options)],
        "script": [stage / job.script.name],
        "darshan": sorted(stage.glob("darshan/**/*.darshan")),
        "overhead": [stage / "darshan" / "pairs"],
    }
    for extension in run.order.extensions:
        for kind, names in find_extension(extension).files.items():
            files.setdefault(kind, []).extend(stage / name for name in names)
    return files
