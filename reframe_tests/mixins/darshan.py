"""Darshan trace of every run if the stack has darshan-runtime; otherwise the run is not traced."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

import reframe as rfm
from reframe.core.builtins import run_before, variable

# Memory for several thousand files per process (Darshan's default is 1,024 records and 4 MiB in total), so that
# traces of metadata tests are complete; DXT needs 32 bytes or more per access.
_CONFIGURATION = """\
MODMEM {memory}
NAMEMEM 4
MAX_RECORDS 8192 POSIX,MPI-IO,STDIO
NAME_EXCLUDE ^/tmp/ompi\\.,^/dev/shm/,^/tmp/.*pmix *
"""
_MEMORY_MIB = {False: 16, True: 64}
_PAIRS = 5


class DarshanMixin(rfm.RegressionTestPlugin):
    """Preloads Darshan in the processes of the benchmark: `mpirun -np 4 env LD_PRELOAD=… program …`.

    The launcher and the shell do not load the library. The log is `darshan/trace.darshan` in the stage directory.
    Requires StackMixin; with ScratchMixin the scratch directory is traced at any path.
    """

    #: Trace runs; `-S darshan=no` disables tracing.
    darshan = variable(bool, value=True)
    #: Record every access with its time (DXT), as in suites with `trace: dxt`.
    darshan_dxt = variable(bool, value=False)
    #: The program does not use MPI.
    darshan_non_mpi = variable(bool, value=False)

    @run_before("run")
    def trace_benchmark(self) -> None:
        if not self.darshan or "darshan" not in self.current_environ.features:
            return
        dxt = self.darshan_dxt or getattr(getattr(self, "case", None), "trace", None) == "dxt"
        configuration = shlex.quote(self._darshan_configuration(dxt))
        prepare = f"mkdir -p darshan && printf %s {configuration} > darshan/configuration"
        self.prerun_cmds = [prepare, *self.prerun_cmds]
        untraced = [self.executable, *self.executable_opts]
        self.executable_opts = [*self._darshan_settings(dxt), *untraced]
        self.executable = "env"
        # The runner sets this variable, for one case, in sessions that measure the overhead of tracing.
        if os.environ.get("IOWATCH_OVERHEAD_CASE") == f"{self.benchmark}:{self.case.name}":
            self.postrun_cmds = [*self._pairs(untraced), *self.postrun_cmds]

    def _darshan_settings(self, dxt: bool) -> list[str]:
        """Arguments of `env`; without a preload if the stack links Darshan into its programs."""
        place = shlex.quote(f"{self.stagedir}/darshan")
        settings = {
            "LD_PRELOAD": self._darshan_library(),
            "DARSHAN_LOGFILE": f"{place}/trace.darshan",
            "DARSHAN_CONFIG_PATH": f"{place}/configuration",
            "DXT_ENABLE_IO_TRACE": "1" if dxt else None,
            "DARSHAN_ENABLE_NONMPI": "1" if self.darshan_non_mpi else None,
        }
        return [f"{name}={value}" for name, value in settings.items() if value is not None]

    def _pairs(self, untraced: list[str]) -> list[str]:
        """Commands of alternating runs without and with Darshan; `darshan/pairs` has start and end of each."""
        self.job.num_tasks, self.job.num_tasks_per_node = self.num_tasks, self.num_tasks_per_node
        launcher = self.job.launcher.run_command(self.job)
        commands = {"untraced": untraced, "traced": [self.executable, *self.executable_opts]}
        lines = []
        for pair in range(_PAIRS):
            for kind in sorted(commands, reverse=pair % 2 == 0):
                command = " ".join(commands[kind])
                lines += [
                    f"started=$(date +%s.%N); {launcher} {command} > darshan/pairs.out 2>&1",
                    f'echo "{kind} $? $started $(date +%s.%N)" >> darshan/pairs; rm -f darshan/trace.darshan',
                ]
        return lines

    def _darshan_library(self) -> str | None:
        parts: list[dict[str, Any]] = self.stack_document().get("parts", [])
        files = next((part["files"] for part in parts if part["name"] == "darshan-runtime"), [])
        library = next((path for path in files if "libdarshan.so" in path), None)
        return None if library is None else shlex.quote(library)

    def _darshan_configuration(self, dxt: bool) -> str:
        """Darshan configuration that includes the scratch; by default Darshan excludes /var, /opt and others."""
        text = _CONFIGURATION.format(memory=_MEMORY_MIB[dxt])
        scratch = str(getattr(self, "scratch_directory", ""))
        # Blanks and commas separate values of the configuration and cannot be quoted.
        usable = scratch and not re.search(r"[\s,]", scratch)
        return text + (f"NAME_INCLUDE ^{re.escape(scratch)} *\n" if usable else "")
