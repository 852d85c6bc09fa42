"""The aggressors of an interference run: one case in several jobs, started again and again, and not measured."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks import CheckedRun, CheckExtension, ExtensionSettings, JobScript, starts
from iowatch.checks import scratch as scratch_checks
from iowatch.experiments.interference import jobs as aggressors
from iowatch.site import is_slurm, storage

# Every mpirun of Open MPI binds its ranks to the first cores of a node that several jobs share.
_UNBOUND = {"OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none"}


@dataclass(frozen=True)
class AggressorSettings:
    """What a check is to start instead of a measurement.

    Attributes:
        count: number of aggressors.
        directory: where their files are (`iowatch.experiments.interference.jobs`).
        time_limit_s: time limit of the job.
    """

    count: int
    directory: str
    time_limit_s: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class AggressorExtension(CheckExtension):
    """Replaces the lines of the job by those of `iowatch.experiments.interference.jobs`.

    The session starts ReFrame without sanity and performance stages, and reads the outputs. Settings:
    `AggressorSettings`.
    """

    name = "aggressor"
    measures = False

    def time_limit_s(self, case: SuiteCase, limit_s: float, settings: ExtensionSettings) -> float:
        """They run as long as the session needs them."""
        return AggressorSettings(**settings).time_limit_s

    def scheduler_options(self, scheduler: str, settings: ExtensionSettings) -> list[str]:
        """One task of an array per aggressor; ReFrame takes a pending array of one task for a job that has ended."""
        count = AggressorSettings(**settings).count
        if is_slurm(scheduler) and count > 1:
            return [f"--array=1-{count}"]
        return []

    def change_job(self, run: CheckedRun, script: JobScript, settings: ExtensionSettings) -> JobScript:
        """Write the scripts of all aggressors, and start them instead of the program."""
        request = AggressorSettings(**settings)
        # Each aggressor has a scratch directory of its own.
        case_directory = run.order.case_directory(run.scratch_base, "aggressors", run.test)
        commands: list[aggressors.AggressorCommands] = []
        for number in range(1, request.count + 1):
            scratch = case_directory.with_name(f"{case_directory.name}-{number}")
            commands.append(_commands(run, scratch))
        directory = Path(request.directory)
        aggressors.write_aggressor_files(directory, commands)
        start_command = ("sh", shlex.quote(str(directory / aggressors.START)))
        return JobScript(command=start_command, is_launched=False, files=script.files)


def _commands(run: CheckedRun, scratch: Path) -> aggressors.AggressorCommands:
    """The commands of the aggressor that writes to this directory."""
    tool = run.case.tool
    options = run.case.options
    # Preparation of the benchmark, whose output must not be in that of the program.
    steps: list[str] = []
    for words in tool.prepare(options, str(scratch)):
        steps.append(f"{run.launcher} {shlex.join(starts.with_program(run, words))} >&2")
    for line in starts.on_every_node(run, tool.before(options, str(scratch))):
        steps.append(f"{{ {line}; }} >&2")
    program = shlex.join([run.program, *tool.arguments(options, str(scratch))])
    steps.append(f"{run.launcher} {program}")
    # The scratch directory of the partition is two levels above that of the aggressor.
    expected = scratch_checks.expected_file_system(run, run.key.partition)
    identity = storage.identity_commands(scratch.parents[1], "mount", expected)
    return aggressors.AggressorCommands(
        identity=identity,
        directory=scratch,
        variables={**_UNBOUND, **tool.environment(options)},
        command=" && ".join(steps),
        files=dict(tool.configuration(options)),
        results=tool.results,
    )


AGGRESSOR = AggressorExtension()
