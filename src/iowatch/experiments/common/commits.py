"""Builds of the commits of a package, each once.

Each commit is built into a directory of its own, in a clone that shares the objects of the repository, which is not
changed. A range of commits has the semantics of `git bisect`: a commit stands for all commits between GOOD and itself,
so that GOOD is no part of the range, BAD all of it, and merges need no special rule.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from iowatch.core import MachineError, UsageError, parse_size, settings, write_atomically
from iowatch.experiments.common.builds import prefix_paths
from iowatch.experiments.common.hybrids import HybridPart, describe_hybrid
from iowatch.site import Stack, StackPart, load_stack, machine, write_stack_files
from iowatch.site.stack import probe as stack_probe

_LOG = logging.getLogger(__name__)

# Positions of commits, or of parts of a stack, that a build has.
Group = frozenset[int]
_GIT_TIMEOUT_S, _BUILD_TIMEOUT_S = 300.0, 3600.0
_DEFAULT_BUILDS = {
    "CMakeLists.txt": 'cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$IOWATCH_PREFIX" && '
    "cmake --build build -j && cmake --install build",
    "configure": './configure --prefix="$IOWATCH_PREFIX" && make -j && make install',
}


def git(directory: Path, *words: str, is_top: bool = False) -> str:
    """Return the output of a git command.

    Args:
        is_top: whether the directory must be the top of its repository: a damaged one is an error then, while git would
            otherwise use a repository around it.

    Raises:
        UsageError: it fails; with git's message.
    """
    command = ["git", "-C", str(directory)]
    if is_top:
        command.append("--git-dir=.git")
    try:
        completed = machine.run_program(*command, *words, timeout_s=_GIT_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineError(f"cannot run git: {error}", hint="apt-get install git") from error
    if completed.returncode != 0:
        reason = completed.stderr.strip() or "failed"
        raise UsageError(f"git {words[0]} in {directory}: {reason}", hint="Check --git and the range.")
    return completed.stdout


@dataclass(frozen=True)
class CommitRange:
    """The commits after GOOD up to BAD, parents before children; their positions are the parts of the search.

    Raises:
        UsageError: not a range of commits, or GOOD is no ancestor of BAD.
    """

    directory: Path
    text: str

    @cached_property
    def ends(self) -> tuple[str, str]:
        """Hashes of GOOD and BAD."""
        good, separator, bad = self.text.partition("..")
        if not separator or not good or not bad or bad.startswith("."):
            raise UsageError(f"'{self.text}' is not a range of commits", hint="GOOD..BAD, for example v1.2..v1.3")
        good_commit = self.resolve(good)
        bad_commit = self.resolve(bad)
        newest_common = git(self.directory, "merge-base", good_commit, bad_commit).strip()
        if newest_common != good_commit or good_commit == bad_commit:
            raise UsageError(
                f"{good} is not an ancestor of {bad}: no commit between them can be the first bad one",
                hint=f"`git merge-base {good} {bad}` is the newest commit that both contain; is it good?",
            )
        return good_commit, bad_commit

    def resolve(self, name: str) -> str:
        """Hash of a commit as git names it."""
        try:
            return git(self.directory, "rev-parse", "--verify", f"{name}^{{commit}}").strip()
        except UsageError as error:
            git(self.directory, "rev-parse", "--git-dir")  # no repository at all: its own message
            raise UsageError(
                f"no commit '{name}' in {self.directory}", hint="GOOD..BAD, as git names commits"
            ) from error

    @cached_property
    def commits(self) -> tuple[str, ...]:
        """Hashes."""
        first, last = self.ends
        return tuple(git(self.directory, "rev-list", "--topo-order", "--reverse", f"{first}..{last}").split())

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {commit: position for position, commit in enumerate(self.commits)}

    def parts(self) -> tuple[HybridPart, ...]:
        """Each commit with its subject."""
        first, last = self.ends
        words = "log", "--topo-order", "--reverse", "--format=%h %s"
        lines = git(self.directory, *words, f"{first}..{last}").splitlines()
        parts = []
        for line in lines:
            commit, _, subject = line.partition(" ")
            parts.append(HybridPart("commit", commit, None, subject))
        return tuple(parts)

    def contained(self, position: int) -> Group:
        """The commits that this one contains, itself included."""
        commits = git(self.directory, "rev-list", f"{self.ends[0]}..{self.commits[position]}").split()
        return frozenset(self._positions[commit] for commit in commits)

    def choose(self, good: Sequence[int], bad: int, skipped: Group) -> int | None:
        """The commit that divides those between `good` and `bad` best; None if there is none to measure."""
        good_commits = [*(self.commits[position] for position in good), self.ends[0]]
        excluded = [f"^{commit}" for commit in good_commits]
        # The best first; each line begins with the commit.
        lines = git(self.directory, "rev-list", "--bisect-all", self.commits[bad], *excluded).splitlines()
        for line in lines:
            position = self._positions[line.split()[0]]
            if position != bad and position not in skipped:
                return position
        return None


@dataclass
class CommitSource:
    """A package at the commits of a range, built for one stack; used as `HybridSource`.

    Attributes:
        base: the stack whose modules, libraries and settings the builds use.
        command: builds and installs: a line of bash in the checkout, with `IOWATCH_PREFIX` and `IOWATCH_COMMIT`.
        parts: the commits.
    """

    system: str
    package: str
    commits: CommitRange
    base: Stack
    command: str | None
    parts: tuple[HybridPart, ...]
    _stacks: dict[Group, Stack] = field(default_factory=dict)

    @property
    def good(self) -> str:
        """Name in reports."""
        return f"{self.package}@{self.commits.ends[0][:12]}"

    @property
    def bad(self) -> str:
        """Name in reports."""
        return f"{self.package}@{self.commits.ends[1][:12]}"

    def stack(self, contained: Group) -> Stack:
        """The stack with the package at the commit that contains these; it is built if it is not yet."""
        if contained not in self._stacks:
            commit, _ = self.commits.ends
            if contained:
                commit = self.commits.commits[max(contained)]
            self._stacks[contained] = self.built_stack(commit)
        return self._stacks[contained]

    resolved = stack  # a commit has no cheaper test than its build

    @property
    def _cache(self) -> Path:
        return settings.var_directory().absolute() / "build" / "bisect"

    def built_stack(self, commit: str) -> Stack:
        """The stack with the package at a commit, built if it is not yet; broken, with the reason, if it cannot be."""
        build_input = repr((self.base.identity(), self.command, self.package, commit))
        directory = self._cache / hashlib.sha256(build_input.encode()).hexdigest()[:16]
        # The marker stands for a complete build; without it, what an interrupted one left is removed.
        marker = directory / "built"
        if not marker.exists():
            _LOG.info("building %s at %s", self.package, commit[:12])
            shutil.rmtree(directory, ignore_errors=True)
            reason = self._build(commit, directory)
            if reason is not None:
                name = f"bisect-{commit[:8]}"
                return Stack(name, self.system, "modules", "broken", (), note=f"{commit[:12]} does not build: {reason}")
            marker.touch()
            self._limit_cache(directory)
        # Its time is that of the last use.
        marker.touch()
        # The build is described as a stack of its own: that of the base, with its directories first.
        prefix = directory / "prefix"
        paths = prefix_paths([prefix])
        paths["PATH"] = (*paths.get("PATH", ()), *self._base_programs)
        settings_of_commit = {**self.base.settings, "IOWATCH_COMMIT": commit}
        stack = describe_hybrid(self.system, settings_of_commit, "", self.base.modules, paths)
        if stack.status != "installed":
            return stack
        return self._with_package(stack, prefix, commit)

    def _with_package(self, stack: Stack, prefix: Path, commit: str) -> Stack:
        """The stack with the commit as a variant of the package, which must be the one that was built."""
        package = stack.part(self.package)
        # A package that iowatch does not find by itself is described by its program.
        program = prefix / "bin" / self.package
        is_built = package is not None and str(package.prefix).startswith(str(prefix))
        if program.is_file() and not is_built:
            package = self._describe_program(program, prefix)
        if package is None or not _is_installed_in(package, prefix):
            note = f"the build of {commit[:12]} installs no '{self.package}' that iowatch finds in {prefix}"
            return replace(stack, status="broken", note=note)
        # The commit makes stacks differ whose package has the same version.
        package = replace(package, variants={**package.variants, "commit": commit})
        packages = [package, *(other for other in stack.parts if other.name != self.package)]
        packages.sort(key=lambda stack_part: stack_part.name)
        features = {*stack.features, *stack_probe.features_of_parts([package])}
        return replace(stack, parts=tuple(packages), features=tuple(sorted(features)))

    def _describe_program(self, program: Path, prefix: Path) -> StackPart:
        printed = machine.query_command(str(program), "--version") or ""
        version = re.search(r"\d+(\.\d+)+", printed)
        digest = hashlib.sha256(program.read_bytes()).hexdigest()
        return StackPart(
            self.package,
            version[0] if version else "unknown",
            prefix=str(prefix),
            files=(str(program),),
            checksums={str(program): digest},
        )

    def _checkout(self, commit: str) -> Path:
        """Check a commit out in the clone that all builds share; return its directory."""
        source = self._cache / f"source-{self._repository}"
        try:
            self._check_out_in(source, commit)
        except UsageError:
            # A git that was ended, as at the end of a gate's time, leaves its locks or half of a clone.
            shutil.rmtree(source, ignore_errors=True)
            self._check_out_in(source, commit)
        return source

    def _check_out_in(self, source: Path, commit: str) -> None:
        """Check a commit out in a clone, which is made if it does not exist.

        Raises:
            UsageError: git failed.
        """
        if not (source / ".git").exists():
            git(self.commits.directory, "clone", "--quiet", "--shared", "--no-checkout", ".", str(source))
        # These discard changes: never those of a checkout that `var` is in.
        git(source, "checkout", "--quiet", "--force", "--detach", commit, is_top=True)
        git(source, "clean", "-ffdxq", is_top=True)
        if (source / ".gitmodules").is_file():
            git(source, "submodule", "update", "--init", "--recursive", "--quiet")

    def _build_command(self, source: Path, commit: str) -> str:
        """Return the command that builds a checkout.

        Raises:
            UsageError: none was given, and the checkout has no usual one.
        """
        if self.command:
            return self.command
        for file, command in _DEFAULT_BUILDS.items():
            if (source / file).is_file():
                return command
        raise UsageError(
            f"no CMakeLists.txt or configure at the top of {commit[:12]}: how is {self.package} built?",
            hint="--build 'make && make install PREFIX=\"$IOWATCH_PREFIX\"'",
        )

    def _build(self, commit: str, directory: Path) -> str | None:
        """Build a commit into `directory`/prefix; the reason if it does not build."""
        prefix, log = directory / "prefix", directory / "build.log"
        prefix.mkdir(parents=True)
        source = self._checkout(commit)
        # In the environment of the stack, so that its compiler and libraries are used.
        script = [
            f". {shlex.quote(str(self._activation))} || exit 1",
            f"cd {shlex.quote(str(source))} || exit 1",
            self._build_command(source, commit),
        ]
        variables = {"IOWATCH_PREFIX": str(prefix), "IOWATCH_COMMIT": commit}
        try:
            completed = _run_build("\n".join(script), variables)
        except subprocess.SubprocessError as error:
            return str(error)
        write_atomically(log, completed.stdout + completed.stderr)
        if completed.returncode == 0:
            return None
        # The last line usually has the error.
        printed = completed.stderr or completed.stdout
        messages = [line.strip() for line in printed.splitlines() if line.strip()]
        last_message = messages[-1] if messages else "no output"
        return f"{last_message} ({log})"

    @cached_property
    def _activation(self) -> Path:
        return write_stack_files(self.base) / "activate.sh"

    @property
    def _base_programs(self) -> tuple[str, ...]:
        """Directories of the programs of the base that its modules do not bring."""
        tools = (str(self._activation.parent / "bin"),) if self.base.tools else ()
        return (*tools, *self.base.paths.get("PATH", ()))

    @property
    def _repository(self) -> str:
        return hashlib.sha256(str(self.commits.directory.resolve()).encode()).hexdigest()[:12]

    def _limit_cache(self, newest: Path) -> None:
        """Remove the builds that were not used for longest, beyond the size of the cache.

        Args:
            newest: directory of a build that is kept.
        """
        markers = sorted(self._cache.glob("*/built"), key=lambda path: -path.stat().st_mtime)
        limit_bytes = parse_size(settings.site_settings().build_cache_size)
        used_bytes = 0
        for marker in markers:
            directory = marker.parent
            used_bytes += sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file())
            is_in_use = directory == newest or directory / "prefix" in self._used_prefixes
            if used_bytes > limit_bytes and not is_in_use:
                shutil.rmtree(directory)

    @property
    def _used_prefixes(self) -> set[Path]:
        """Directories of the package in the stacks of this search."""
        prefixes: set[Path] = set()
        for stack in self._stacks.values():
            package = stack.part(self.package)
            if package is not None and package.prefix:
                prefixes.add(Path(package.prefix))
        return prefixes


def _run_build(script: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a build in a group of processes of its own, which ends with it, also after an exception.

    Raises:
        subprocess.TimeoutExpired: it takes too long.
    """
    process = subprocess.Popen(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **variables},
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=_BUILD_TIMEOUT_S)
    except BaseException:
        # The compilers that it started would disturb what is measured next.
        machine.end_process_group(process)
        process.wait()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def _is_installed_in(package: StackPart, prefix: Path) -> bool:
    """Whether a package, or one of its files, is below a directory."""
    if package.prefix and Path(package.prefix).is_relative_to(prefix):
        return True
    return any(Path(file).is_relative_to(prefix) for file in package.files)


def commit_source(system: str, package: str, commits: CommitRange, stack: str, command: str | None) -> CommitSource:
    """Return the commits of a range, built for a stack of modules or of the operating system.

    Raises:
        UsageError: not a range of commits; unknown stack, or one that Spack built.
    """
    base = load_stack(stack, system)
    message = f"commits cannot be built for stack '{stack}' of '{system}'"
    hint = "Choose a stack of modules or of the operating system (`iowatch stack list`)."
    if base.status != "installed":
        raise UsageError(f"{message}: {base.note}", hint=hint)
    if base.kind == "spack":
        raise UsageError(f"{message}: its programs are linked against the packages of Spack", hint=hint)
    return CommitSource(system, package, commits, base, command, parts=commits.parts())
