"""benchio under ReFrame: one test per case of `benchmarks/benchio/suites/`."""

import os
import re
import shlex
import sys
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import fixture, parameter, run_after, run_before, sanity_function

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from iowatch.core import settings
from reframe_tests.mixins.check import BenchmarkCheck, entries

# Compilers at a time: a login node is shared.
_MAKE_JOBS = min(4, len(os.sched_getaffinity(0)))


class BuildBenchio(rfm.RunOnlyRegressionTest):
    """Builds benchio for one stack in `var/build/benchio/<system>/<stack>`, if it is not up to date.

    Clusters with a shared home may have stacks of the same name, but with different compilers and processors.
    A stack that has its own benchio (feature `benchio`, from Spack) needs no build.
    """

    local = True
    descr = "build benchio"
    time_limit = "15m"  # compilers and their wrappers may hang, as on a stuck file system
    executable = "benchio"
    executable_opts = ["--version"]

    @run_before("run")
    def build(self) -> None:
        if "benchio" in self.current_environ.features:
            self.program = "benchio"
            return
        source = settings.product_root() / "benchmarks" / "benchio"
        builds = settings.var_directory().absolute() / "build" / "benchio"
        place = builds / self.current_system.name / self.current_environ.name
        self.program = str(place / "benchio")
        self.executable = shlex.quote(self.program)
        session, stamp = os.environ.get("IOWATCH_SESSION"), place / "built-in-session"
        if session and stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == session:
            return  # by an earlier start of ReFrame in this session
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF", f"-DCMAKE_C_COMPILER={self.current_environ.cc}"]
        commands = (
            ["cmake", "-S", str(source), "-B", str(place), *options],
            ["cmake", "--build", str(place), "--target", "benchio", "--parallel", str(_MAKE_JOBS)],
        )
        # CMake refuses a directory of other sources: iowatch was upgraded or moved to another environment.
        known = shlex.quote(f"CMAKE_HOME_DIRECTORY:INTERNAL={source}")
        self.prerun_cmds = [
            f"grep -qsxF {known} {shlex.quote(f'{place}/CMakeCache.txt')} || {shlex.join(['rm', '-rf', str(place)])}"
        ]
        self.prerun_cmds += [f"{shlex.join(words)} || exit 1" for words in commands]
        if session:
            self.postrun_cmds = [f"[ $? -ne 0 ] || echo {shlex.quote(session)} > {shlex.quote(str(stamp))}"]

    @sanity_function
    def runs(self) -> bool:
        """The program starts and prints its version."""
        files_of_job = [Path(self.stagedir) / str(sn.evaluate(name)) for name in (self.stderr, self.stdout)]
        return sn.assert_found(r"^benchio ", self.stdout, msg=build_failure(*files_of_job))


def build_failure(stderr: Path, stdout: Path) -> str:
    """Why benchio did not build or start: its first error, else its last line, and the files with the rest."""
    lines = [line.strip() for path in (stderr, stdout) for line in path.read_text(errors="replace").splitlines()]
    lines = [line for line in lines if line]
    errors = [i for i, line in enumerate(lines) if re.search(r"\berror\b|not found|No such file", line, re.IGNORECASE)]
    # CMake prints the reason below the line with the error.
    cause = " ".join(lines[errors[0] : errors[0] + 2]) if errors else lines[-1] if lines else "no output"
    return f"benchio did not build or start: {cause[:300]} (whole output: {stderr} and {stdout.name})"


@rfm.simple_test
class BenchioCheck(BenchmarkCheck):
    """One case of benchio, on every stack that has the libraries for it."""

    benchmark = "benchio"
    entry = parameter(entries("benchio"))
    built = fixture(BuildBenchio, scope="environment")

    @run_after("setup")
    def use_built_program(self) -> None:
        self.program = self.built.program
        sources = settings.product_root() / "benchmarks" / "benchio" / "CMakeLists.txt"
        version = re.search(r"^project\(benchio VERSION (\S+)", sources.read_text(encoding="utf-8"), re.MULTILINE)
        self.built_version = version.group(1) if version else None
