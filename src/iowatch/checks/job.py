"""The job of a run: order in, lines of its script out.

    scratch directory ─> facts of node and program ─> preparation ─> program, under Darshan and extensions ─> starts

Nothing here depends on ReFrame.
"""

from __future__ import annotations

import math
import shlex

from iowatch.checks.extension import find_extension
from iowatch.checks.machine import environment_commands
from iowatch.checks.nodes import node_commands
from iowatch.checks.order import OVERHEAD_PAIRS
from iowatch.checks.program import FACTS_FILE
from iowatch.checks.rank_times import ask_for_rank_times
from iowatch.checks.run import CheckedRun, JobScript
from iowatch.checks.scratch import in_scratch
from iowatch.checks.starts import add_starts, remove_earlier_start
from iowatch.checks.targets import list_targets
from iowatch.checks.tracing import measures_overhead, trace_program
from iowatch.site import (
    CovariateSettings,
    avoiding_options,
    covariates,
    load_system,
    program,
    requiring_options,
    system_names,
)

# Open MPI keeps a pointer that ranks share, which no benchmark uses, in a file that it removes and makes again at each
# open. On nodes that remember the old entry of its name (GlusterFS, NFS), the open then waits for ever.
_NO_SHARED_POINTER_FILE = 'export OMPI_MCA_sharedfp="${OMPI_MCA_sharedfp:-^lockedfile}"'


def compose_job(run: CheckedRun, script: JobScript) -> JobScript:
    """Return the script of a job.

    Args:
        script: lines that the user of plain ReFrame adds; its command is not used.
    """
    tool, options = run.case.tool, run.case.options
    script = in_scratch(run, script)
    script = list_targets(run, script)

    # Facts about the node and the program, before anything is measured.
    script = script.preparing(environment_commands(str(run.scratch), run.launcher))
    script = script.preparing(program.program_commands(run.program, FACTS_FILE))
    script = script.preparing(node_commands(run))
    script = script.with_files({covariates.SCRIPT_NAME: covariates.snapshot_script(covariate_settings(run.system))})

    # After the facts of the program, because the variables of a case are no property of the stack.
    variables = tool.environment(options)
    script = script.preparing([f"export {name}={shlex.quote(value)}" for name, value in variables.items()])
    if run.case.nodes > 1:
        script = script.preparing([_NO_SHARED_POINTER_FILE])

    # ReFrame puts the command into the script as it is: so its words are quoted for the shell.
    arguments = [*tool.arguments(options, str(run.scratch)), *tool.run_id(run.run_id)]
    command = [shlex.quote(word) for word in (run.program, *arguments)]
    script = script.with_command(command).with_files(tool.configuration(options))

    script = ask_for_rank_times(run, script)

    # Darshan is around the program, an extension around both. A job starts that several times (repetitions, turns).
    script = trace_program(run, script)
    for name, settings in run.order.extensions.items():
        script = find_extension(name).change_command(run, script, settings)
    # What measures the program from outside is around all of them.
    wrapper = tool.wrapper(options, str(run.scratch))
    if wrapper:
        words = [shlex.quote(word) for word in (*wrapper, run.program)]
        script = script.with_command([*words, *script.command])
    script = add_starts(run, script)
    # First of all lines; an extension may replace the job by others, whose tasks share a directory.
    script = script.starting_with(remove_earlier_start(run.stage))
    for name, settings in run.order.extensions.items():
        script = find_extension(name).change_job(run, script, settings)
    return script


def covariate_settings(system: str) -> CovariateSettings:
    """Return the settings of a system; the usual covariates where ReFrame's configuration is of an unknown system."""
    return load_system(system).covariates if system in system_names() else CovariateSettings()


def job_time_limit_s(run: CheckedRun) -> int | None:
    """Return the time limit of the job, in seconds; None if it is that of the case.

    What the job does after the measurement has its own time: the reason of a timeout names it.
    """
    limit_s = float(run.case.time_limit_s)
    limit_s += sum(work.limit_s for work in run.extra_work.values())
    if measures_overhead(run.key):
        limit_s += 2 * OVERHEAD_PAIRS * run.case.time_limit_s
    for name, settings in run.order.extensions.items():
        limit_s = find_extension(name).time_limit_s(run.case, limit_s, settings)
    return None if limit_s == run.case.time_limit_s else math.ceil(limit_s)


def scheduler_options(run: CheckedRun) -> list[str]:
    """Return the options of the scheduler for the job of a run."""
    options = avoiding_options(run.scheduler, run.avoided_nodes)
    options += requiring_options(run.scheduler, run.required_nodes)
    for name, settings in run.order.extensions.items():
        options += find_extension(name).scheduler_options(run.scheduler, settings)
    return options
