"""The builds of the project's programs for a stack: lines of a job that build them where they are not up to date."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from iowatch.checks.order import RunOrder
from iowatch.checks.run import JobScript
from iowatch.core import settings

# Compilers at a time: a login node is shared.
_MAKE_JOBS = min(4, len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class BenchioBuild:
    """A build of benchio in `var/build/benchio/<system>/<stack>`.

    Clusters with a shared home may have stacks of the same name, but with different compilers and processors.
    """

    system: str
    environment: str
    compiler: str

    @property
    def directory(self) -> Path:
        builds = settings.var_directory().absolute() / "build" / "benchio"
        return builds / self.system / self.environment

    @property
    def program(self) -> Path:
        return self.directory / "benchio"

    def script(self, order: RunOrder) -> JobScript:
        """The lines that build it, once per session."""
        stamp = self.directory / "built-in-session"
        session = order.session
        if session and stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == session:
            return JobScript()  # by an earlier start of ReFrame in this session
        source, directory = str(benchio_source()), str(self.directory)
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF", f"-DCMAKE_C_COMPILER={self.compiler}"]
        configure = ["cmake", "-S", source, "-B", directory, *options]
        build = ["cmake", "--build", directory, "--target", "benchio", "--parallel", str(_MAKE_JOBS)]
        # CMake refuses a directory of other sources: iowatch was upgraded or moved to another environment.
        same_source = shlex.quote(f"CMAKE_HOME_DIRECTORY:INTERNAL={source}")
        cache = shlex.quote(f"{directory}/CMakeCache.txt")
        before = [
            f"grep -qsxF {same_source} {cache} || {shlex.join(['rm', '-rf', directory])}",
            f"{shlex.join(configure)} || exit 1",
            f"{shlex.join(build)} || exit 1",
        ]
        after = []
        if session:
            after.append(f"[ $? -ne 0 ] || echo {shlex.quote(session)} > {shlex.quote(str(stamp))}")
        return JobScript(before=before, after=after)


def benchio_source() -> Path:
    """Return the directory with the source code of benchio."""
    return settings.product_root() / "benchmarks" / "benchio"


def benchio_version() -> str | None:
    """Return the version of the source code of benchio."""
    text = (benchio_source() / "CMakeLists.txt").read_text(encoding="utf-8")
    version = re.search(r"^project\(benchio VERSION (\S+)", text, re.MULTILINE)
    return version.group(1) if version else None


@dataclass(frozen=True)
class SourceFileBuild:
    """A build of a program of one source file in `var/build/<name>/<system>/<stack>`.

    Attributes:
        name: of the program, of its source file, and of its directory in `benchmarks/`.
    """

    name: str
    system: str
    environment: str
    compiler: str

    @property
    def program(self) -> Path:
        builds = settings.var_directory().absolute() / "build" / self.name
        return builds / self.system / self.environment / self.name

    def commands(self) -> list[str]:
        """The lines that compile it: always, because the stack may have another compiler since the last session."""
        source = settings.product_root() / "benchmarks" / self.name / "src" / f"{self.name}.c"
        # A job of another session may be running the program.
        new_program = f"{self.program}.new"
        compile_words = [self.compiler, "-std=c11", "-O2", "-pthread", "-o", new_program, str(source)]
        return [
            f"{shlex.join(['mkdir', '-p', str(self.program.parent)])} || exit 1",
            f"{shlex.join(compile_words)} || exit 1",
            f"{shlex.join(['mv', new_program, str(self.program)])} || exit 1",
        ]


def build_failure(program: str, stderr: Path, stdout: Path) -> str:
    """Return why a program did not build or start: its first error, else its last line, and the files with the rest."""
    lines = []
    for path in (stderr, stdout):
        for line in path.read_text(errors="replace").splitlines():
            if line.strip():
                lines.append(line.strip())
    cause = lines[-1] if lines else "no output"
    for number, line in enumerate(lines):
        if re.search(r"\berror\b|not found|No such file", line, re.IGNORECASE):
            # CMake prints the reason below the line with the error.
            cause = " ".join(lines[number : number + 2])
            break
    return f"{program} did not build or start: {cause[:300]} (whole output: {stderr} and {stdout.name})"
