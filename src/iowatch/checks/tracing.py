"""A Darshan trace of every run, where the stack has darshan-runtime; without it the run is not traced.

    mpirun -np 4 env DARSHAN_… sh -c 'LD_PRELOAD=…; exec "$@"' sh program …

The library is loaded into the benchmark's own processes, neither into the launcher nor into the job's shell. The log of
each start is `darshan/start-<n>.darshan` in the stage directory.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from iowatch.checks.order import OVERHEAD_CASE_VARIABLE, OVERHEAD_PAIRS
from iowatch.checks.run import TRACE, CheckedRun, JobScript, StartFiles
from iowatch.core import RunKey

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


def trace_program(run: CheckedRun, script: JobScript) -> JobScript:
    """Return the script with its command under Darshan; unchanged for a run that is not traced.

    A run whose overhead of Darshan is to be measured starts its program again afterwards, in turn without and with it.
    """
    if not run.is_traced:
        return script
    configuration = shlex.quote(_darshan_configuration(run))
    traced = ["env", *_darshan_settings(run), *_preload(run.stack), *script.command]
    prepare = f"mkdir -p darshan && printf %s {configuration} > darshan/configuration"
    traced_script = script.starting_with([prepare]).with_command(traced)
    # A session orders the measurement as extra work; plain ReFrame has a variable with the name of the run.
    is_overhead_measured = "overhead" in run.extra_work or measures_overhead(run.key)
    if not is_overhead_measured:
        return traced_script
    return traced_script.followed_by(_overhead_commands(run.launcher, script.command, traced))


def measures_overhead(key: RunKey) -> bool:
    """Whether plain ReFrame is to measure the overhead of Darshan on this run."""
    return os.environ.get(OVERHEAD_CASE_VARIABLE) == key.run


def missing_trace(run: CheckedRun, starts: int) -> str | None:
    """Return why a traced run is not what was asked: a start of the program without a log. None if all have one."""
    names = [StartFiles(start).trace for start in range(starts)]
    absent = [name for name in names if not (run.stage / name).is_file()]
    if not run.is_traced or not absent:
        return None
    return (
        f"no Darshan log {absent[0].removeprefix('darshan/')} although the stack has darshan-runtime: its library was "
        "not in the process or could not write (`iowatch run --darshan off` measures without it)"
    )


def _darshan_settings(run: CheckedRun) -> list[str]:
    """Words for `env`: where Darshan writes and finds its configuration, and whether it keeps every access (DXT)."""
    directory = shlex.quote(f"{run.stage}/darshan")
    words = [
        f"DARSHAN_LOGFILE={directory}/{TRACE.removeprefix('darshan/')}",
        f"DARSHAN_CONFIG_PATH={directory}/configuration",
    ]
    if run.traces_accesses:
        words.append("DXT_ENABLE_IO_TRACE=1")
    return words


def _preload(stack: Mapping[str, Any]) -> list[str]:
    """Words that append the library to LD_PRELOAD as each process has it; empty if the stack links Darshan."""
    library = _darshan_library(stack)
    if library is None:
        return []
    appended = f'export LD_PRELOAD="${{LD_PRELOAD:+$LD_PRELOAD:}}"{shlex.quote(library)}; exec "$@"'
    return ["sh", "-c", shlex.quote(appended), "sh"]


def _darshan_library(stack: Mapping[str, Any]) -> str | None:
    """Path of the library that traces a process; None if the stack states none."""
    for part in stack.get("parts", []):
        if part["name"] == "darshan-runtime":
            return next((path for path in part["files"] if "libdarshan.so" in path), None)
    return None


def _overhead_commands(launcher: str, untraced: Sequence[str], traced: Sequence[str]) -> list[str]:
    """Starts without and with Darshan, the order changing; `darshan/pairs` has start and end of each."""
    commands = {"untraced": untraced, "traced": traced}
    lines = []
    for pair in range(OVERHEAD_PAIRS):
        for name in sorted(commands, reverse=pair % 2 == 0):
            words = " ".join(commands[name])
            lines += [
                f"started=$(date +%s.%N); {launcher} {words} > darshan/pairs.out 2>&1",
                f'echo "{name} $? $started $(date +%s.%N)" >> darshan/pairs; rm -f {TRACE}',
            ]
    return lines


def _darshan_configuration(run: CheckedRun) -> str:
    """Darshan leaves out files below /var, /opt and others by default; those of the scratch never."""
    text = _CONFIGURATION.format(memory=_MEMORY_MIB[run.traces_accesses])
    scratch = str(run.scratch)
    # Blanks and commas separate words of the configuration and cannot be quoted.
    if re.search(r"[\s,]", scratch):
        return text
    return f"{text}NAME_INCLUDE ^{re.escape(scratch)} *\n"
