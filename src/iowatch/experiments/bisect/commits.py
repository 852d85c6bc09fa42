"""`iowatch bisect --package`: which commit of a package causes a difference, with the semantics of `git bisect`.

`git rev-list --bisect-all` chooses where to measure next; a commit that does not build is skipped.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from iowatch.experiments.bisect.run import BisectRun
from iowatch.experiments.bisect.search import Bisection, BisectionTest, CulpritKind, PairRequest, contains_zero
from iowatch.experiments.common.commits import CommitRange, CommitSource, Group
from iowatch.session.plan import PlannedRun


@dataclass
class CommitBisection(Bisection):
    """A search among commits: halves are chosen by git, and a commit is measured with all that it contains."""

    commits: CommitRange = field(kw_only=True)

    def _search(self) -> Generator[PairRequest, float, None]:
        whole = yield from self._confirm()
        if whole.result != "different":
            return
        bad, good, skipped = self.parts - 1, list[int](), frozenset[int]()
        before, after = 0.0, whole.log_ratio or 0.0
        known_good: Group = frozenset()
        while True:
            remaining = self.commits.contained(bad) - known_good
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
                known_good |= self.commits.contained(commit)
                # A part of the difference that is certain is before this commit.
                if test.log_ratio and not contains_zero(test):
                    before = test.log_ratio
            else:
                bad, after = commit, test.log_ratio or after
        yield from self._confirm_alone(bad, good, remaining, after - before, whole)

    def _confirm_alone(
        self, bad: int, good: Sequence[int], remaining: Group, size: float, whole: BisectionTest
    ) -> Generator[PairRequest, float, None]:
        """The first bad commit against the commit before it, and what comes after it."""
        base = max(map(self.commits.contained, good), key=len, default=frozenset())
        if not base <= self.commits.contained(bad):
            base = frozenset()
        test = yield from self._test_hybrid(base, self.commits.contained(bad), 0.0, size, "alone")
        if test is None or test.result in ("undecided", "like GOOD"):
            return
        kind: CulpritKind = "single" if len(remaining) == 1 else "inseparable"
        self._add_culprit(tuple(sorted(remaining)), kind, test, whole)
        self._candidates = tuple(sorted(self._all - self.commits.contained(bad)))
        if self._candidates:
            rest = yield from self._measure_rest(self.commits.contained(bad), whole)
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
