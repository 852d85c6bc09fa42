"""Searches among commits: ranges, merges, commits that do not build, and what is kept of builds."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from iowatch.core import UsageError
from iowatch.experiments.bisect.commits import CommitBisection, CommitRange, CommitSource
from iowatch.experiments.bisect.search import BisectionAnswer, BisectionSettings
from iowatch.experiments.common import commits as commit_builds
from iowatch.site import Stack, StackPart


class Repository:
    """A repository whose commits are named by their subjects."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        names = {f"GIT_{who}_{what}": "t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": "/dev/null"}
        command = ["git", "-C", str(self.place), *words]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    def commit(self, subject: str, build: str = "cp tool $IOWATCH_PREFIX/bin") -> None:
        (self.place / f"{subject}.txt").write_text(subject)
        (self.place / "tool").write_text("#!/bin/sh\necho tool 1.2.3\n")
        (self.place / "tool").chmod(0o755)
        (self.place / "build.sh").write_text(f"mkdir $IOWATCH_PREFIX/bin && {build}\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", subject)
        self.git("tag", subject)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """good - a - b - c - merge - d - bad, where the merge also has the side branch x - y from a."""
    found = Repository(tmp_path_factory.mktemp("git") / "repository")
    for subject in ("good", "a"):
        found.commit(subject)
    found.git("checkout", "-q", "-b", "side")
    for subject in ("x", "y"):
        found.commit(subject)
    found.git("checkout", "-q", "main")
    found.commit("b", "printf 'warning: deprecated\\nerror: no such header\\n' >&2; false")
    found.commit("c")
    found.git("checkout", "-q", "c", "--", "build.sh")
    found.git("merge", "-q", "--no-ff", "-X", "ours", "-m", "merge", "side")
    for subject in ("d", "bad"):
        found.commit(subject)
    return found


def search(commits: CommitRange, slow: str, broken: tuple[str, ...] = ()) -> tuple[list[str], BisectionAnswer]:
    """Names of the commits that a search names, if `slow` and all that contain it cost 20 %, and its answer."""
    names = [part.bad for part in commits.parts()]
    rng = np.random.default_rng(1)
    tips = {commits.contained(place): place for place in range(len(names))}
    usable = lambda chosen: not chosen or names[tips[chosen]] not in broken  # noqa: E731
    bisection = CommitBisection(len(names), usable, BisectionSettings(), commits=commits)
    while (request := bisection.request) is not None:
        costs = [0.2 * (names.index(slow) in side) for side in (request.left, request.right)]
        bisection.record(costs[0] - costs[1] + rng.normal(0, 0.01))
    answer = bisection.answer()
    return [str(names[part]) for one in answer.culprits for part in one.parts], answer


@pytest.mark.parametrize("slow", ["a", "b", "c", "x", "y", "merge", "d", "bad"])
def test_first_bad_commit_is_found_also_beside_and_at_a_merge(repository: Repository, slow: str) -> None:
    named, answer = search(CommitRange(repository.place, "good..bad"), slow)
    assert named == [slow]
    assert answer.culprits[0].kind == "single"
    assert answer.culprits[0].test.log_ratio == pytest.approx(-0.2, abs=0.01)
    assert answer.candidates == ()


def test_commit_that_does_not_build_is_skipped(repository: Repository) -> None:
    """As `git bisect skip`: if its neighbour is the first bad one, they cannot be separated."""
    commits = CommitRange(repository.place, "good..bad")
    assert search(commits, "a", ("b",))[0] == ["a"]
    named, answer = search(commits, "c", ("b",))
    assert named == ["b", "c"]
    assert answer.culprits[0].kind == "inseparable"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("good", "is not a range of commits"),
        ("good..", "is not a range of commits"),
        ("good...bad", "is not a range of commits"),
        ("good..nosuch", "no commit 'nosuch' in "),
        ("x..c", "x is not an ancestor of c"),
        ("good..good", "good is not an ancestor of good"),
    ],
)
def test_ranges_without_a_first_bad_commit_are_refused(repository: Repository, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CommitRange(repository.place, text).parts()


def test_directory_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a git repository"):
        CommitRange(tmp_path, "good..bad").parts()


@pytest.fixture
def source(repository: Repository, var: Path, monkeypatch: pytest.MonkeyPatch) -> CommitSource:
    """Its builds, in a stack that needs no modules."""

    def described(system: str, values: dict[str, str], _hints: str, _modules: object, paths: object) -> Stack:
        name = f"bisect-{values['IOWATCH_COMMIT'][:8]}"
        return Stack(name, system, "modules", "installed", (StackPart("openmpi", "4"),), ("openmpi",), values, paths)  # type: ignore[arg-type]

    monkeypatch.setattr(commit_builds, "describe_hybrid", described)
    commits, base = CommitRange(repository.place, "good..bad"), Stack("base", "local", "modules", "installed", ())
    return CommitSource("local", "tool", commits, base, "sh build.sh", commits.parts())


def test_commit_is_built_once_and_part_of_the_stack(source: CommitSource, var: Path) -> None:
    stack = source.stack(source.commits.contained(0))
    part = stack.part("tool")
    assert part is not None
    assert (part.version, part.variants) == ("1.2.3", {"commit": source.commits.commits[0]})
    assert Path(stack.paths["PATH"][0], "tool").is_file()
    before = Path(stack.paths["PATH"][0], "tool").stat().st_mtime_ns
    again = CommitSource("local", "tool", source.commits, source.base, "sh build.sh", source.parts)
    assert again.stack(source.commits.contained(0)).paths == stack.paths
    assert Path(stack.paths["PATH"][0], "tool").stat().st_mtime_ns == before


def test_clone_that_an_ended_git_left_is_made_again(source: CommitSource) -> None:
    """A lock of a git that was killed would refuse every later checkout."""
    good, bad = source.commits.ends
    source.built_stack(good)
    (clone,) = source._cache.glob("source-*")
    (clone / ".git" / "index.lock").touch()
    assert source.built_stack(bad).status == "installed"
    assert not (clone / ".git" / "index.lock").exists()


def test_half_of_a_clone_does_not_change_the_repository_around_it(
    repository: Repository, source: CommitSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`var` may be in a checkout of the library itself, which git uses where a directory is no repository."""
    monkeypatch.setenv("IOWATCH_VAR", str(repository.place / "var"))
    good, _ = source.commits.ends
    source.built_stack(good)
    (clone,) = source._cache.glob("source-*")
    for build in source._cache.glob("*/built"):
        build.unlink()
    (clone / ".git" / "HEAD").unlink()
    (repository.place / "tool").write_text("not committed\n")
    assert source.built_stack(good).status == "installed"
    assert (repository.place / "tool").read_text() == "not committed\n"
    assert repository.git("branch", "--show-current").strip() == "main"
    repository.git("checkout", "-q", "--", "tool")
    shutil.rmtree(repository.place / "var")


def test_reason_of_a_failed_build_is_kept(source: CommitSource) -> None:
    """The last message: warnings come before the error that ended the build."""
    place = next(n for n, part in enumerate(source.parts) if part.bad == "b")
    stack = source.stack(source.commits.contained(place))
    assert stack.status == "broken"
    assert "does not build: error: no such header" in str(stack.note)


def test_build_without_the_package_is_no_stack(source: CommitSource) -> None:
    source.package = "other"
    assert "installs no 'other'" in str(source.stack(frozenset()).note)


def test_unused_builds_are_removed_beyond_the_size(source: CommitSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOWATCH_BUILD_CACHE_SIZE", "1")
    first = CommitSource("local", "tool", source.commits, source.base, "sh build.sh", source.parts)
    old = Path(first.stack(frozenset()).paths["PATH"][0])
    source.stack(source.commits.contained(0))
    assert not old.exists()
