"""A Darshan trace of every run, where the stack has darshan-runtime; without it the run is not traced."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.utility.typecheck as typ
from reframe.core.builtins import run_before, variable

from iowatch import handoff

# Space for several thousand files per process (Darshan's own default is 1,024 records and 4 MiB in all), so that
# metadata tests do not end as partial traces; DXT keeps 32 bytes or more per access. One process writes the log: with
# Darshan's default of four, writes of Open MPI's own MPI-IO overlap, and leave zeros in one log of ten.
_CONFIGURATION = """\
MODMEM {memory}
NAMEMEM 4
MAX_RECORDS 8192 POSIX,MPI-IO,STDIO
LOGHINTS romio_no_indep_rw=true;cb_nodes=1
NAME_EXCLUDE ^/tmp/ompi\\.,^/dev/shm/,^/tmp/.*pmix *
"""
_MEMORY_MIB = {False: 16, True: 64}


class DarshanMixin(rfm.RegressionTestPlugin):
    """Puts Darshan under the benchmark's own processes: `mpirun -np 4 env … sh -c 'LD_PRELOAD=… program …'`.

    The library is not loaded into the launcher or the shell. The log is `darshan/trace.darshan` in the stage directory.
    Compose it with StackMixin; with ScratchMixin the scratch directory is traced at any path.
    """

    #: Trace at all; `-S darshan=no` for a run without. (`bool` would accept any text as true.)
    darshan = variable(typ.Bool, value=True)
    #: Keep every access with its time (DXT), as a suite with `trace: dxt` asks.
    darshan_dxt = variable(typ.Bool, value=False)

    @property
    def is_traced(self) -> bool:
        """Whether this run has a trace: neither switched off, nor a probe, nor without darshan-runtime in the stack."""
        case = getattr(self, "case", None)
        is_probe = case is not None and bool(case.tool.probes)
        chosen = self.darshan and os.environ.get(handoff.DARSHAN_VARIABLE) != "off" and not is_probe
        return chosen and "darshan" in self.current_environ.features

    @run_before("run")
    def trace_benchmark(self) -> None:
        if not self.is_traced:
            return
        dxt = self.darshan_dxt or getattr(getattr(self, "case", None), "trace", None) == "dxt"
        configuration = shlex.quote(self._darshan_configuration(dxt))
        prepare = f"mkdir -p darshan && printf %s {configuration} > darshan/configuration"
        self.prerun_cmds = [prepare, *self.prerun_cmds]
        untraced = [self.executable, *self.executable_opts]
        self.executable_opts = [*self._darshan_settings(dxt), *self._preload(), *untraced]
        self.executable = "env"
        named = os.environ.get("IOWATCH_OVERHEAD_CASE") == f"{self.benchmark}:{self.case.name}"  # of plain ReFrame
        if named or "overhead" in getattr(self, "extra_work", ()):
            self.postrun_cmds = [*self._pairs(untraced), *self.postrun_cmds]

    def missing_trace(self, starts: int) -> str | None:
        """Reason why a run is not what was asked: a start of the program without a log. None if all have one."""
        logs = [Path(self.stagedir) / "darshan" / f"start-{start}.darshan" for start in range(starts)]
        absent = [path.name for path in logs if not path.is_file()]
        if not self.is_traced or not absent:
            return None
        return (
            f"no Darshan log {absent[0]} although the stack has darshan-runtime: its library was not in the process "
            "or could not write (`iowatch run --darshan off` measures without it)"
        )

    def _darshan_settings(self, dxt: bool) -> list[str]:
        """Words for `env`."""
        place = shlex.quote(f"{self.stagedir}/darshan")
        settings = {
            "DARSHAN_LOGFILE": f"{place}/trace.darshan",
            "DARSHAN_CONFIG_PATH": f"{place}/configuration",
            "DXT_ENABLE_IO_TRACE": "1" if dxt else None,
        }
        return [f"{name}={value}" for name, value in settings.items() if value is not None]

    def _preload(self) -> list[str]:
        """Words that append the library to LD_PRELOAD as each process has it; empty if the stack links Darshan."""
        library = self._darshan_library()
        if library is None:
            return []
        appended = f'export LD_PRELOAD="${{LD_PRELOAD:+$LD_PRELOAD:}}"{shlex.quote(library)}; exec "$@"'
        return ["sh", "-c", shlex.quote(appended), "sh"]

    def _pairs(self, untraced: list[str]) -> list[str]:
        """Runs without and with Darshan, the order changing; `darshan/pairs` has start and end of each."""
        self.job.num_tasks, self.job.num_tasks_per_node = self.num_tasks, self.num_tasks_per_node
        launcher = self.job.launcher.run_command(self.job)
        commands = {"untraced": untraced, "traced": [self.executable, *self.executable_opts]}
        lines = []
        for pair in range(handoff.OVERHEAD_PAIRS):
            for kind in sorted(commands, reverse=pair % 2 == 0):
                words = " ".join(commands[kind])
                lines += [
                    f"started=$(date +%s.%N); {launcher} {words} > darshan/pairs.out 2>&1",
                    f'echo "{kind} $? $started $(date +%s.%N)" >> darshan/pairs; rm -f darshan/trace.darshan',
                ]
        return lines

    def _darshan_library(self) -> str | None:
        parts: list[dict[str, Any]] = self.stack_document().get("parts", [])
        files = next((part["files"] for part in parts if part["name"] == "darshan-runtime"), [])
        return next((path for path in files if "libdarshan.so" in path), None)

    def _darshan_configuration(self, dxt: bool) -> str:
        """Darshan leaves out files below /var, /opt and others by default; those of the scratch never."""
        text = _CONFIGURATION.format(memory=_MEMORY_MIB[dxt])
        scratch = str(getattr(self, "scratch_directory", ""))
        # Blanks and commas separate words of the configuration and cannot be quoted.
        usable = scratch and not re.search(r"[\s,]", scratch)
        return text + (f"NAME_INCLUDE ^{re.escape(scratch)} *\n" if usable else "")
