"""The aggressors of an interference run: one case in several jobs, started again and again, and not measured."""

from __future__ import annotations

import shlex
from pathlib import Path

import reframe as rfm
from reframe.core.backends import getlauncher
from reframe.core.builtins import run_after, run_before

from iowatch import handoff
from iowatch.site import aggressors, storage

# Every mpirun of Open MPI binds its ranks to the first cores of a node that several jobs share.
_UNBOUND = {"OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none"}


class AggressorMixin(rfm.RegressionTestPlugin):
    """With `IOWATCH_AGGRESSORS`, replaces the commands of the job by those of `iowatch.site.aggressors`.

    Name it first: its hooks run last, after the others have composed the run. The session starts ReFrame without sanity
    and performance stages, and reads the outputs.
    """

    @run_after("setup")
    def request_jobs(self) -> None:
        if request := handoff.read_aggressor_request():
            self.time_limit = f"{request.time_limit_s}s"
            if self.current_partition.scheduler.registered_name in ("slurm", "squeue"):
                self.job.options += [f"--array=1-{request.count}"]

    @run_before("run")
    def replace_commands(self) -> None:
        if not (request := handoff.read_aggressor_request()):
            return
        base = Path(request.directory)
        self.job.num_tasks, self.job.num_tasks_per_node = self.num_tasks, self.num_tasks_per_node
        launcher = self.job.launcher.run_command(self.job)
        first = storage.case_directory(self.scratch_base(), "aggressors", self.unique_name)
        places = [first.with_name(f"{first.name}-{number}") for number in range(1, request.count + 1)]
        aggressors.write_aggressor_files(base, [self._commands(place, launcher) for place in places])
        self.job.launcher = getlauncher("local")()
        self.prerun_cmds = self.postrun_cmds = []
        self.executable, self.executable_opts = "sh", [shlex.quote(str(base / aggressors.START))]

    def _commands(self, place: Path, launcher: str) -> aggressors.AggressorCommands:
        """The commands of the aggressor that writes to this directory."""
        tool, options = self.case.tool, self.case.options
        expected = self.expected_file_system(self.current_partition.name)
        prepare = [f"{launcher} {shlex.join(self._own(words))} >&2" for words in tool.prepare(options, str(place))]
        before = [f"{{ {words}; }} >&2" for words in self._before(tool.before(options, str(place)), launcher)]
        program = shlex.join([self.program, *tool.arguments(options, str(place))])
        return aggressors.AggressorCommands(
            identity=storage.identity_commands(place.parents[1], "mount", expected),
            place=place,
            variables={**_UNBOUND, **tool.environment(options)},
            command=" && ".join([*prepare, *before, f"{launcher} {program}"]),
            files=dict(tool.configuration(options)),
            results=tool.results,
        )
