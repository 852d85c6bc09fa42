"""The base class of all checks, the only module of this package that depends on ReFrame.

It takes the values of a run from ReFrame, calls the functions of this package, and gives ReFrame what they return. A
check is a subclass that sets `benchmark` and `entry`:

    @rfm.simple_test
    class IorCheck(BenchmarkCheck):
        benchmark = "ior"
        entry = parameter(entries("ior"))
"""

# ReFrame declares its hooks and variables without types.
# mypy: disable-error-code="untyped-decorator, has-type"

from __future__ import annotations

import json
import math
import secrets
import shlex
import time
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.backends import getlauncher
from reframe.core.builtins import run_after, run_before, sanity_function, variable
from reframe.core.exceptions import ReframeFatalError
from reframe.core.runtime import runtime

from iowatch.checks.build import SourceFileBuild, build_failure
from iowatch.checks.cases import ReframeTasks, case_entries, changed_case, skip_reason
from iowatch.checks.job import compose_job, job_time_limit_s, scheduler_options
from iowatch.checks.order import current_order
from iowatch.checks.outputs import missing_results_of, read_output, spool_run
from iowatch.checks.run import CheckedRun, FinishedJob, JobScript
from iowatch.checks.scratch import check_space, remove_ended_scratch, scratch_base
from iowatch.core import METRICS, InputError, IowatchError, Output, RunKey, Scalar
from iowatch.reference import bandwidth, policy
from iowatch.site import job_nodes, partition_limits, reframe_config

__all__ = ["BenchmarkCheck", "SourceFileBuildTest", "entries"]


def _system_name() -> str | None:
    """The system that ReFrame runs on; None if ReFrame does not run: a check is imported for one of its functions."""
    try:
        return str(runtime().system.name)
    except ReframeFatalError:
        return None


def entries(benchmark: str) -> list[str]:
    """Return the values of a check's parameter: `<suite>/<case>`, in an interleaved run with the turn.

    They are text, because ReFrame writes them into its reports. It executes the tests in this order.
    """
    return list(case_entries(benchmark, _system_name()))


class SourceFileBuildTest(rfm.RunOnlyRegressionTest):  # type: ignore[misc]
    """Compiles a program of the project for one stack: one file, in a second.

    A subclass sets `source_program`. A check has it as a fixture of scope `environment`, and runs `program`.
    """

    source_program: str
    """Name of the program, of its source file, and of its directory in `benchmarks/`."""
    local = True
    time_limit = "5m"  # compilers and their wrappers may hang, as on a stuck file system

    @run_before("run")
    def build(self) -> None:
        environment = self.current_environ
        build = SourceFileBuild(self.source_program, self.current_system.name, environment.name, environment.cc)
        self.program = str(build.program)
        self.executable, self.executable_opts = shlex.quote(self.program), ["--version"]
        self.prerun_cmds = build.commands()

    @sanity_function
    def runs(self) -> Any:
        """The program starts and prints its version."""
        files_of_job = [Path(self.stagedir) / str(sn.evaluate(name)) for name in (self.stderr, self.stdout)]
        message = build_failure(self.source_program, *files_of_job)
        return sn.assert_found(rf"^{self.source_program} ", self.stdout, msg=message)


class BenchmarkCheck(rfm.RunOnlyRegressionTest):  # type: ignore[misc]
    """A check of one case: a subclass sets `benchmark` (str) and `entry = parameter(entries(benchmark))`."""

    #: The program to run; by default the tool's own, from the stack's PATH. `-S program=/path` takes another.
    program = variable(str, value="")
    #: Options of the case with other values, outside of sessions: `-S case_options=repeat:5,local:64x64x64`.
    #: `-S num_tasks=8` and `-S num_tasks_per_node=4` change ranks and nodes, too.
    case_options = variable(typ.Dict[str, str], value={})
    #: Trace with Darshan at all; `-S darshan=no` for a run without. (`bool` would accept any text as true.)
    darshan = variable(typ.Bool, value=True)
    #: Keep every access with its time (DXT), as a suite with `trace: dxt` asks.
    darshan_dxt = variable(typ.Bool, value=False)
    #: Version of a program that was built from the checkout.
    built_version: str | None = None
    reference_case = ""
    _refused: Exception | None = None
    _submitted_s = 0.0
    _launcher_command = ""

    @run_after("init")
    def take_case(self) -> None:
        """Take the case that `entry` names, and give ReFrame its requirements: features, ranks, nodes, time limit.

        Attributes of the test that later hooks read: `order`, what the session orders; `case`; `turn`, that of an
        interleaved run, else None; `run_id`, which the program records. A case that cannot be changed as the command
        line or an extension asks is refused in `set_up_job`.
        """
        self.order = current_order()
        entry = case_entries(self.benchmark, _system_name())[self.entry]
        self.case, self.turn = entry.case, entry.turn
        # Here the two numbers are those of ReFrame's command line or its defaults; below they become those of the case.
        tasks = ReframeTasks(self.case_options, self.num_tasks, self.num_tasks_per_node)
        try:
            self.case = changed_case(self.case, self.order, tasks)
        except (IowatchError, ValueError) as error:
            # ReFrame leaves out a test that fails in this hook, and ends with success: the setup raises the error.
            self._refused = error
        self.descr = f"{self.benchmark} {self.case.name}"
        self.tags = {self.case.suite, self.benchmark}
        self.valid_systems = ["*"]
        required = [f"+{feature}" for feature in self.case.requires]
        excluded = [f"-{feature}" for feature in self.case.excludes]
        self.valid_prog_environs = [" ".join([*required, *excluded])]
        self.time_limit = self.time_limit or f"{self.case.time_limit_s}s"
        self.num_tasks = self.case.ranks
        self.num_tasks_per_node = math.ceil(self.case.ranks / self.case.nodes)
        self.program = self.program or self.case.tool.program(self.case.options)
        self.run_id = secrets.token_hex(8)

    @property
    def checked_run(self) -> CheckedRun:
        """The run as the functions of this package need it; available after the setup."""
        partition, environment = self.current_partition, self.current_environ
        stage = Path(self.stagedir)
        # The stack's name; the environment's may differ, because ReFrame takes no dots.
        stack = str(environment.extras.get("stack", environment.name))
        switched_on = self.darshan and self.order.is_traced and self.case.tool.is_traced
        return CheckedRun(
            case=self.case,
            key=RunKey(partition.name, stack, self.case.run_name),
            order=self.order,
            turn=self.turn,
            system=self.current_system.name,
            environment=environment.name,
            scheduler=partition.scheduler.registered_name,
            test=self.unique_name,
            stack=_read_stack(environment.extras.get("stack_json")),
            program=self.program,
            built_version=self.built_version,
            stage=stage,
            scratch_base=scratch_base(
                self.order, self.case, self.current_system.name, partition.extras.get("scratch"), stage
            ),
            stdout=str(self.stdout),
            stderr=str(self.stderr),
            run_id=self.run_id,
            is_traced=switched_on and "darshan" in environment.features,
            traces_accesses=self.darshan_dxt or self.case.trace == "dxt",
            launcher=self._launcher_command,
            settings=_reframe_settings(partition, environment),
            places_tasks=isinstance(self.job.launcher, reframe_config.AllocationLauncher),
            submitted_s=self._submitted_s,
            partition_limits=partition_limits(
                partition.scheduler.registered_name, partition.extras.get("nodes"), partition.processor.num_cpus
            ),
        )

    @run_after("setup")
    def set_up_job(self) -> None:
        """Skip what is not ordered or impossible; options and limits of the job, and the references of its system."""
        if self._refused:
            raise self._refused
        run = self.checked_run
        remove_ended_scratch(run.scratch_base, self.order.session)
        reason = skip_reason(run)
        self.skip_if(reason is not None, reason)
        limit_s = job_time_limit_s(run)
        if limit_s is not None:
            self.time_limit = f"{limit_s}s"
        self.job.options += scheduler_options(run)
        # The longest wait in the queue, so that the session can end.
        minutes = self.current_partition.extras.get("queue_minutes")
        self.max_pending_time = self.max_pending_time or (60 * minutes if minutes else None)
        # ReFrame skips a test whose file of references is missing.
        self.known_references = bandwidth.load_references(self.current_system.name)
        if self.known_references.exists:
            self.reference = {"$ref": str(self.known_references.path)}

    @run_before("run")
    def write_job(self) -> None:
        """Check the space, and compose the script of the job."""
        self._submitted_s = time.time()
        # ReFrame hands these to the job only after this hook; the launcher's command line needs them now.
        self.job.num_tasks, self.job.num_tasks_per_node = self.num_tasks, self.num_tasks_per_node
        self._launcher_command = self.job.launcher.run_command(self.job)
        run = self.checked_run
        check_space(run)
        script = compose_job(run, JobScript(before=self.prerun_cmds, after=self.postrun_cmds))
        for name, content in script.files.items():
            (run.stage / name).write_text(content, encoding="utf-8")
        self.prerun_cmds, self.postrun_cmds = list(script.before), list(script.after)
        self.executable, self.executable_opts = script.command[0], list(script.command[1:])
        if not script.is_launched:
            self.job.launcher = getlauncher("local")()

    @run_before("sanity")
    def take_output(self) -> None:
        """Parse and validate the outputs, and spool the run for the history."""
        run, job = self.checked_run, self._finished_job()
        self.parsed_output = read_output(run, job)
        spool_run(run, job, self.parsed_output)

    def _finished_job(self) -> FinishedJob:
        """The job as the scheduler knows it, with the limit of its wait if that limit ended it."""
        # ReFrame cancels a job that a check still waits for only because of this limit.
        wait_limit_s = self.job.max_pending_time if getattr(self.job, "is_cancelling", False) else None
        wait_limit_minutes = None if wait_limit_s is None else wait_limit_s / 60
        nodes = nodes_of_job(self.job, self.current_partition.scheduler.registered_name)
        return FinishedJob(self.job.jobid, nodes, Path(self.job.script_filename), wait_limit_minutes)

    @sanity_function
    def is_complete(self) -> bool:
        """The output is complete, shows the requested work, and every expected (operation, metric) is present."""
        output: Output = self.parsed_output
        missing = missing_results_of(self.checked_run, output)
        complete: bool = sn.all(
            [
                sn.assert_eq(output.status, "ok", msg=f"{output.status}: {output.reason}"),
                sn.assert_false(missing, msg=f"no result for {', '.join(missing)}"),
            ]
        )
        return complete

    @run_before("performance")
    def report_best(self) -> None:
        """The best sample of each result is its performance value."""
        values = {}
        for result in self.parsed_output.results:
            name = bandwidth.performance_variable(result.operation, result.metric)
            best = METRICS[result.metric].best(result.samples)
            values[name] = sn.make_performance_function(sn.defer(best), result.unit)
        self.perf_variables = values
        self._look_up_reference()

    def _look_up_reference(self) -> None:
        """By the suite's policy; errors in the file of references fail the check: ReFrame ignores misspelt names."""
        run = self.checked_run
        references = policy.resolve_references(
            self.known_references,
            type(self).__name__,
            self.current_partition.fullname,
            run.key.stack,
            _common_parameters(self.parsed_output),
            self.perf_variables,
            self.case.reference,
            policy.check_class_names(),
        )
        self.reference_case = references.key or ""
        if references.problems:
            raise InputError("; ".join(references.problems))


def nodes_of_job(job: Any, scheduler: str) -> list[str]:
    """Return the nodes of a case: in an allocation from the launcher, else from the scheduler.

    Args:
        job: of ReFrame.
        scheduler: ReFrame's name of the scheduler.
    """
    if isinstance(job.launcher, reframe_config.AllocationLauncher):
        return job.launcher.case_nodes(job)
    # A job that ended between two polls is not in `squeue`; ReFrame then reports "None".
    nodes = [node for node in job.nodelist or [] if node != "None"]
    return nodes or job_nodes(scheduler, job.jobid)


def _reframe_settings(partition: Any, environment: Any) -> dict[str, str]:
    """What reframe.py adds to the jobs of a partition and environment, by name; what is empty is left out."""
    environments = {
        "system": runtime().system.preload_environ,
        "partition": partition.local_env,
        "environment": environment,
    }
    settings = {"scheduler": partition.scheduler.registered_name, "access": shlex.join(partition.access)}
    for owner, reframe_environment in environments.items():
        settings[f"modules of the {owner}"] = " ".join(reframe_environment.modules)
        for name, value in reframe_environment.env_vars.items():
            settings[f"{name} of the {owner}"] = str(value)
    settings["prepare_cmds of the partition"] = "; ".join(partition.prepare_cmds)
    settings["prepare_cmds of the environment"] = "; ".join(environment.prepare_cmds)
    return {name: value for name, value in settings.items() if value}


def _read_stack(path: str | None) -> dict[str, Any]:
    """The content of the environment's stack.json; empty where it has none."""
    document: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    return document


def _common_parameters(output: Output) -> dict[str, Scalar]:
    """Case parameters that all results of a run share."""
    if not output.results:
        return {}
    common = dict(output.results[0].case)
    for result in output.results[1:]:
        common = {name: value for name, value in common.items() if result.case.get(name) == value}
    return common
