"""The targets of a file system, for a benchmark that measures each of them: the job lists them in a file.

    system.yaml: target_directories ──> DIR/.iowatch-target-…  ─┐
    Lustre: lfs osts, lfs setstripe -o N ──> SCRATCH/target-N  ─┴─> iowatch.targets (name, location, file) ──> program

BeeGFS and Ceph let only an administrator choose the target of a file (`beegfs-ctl --createfile`, pools of Ceph): there
the site has directories whose layout is one target or pool each, and names them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from iowatch.benchmarks.suites import SuiteCase
from iowatch.benchmarks.target_probe import TARGETS_FILE
from iowatch.checks.run import CheckedRun, JobScript
from iowatch.checks.scratch import is_node_local, measured_file_system
from iowatch.core import TARGET_RATES_FACT, Output
from iowatch.site import file_system_without_striping

# Errors of `lfs`, in the stage directory.
_REFUSED = f"{TARGETS_FILE}.err"


def list_targets(run: CheckedRun, script: JobScript) -> JobScript:
    """Return the script with lines that list the targets, if the benchmark measures each of them.

    Raises:
        UsageError: a directory of system.yaml cannot be used.
    """
    if not run.case.tool.probes_targets:
        return script
    directories = _target_directories(run.case, run.system)
    if directories:
        return script.preparing([f": > {TARGETS_FILE}", *_directory_lines(directories, run.run_id)])
    return script.preparing([f": > {TARGETS_FILE}", *_lustre_lines(run.scratch)])


def _target_directories(case: SuiteCase, system: str) -> tuple[Path, ...]:
    file_system = measured_file_system(case, system)
    return file_system.target_paths() if file_system is not None else ()


def _directory_lines(directories: Sequence[Path], run_id: str) -> Iterator[str]:
    """One line per directory; the program makes the file, and removes it when it is open.

    A directory that does not exist is listed, too: the program reports it.
    """
    for directory in directories:
        # A name that nobody else can know.
        words = (directory.name, str(directory), str(directory / f".iowatch-target-{run_id}"))
        yield f"printf '%s\\t%s\\t%s\\n' {shlex.join(words)} >> {TARGETS_FILE}"


def _lustre_lines(scratch: Path) -> Iterator[str]:
    """Lines that make a file on each active OST; one that cannot be made has an empty name.

    `lfs osts` prints `14: work-OST000e_UUID ACTIVE`; -o takes exactly this OST, or fails.
    """
    directory = shlex.quote(str(scratch))
    active = shlex.quote(r"s/^\([0-9][0-9]*\): \([^ ]*\) *ACTIVE.*/\1 \2/p")
    yield f"lfs osts {directory} 2> {_REFUSED} | sed -n {active} | while read -r index name; do"
    yield f'  file={directory}/target-$index; lfs setstripe -o "$index" "$file" 2>> {_REFUSED} || file='
    yield f'  printf \'OST %s\\t%s\\t%s\\n\' "$index" "${{name%_UUID}}" "$file" >> {TARGETS_FILE}'
    yield "done"


def no_targets_reason(case: SuiteCase, system: str, directory: Path) -> str | None:
    """Return why the targets of a case's file system are not known; None if they are, or do not matter.

    Args:
        directory: of the file system on this host.
    """
    if not case.tool.probes_targets or _has_target_directories(case, system):
        return None
    # Only its nodes see it.
    if is_node_local(case, system):
        return f"{case.file_system} is local to each node"
    technology = file_system_without_striping(directory)
    if technology is None:
        return None
    return f"no targets are known on {technology}: system.yaml names no target_directories of the file system"


def _has_target_directories(case: SuiteCase, system: str) -> bool:
    file_system = measured_file_system(case, system)
    return file_system is not None and bool(file_system.target_directories)


def missing_targets(run: CheckedRun, outputs: Sequence[Output]) -> str | None:
    """Return the reason if the file system has another number of targets than system.yaml states; None otherwise."""
    file_system = measured_file_system(run.case, run.system)
    if not run.case.tool.probes_targets or file_system is None or file_system.targets is None:
        return None
    for output in outputs:
        target_count = output.facts.get(TARGET_RATES_FACT, {}).get("target_count", file_system.targets)
        stated = file_system.targets
        if target_count != stated:
            return f"{target_count} targets are active; system.yaml states {stated} of '{file_system.name}'"
    return None
