"""Attempts at a false green: plant one fault around the program, run a session, expect a red verdict with its reason.

Each attempt has its own checkout (systems, suites, checks), its own PATH with one MPI, and its own scratch; a session
without a fault precedes it. `python -m tests.faults.campaign --only false-green` runs all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import ROOT

IOWATCH = ROOT / ".venv" / "bin" / "iowatch"
_FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
_PARTS = ("systems/local", "systems/_template", "benchmarks", "reframe_tests", "reference", "spack.yaml", "spack.lock")
_SUITE = """\
format: 1
summary: two small cases
reference: none
time_limit: 60
defaults: {op: both, local: 16x16x16, ranks: 1, repeat: 2}
matrix:
  - {api: [posix, hdf5], file: shared}
"""
_FACTS = """\
name: local
title: A machine that is attacked
system_stacks: true
scratch: SCRATCH
limits: {nodes: 1, ranks: 4}
"""


@dataclass
class Site:
    """A checkout, a `var/`, a PATH with one MPI and a scratch directory below `place`; nothing outside is changed."""

    place: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root, self.programs, self.scratch = self.place / "root", self.place / "bin", self.place / "lustre/iowatch"
        self.suite = self.root / "benchmarks/benchio/suites/attack.yaml"
        self.facts = self.root / "systems/local/system.yaml"
        self.configuration = self.root / "systems/local/reframe.py"
        self.environment = {
            **os.environ,
            "PATH": str(self.programs),
            "IOWATCH_ROOT": str(self.root),
            "IOWATCH_VAR": str(self.place / "var"),
        }
        if not self.place.exists():
            self._create()

    def _create(self) -> None:
        for part in _PARTS:
            source, target = ROOT / part, self.root / part
            target.parent.mkdir(parents=True, exist_ok=True)
            ignored = shutil.ignore_patterns("__pycache__", "build*", "stacks", "local.yaml")
            shutil.copytree(source, target, ignore=ignored) if source.is_dir() else shutil.copy(source, target)
        self.suite.write_text(_SUITE)
        self.facts.write_text(_FACTS.replace("SCRATCH", str(self.scratch)))
        self.scratch.mkdir(parents=True)
        _link_programs(self.programs)

    @property
    def var(self) -> Path:
        return self.place / "var"

    @property
    def linked_scratch(self) -> Path:
        """A directory on another file system."""
        return Path("/dev/shm") / f"iowatch-{os.getpid()}"

    def edit(self, path: Path, old: str, new: str) -> None:
        """Replace a text that occurs in the file."""
        text = path.read_text()
        assert old in text, f"{path} has no {old!r}"
        path.write_text(text.replace(old, new))

    def iowatch(self, *words: str) -> tuple[int, str]:
        """Exit code and complete output of a command."""
        done = subprocess.run(
            [str(IOWATCH), *words], env=self.environment, cwd=self.place, capture_output=True, text=True, timeout=300
        )
        return done.returncode, done.stderr + done.stdout

    def session(self, *words: str) -> tuple[int, str]:
        """One session of the suite."""
        return self.iowatch("run", "--suite", "attack", *words)


def _link_programs(place: Path) -> None:
    """All programs of this machine, but of one MPI only: `mpicc.openmpi` and others of Debian select it."""
    place.mkdir()
    for directory in filter(os.path.isdir, ("/usr/local/bin", "/usr/bin", "/usr/sbin")):
        for program in Path(directory).iterdir():
            link = place / program.name
            if not program.name.endswith((".mpich", ".hydra")) and not link.exists():
                link.symlink_to(program)


@dataclass(frozen=True)
class Attempt:
    """One way to a false green; `plant` and `reason` are required.

    Attributes:
        plant: changes the world around the program; may return what undoes it.
        reason: regular expression of what a red session must print.
        sessions: sessions after the fault; each must be red, so that the fault is not the next normal state.
        within: the fault may be found in the last of these sessions.
        prepare: before the session without a fault.
        words: further words of the command line.
    """

    plant: Callable[[Site], object]
    reason: str
    sessions: int = 1
    prepare: Callable[[Site], object] | None = None
    words: tuple[str, ...] = ()
    within: bool = False

    def impossible(self) -> str | None:
        """Why this attempt cannot be made here."""
        mounts = (
            self.prepare in (_mount_scratch, _tmpfs_scratch)
            or self.plant is another_file_system_is_mounted_over_scratch
        )
        if mounts and os.geteuid() != 0:
            return "needs the right to mount a tmpfs (root)"
        if self.prepare is _add_ior and shutil.which("ior") is None:
            return "needs IOR on PATH"
        if self.plant is clock_is_in_the_past and not _FAKETIME:
            return "needs libfaketime (Debian: apt-get install libfaketime)"
        return None

    @property
    def name(self) -> str:
        return self.plant.__name__.strip("_").replace("_", " ")


def _mount(place: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "iowatch-test", str(place)], check=True)


def _unmount(place: Path) -> None:
    subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def _mount_scratch(site: Site) -> None:
    _mount(site.scratch.parent)
    site.scratch.mkdir()


def _tmpfs_scratch(site: Site) -> None:
    _mount(site.scratch)


def scratch_is_unmounted(site: Site) -> None:
    _unmount(site.scratch.parent)


def scratch_is_unmounted_and_its_directory_exists(site: Site) -> None:
    _unmount(site.scratch.parent)
    site.scratch.mkdir(exist_ok=True)


def another_file_system_is_mounted_over_scratch(site: Site) -> None:
    _mount(site.scratch)


def scratch_is_misspelt(site: Site) -> None:
    site.edit(site.facts, "lustre/iowatch", "lustre-x/iowatch")


def scratch_is_a_link_to_another_file_system(site: Site) -> None:
    site.scratch.rmdir()
    site.linked_scratch.mkdir()
    site.scratch.symlink_to(site.linked_scratch)


def library_disappears_from_PATH(site: Site) -> None:  # noqa: N802
    for name in ("h5pcc", "h5pcc.openmpi"):
        (site.programs / name).unlink(missing_ok=True)


def _add_ior(site: Site) -> None:
    """A program that prints what IOR 4.0.0 printed here; the suite has one case of it."""
    shutil.copy(shutil.which("ior") or "/nonexistent", site.programs / "ior")
    suite = site.root / "benchmarks/ior/suites/attack.yaml"
    case = "{op: [write, read], api: posix, file: per-process}"
    defaults = "{transfer: 64k, block: 64k, ranks: 1, repeat: 2}"
    text = f"format: 1\nsummary: one case\nreference: none\ntime_limit: 60\ndefaults: {defaults}\nmatrix: [{case}]\n"
    suite.write_text(text)


def program_disappears_from_PATH(site: Site) -> None:  # noqa: N802
    (site.programs / "ior").unlink()


def case_is_deleted_from_the_suite(site: Site) -> None:
    site.edit(site.suite, "[posix, hdf5]", "[posix]")


def case_is_renamed(site: Site) -> None:
    """Names have the options that vary."""
    site.edit(site.suite, "file: shared", "file: shared, repeat: [2, 3]")


def case_is_changed_below_its_name(site: Site) -> None:
    site.edit(site.suite, "16x16x16", "16x16x8")


def operation_is_deleted_from_the_suite(site: Site) -> None:
    site.edit(site.suite, "op: both", "op: write")


def suite_of_one_benchmark_is_deleted(site: Site) -> None:
    (site.root / "benchmarks/ior/suites/attack.yaml").unlink()


def limits_exclude_a_case(site: Site) -> None:
    site.edit(site.suite, "ranks: 1", "ranks: 2")
    site.edit(site.facts, "ranks: 4", "ranks: 1")


def probe_of_a_library_hangs(site: Site) -> None:
    for name in ("h5pcc", "h5pcc.openmpi"):
        program = site.programs / name
        if program.exists():
            real = program.resolve()
            program.unlink()
            _script(program, f'[ "$1" != -showconfig ] || exec sleep 1000\nexec {real} "$@"')


def page_cache_cannot_be_dropped(site: Site) -> None:
    site.edit(site.suite, "repeat: 2", "repeat: 2, cache: drop")


def program_prints_the_record_of_the_last_session(site: Site) -> None:
    found = (path for path in (site.var / "artefacts").glob("*/*") if b"benchio-record" in path.read_bytes()[:100])
    for path in found:
        api = json.loads(path.read_bytes())["options"]["api"]
        shutil.copy(path, site.place / f"{api}.json")
    program = _benchio(site)
    chosen = f'{site.place}/$(echo "$*" | grep -o posix || echo hdf5).json'
    _script(program, f'[ "$1" != --version ] || exec {program}.real --version\ncp {chosen} benchio.json')


def record_names_another_program_version(site: Site) -> None:
    _edit_record(site, 'record["program"]["version"] = "0.0.1"')


def record_names_another_MPI(site: Site) -> None:  # noqa: N802
    _edit_record(site, 'record["mpi"]["version"] = "3.0.1"')


def record_has_fewer_repetitions(site: Site) -> None:
    _edit_record(site, '[operation["repetitions"].pop() for operation in record["operations"]]')


def program_is_replaced_together_with_its_checksum(site: Site) -> None:
    program = _benchio(site)
    _script(program, f'sleep 0.2; exec {program}.real "$@"')
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    program.with_name("benchio.sha256").write_text(f"{digest}  benchio\n")


def node_has_no_xargs(site: Site) -> None:
    (site.programs / "xargs").unlink()


def launcher_is_replaced(site: Site) -> None:
    launcher = site.programs / "mpirun.openmpi"
    real = launcher.resolve()
    launcher.unlink()
    _script(launcher, f'exec nice -n 19 {real} "$@"')


def variables_of_MPI_are_set(site: Site) -> None:  # noqa: N802
    site.environment |= {"OMPI_MCA_io": "romio321", "HDF5_USE_FILE_LOCKING": "FALSE"}


def commands_are_added_to_the_configuration(site: Site) -> None:
    with site.configuration.open("a") as stream:
        stream.write(
            "\nfor _partition in site_configuration['systems'][0]['partitions']:\n"
            "    _partition['prepare_cmds'] = ['ulimit -c 0']\n"
        )


def program_is_replaced(site: Site) -> None:
    """By one of the same version, with delays."""
    program = _benchio(site)
    _script(program, f'sleep 0.2; exec {program}.real "$@"')


def record_shows_another_directory(site: Site) -> None:
    _edit_record(site, 'record["filesystem"]["directory"] = "/dev/shm/iowatch"')


def check_file_is_missing(site: Site) -> None:
    (site.root / "reframe_tests/benchio.py").unlink()


def check_class_is_renamed(site: Site) -> None:
    site.edit(site.root / "reframe_tests/benchio.py", "class BenchioCheck", "class BenchioChecks")


def configuration_has_a_syntax_error(site: Site) -> None:
    site.configuration.write_text("site_configuration = {")


def launcher_is_unknown(site: Site) -> None:
    site.edit(site.configuration, '"launcher": "mpirun"', '"launcher": "mpirum"')


def clock_is_in_the_past(site: Site) -> None:
    site.environment |= {"LD_PRELOAD": str(_FAKETIME[0]), "FAKETIME": "-3d"}


def _add_large_case(site: Site) -> None:
    site.edit(site.suite, "- {api: [posix, hdf5], file: shared}", _LARGE)


_LARGE = """- {api: posix, file: shared}
  - {api: hdf5, file: shared, local: 64x64x64}"""


def case_never_fits_the_budget(site: Site) -> None:
    with site.facts.open("a") as stream:
        stream.write("night: {bytes: 1m}\n")


def results_are_damaged_on_their_way(site: Site) -> None:
    site.edit(site.root / "reframe_tests/benchio.py", "\nclass BuildBenchio", _DAMAGE)


_LIBRARY = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>
ssize_t pwrite64(int file, const void *data, size_t bytes, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    if (strcmp(program_invocation_short_name, "benchio") == 0 && bytes >= 4096) ((char *)data)[bytes / 2] ^= 1;
    return real(file, data, bytes, offset);
}
ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset) { return pwrite64(file, data, bytes, offset); }
"""


def library_writes_other_bytes(site: Site) -> None:
    source, library = site.place / "bytes.c", site.place / "bytes.so"
    source.write_text(_LIBRARY)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    site.environment["LD_PRELOAD"] = str(library)


_DAMAGE = """
from iowatch.checks import outputs


def _spool_damaged(spool, case, files, spool_case=outputs.spool_case):
    place = spool_case(spool, case, files)
    if "hdf5" in case.name:
        (place / "case.json").write_text("{")


outputs.spool_case = _spool_damaged


class BuildBenchio"""


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _benchio(site: Site) -> Path:
    """The path of the benchio that was built for the stack; the program itself is moved beside it."""
    (program,) = (site.var / "build/benchio/local").glob("*/benchio")
    program.rename(program.with_name("benchio.real"))
    return program


_WRAPPER = """\
import json, subprocess, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.benchmarks.sealed import sealed
code = subprocess.call([{program!r}, *sys.argv[1:]])
for path in Path.cwd().glob("*.json"):
    record = json.loads(path.read_text())
    if "schema" in record:
        {edit}
        path.write_text(sealed(record))
sys.exit(code)
"""


def _edit_record(site: Site, edit: str) -> None:
    """Replace benchio by a program that runs it, changes its record, and seals the record again."""
    program = _benchio(site)
    wrapper = site.place / "wrapper.py"
    wrapper.write_text(_WRAPPER.format(root=str(ROOT), program=str(program.with_name("benchio.real")), edit=edit))
    _script(program, f'exec {sys.executable} {wrapper} "$@"')


# Reasons are parts of what a red session prints.
ATTEMPTS = (
    Attempt(scratch_is_unmounted, "on another file system: found .*; expected mount", prepare=_mount_scratch),
    Attempt(
        scratch_is_unmounted_and_its_directory_exists,
        "on another file system: found .*; expected mount",
        2,
        _mount_scratch,
    ),
    Attempt(another_file_system_is_mounted_over_scratch, "on another file system: found .*; expected mount", 2),
    Attempt(scratch_is_misspelt, "scratch directory .* cannot be used: No such file"),
    Attempt(scratch_is_a_link_to_another_file_system, "on another file system: found .*; expected mount", 2),
    Attempt(library_disappears_from_PATH, "hdf5", 3),
    Attempt(probe_of_a_library_hangs, "not known whether the stack provides hdf5: `.*h5pcc.* did not answer"),
    Attempt(program_disappears_from_PATH, "ior", 2, _add_ior),
    Attempt(case_is_deleted_from_the_suite, "benchio:api=hdf5", 3),
    Attempt(case_is_renamed, "benchio:api=hdf5", 2),
    Attempt(case_is_changed_below_its_name, "series .* ended"),
    Attempt(operation_is_deleted_from_the_suite, "read bandwidth", 2),
    Attempt(suite_of_one_benchmark_is_deleted, "ior", 2, _add_ior),
    Attempt(limits_exclude_a_case, "ranks"),
    Attempt(page_cache_cannot_be_dropped, "cache", prepare=_tmpfs_scratch),
    Attempt(program_prints_the_record_of_the_last_session, "output is of another run"),
    Attempt(program_is_replaced, "benchio was changed, .*its SHA-256 is"),
    Attempt(program_is_replaced_together_with_its_checksum, "program SHA-256=.* instead of SHA-256=", 2),
    Attempt(node_has_no_xargs, "the node has no 'xargs'"),
    Attempt(launcher_is_replaced, "launcher .*mpirun.openmpi, .* instead of", 2),
    Attempt(variables_of_MPI_are_set, "HDF5_USE_FILE_LOCKING=FALSE, OMPI_MCA_io=romio321 instead of none", 2),
    Attempt(commands_are_added_to_the_configuration, "settings in reframe.py prepare_cmds of the partition", 2),
    Attempt(record_names_another_program_version, "output is of benchio 0.0.1, expected"),
    Attempt(record_names_another_MPI, "program used openmpi 3.0.1, the stack has"),
    Attempt(record_has_fewer_repetitions, "1 of 2 repetitions"),
    Attempt(record_shows_another_directory, "output is of files in /dev/shm/iowatch"),
    Attempt(check_file_is_missing, "benchio.py"),
    Attempt(check_class_is_renamed, "BenchioCheck"),
    Attempt(configuration_has_a_syntax_error, "not a valid ReFrame configuration: line 1"),
    Attempt(launcher_is_unknown, "mpirum"),
    Attempt(clock_is_in_the_past, "clock of this machine .* is before the newest session"),
    Attempt(case_never_fits_the_budget, "deferred in 3 .* budget", 3, _add_large_case, words=("--night",), within=True),
    Attempt(library_writes_other_bytes, "verif|differ", 7, words=("--night",), within=True),
    Attempt(results_are_damaged_on_their_way, "quarantine", 2),
)


def run_attempt(attempt: Attempt, place: Path) -> list[str]:
    """Run sessions without and with the fault in `place`; return what is wrong.

    Attempts that prepare nothing share the session without the fault: what it left is kept beside `place`, and put
    where it was made, because its files have absolute paths.
    """
    kept = place.with_name(f"{place.name}.kept")
    if attempt.prepare is None and kept.exists():
        shutil.copytree(kept, place, symlinks=True)
    site = Site(place)
    try:
        if attempt.prepare is not None or not kept.exists():
            if attempt.prepare:
                attempt.prepare(site)
            code, printed = site.session()
            if code != 0:
                return [f"{attempt.name}: red without the fault: {printed}"]
            if attempt.prepare is None:
                shutil.copytree(place, kept, symlinks=True)
        attempt.plant(site)
        found = []
        for number in range(1, attempt.sessions + 1):
            code, printed = site.session(*attempt.words)
            red = code in (1, 2, 3) and re.search(attempt.reason, printed) and "Traceback" not in printed
            if red and attempt.within:
                return []
            if not red:
                found.append(f"{attempt.name}, session {number}: exit code {code}, no '{attempt.reason}' in {printed}")
        return found
    finally:
        for mounted in (site.scratch, site.scratch.parent):
            _unmount(mounted)
        shutil.rmtree(site.linked_scratch, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)
