"""`iowatch bisect --package`: which commit of a package causes a difference, with the semantics of `git bisect`.

`git rev-list --bisect-all` chooses where to measure next; a commit that does not build is skipped.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from iowatch.experiments.bisect.run import BisectRun
from iowatch.experiments.bisect.search import Bisection, BisectionTest, Cause, CulpritKind, PairRequest, contains_zero
from iowatch.experiments.common.commits import CommitRange, CommitSource, Group
from iowatch.session.plan import PlannedRun


@dataclass(frozen=True, slots=True)
class _FirstBad:
    """The first bad commit of a range, as far as the search came.

    Attributes:
        commit: its position in the range.
        base: commits that the newest good commit contains, if the bad one contains them too; else none.
        remaining: the commit, and those that were skipped before it: any of them may be the first bad one.
        size: log ratio that appears with it.
    """

    commit: int
    base: Group
    remaining: Group
    size: float


@dataclass
class CommitBisection(Bisection):
    """A search among commits: halves are chosen by git, and a commit is measured with all that it contains."""

    commits: CommitRange = field(kw_only=True)

    def _search(self) -> Generator[PairRequest, float, None]:
        whole = yield from self._confirm()
        if whole.result != "different":
            return
        # The range of git: the first bad commit is among those that the last bad one contains and no good one does.
        bad = self.parts - 1
        good: list[int] = []
        skipped: frozenset[int] = frozenset()
        before, after = 0.0, whole.log_ratio or 0.0
        good_commits: Group = frozenset()
        while True:
            remaining = self.commits.contained(bad) - good_commits
            self._candidates = tuple(sorted(remaining))
            commit = self.commits.choose(good, bad, skipped)
            if commit is None:
                break
            test = yield from self._test_hybrid(frozenset(), self.commits.contained(commit), before, after, "search")
            if test is None:
                skipped |= {commit}
            elif test.result == "undecided":
                return
            elif test.result == "like GOOD":
                good.append(commit)
                good_commits |= self.commits.contained(commit)
                # A part of the difference that is certain is before this commit.
                if test.log_ratio and not contains_zero(test):
                    before = test.log_ratio
            else:
                bad = commit
                after = test.log_ratio or after
        # The newest good commit is the base on which the first bad one is confirmed.
        base = max(map(self.commits.contained, good), key=len, default=frozenset())
        if not base <= self.commits.contained(bad):
            base = frozenset()
        yield from self._confirm_alone(_FirstBad(bad, base, remaining, after - before), whole)

    def _confirm_alone(self, first_bad: _FirstBad, whole: BisectionTest) -> Generator[PairRequest, float, None]:
        """The first bad commit against the commit before it, and what comes after it."""
        bad_commits = self.commits.contained(first_bad.commit)
        test = yield from self._test_hybrid(first_bad.base, bad_commits, 0.0, first_bad.size, "alone")
        if test is None or test.result in ("undecided", "like GOOD"):
            return
        culprit_kind: CulpritKind = "single" if len(first_bad.remaining) == 1 else "inseparable"
        self._add_culprit(Cause(tuple(sorted(first_bad.remaining)), culprit_kind, test), whole)
        # Later commits can have a share of the difference.
        self._candidates = tuple(sorted(self._all - bad_commits))
        if self._candidates:
            rest = yield from self._measure_rest(bad_commits, whole)
            if rest.result == "no difference":
                self._candidates = ()


class CommitRun(BisectRun):
    """A search among commits."""

    source: CommitSource

    def _groups(self, planned: PlannedRun) -> tuple[Group, ...]:
        return tuple(frozenset([position]) for position in range(len(self.source.parts)))

    def _new_bisection(self, groups: Sequence[Group], planned: PlannedRun) -> Bisection:
        return CommitBisection(
            len(groups),
            lambda commits: self._is_usable(commits, planned),
            self.options.settings,
            commits=self.source.commits,
        )
