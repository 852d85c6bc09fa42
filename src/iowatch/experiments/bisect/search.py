"""Which of the parts in which two stacks differ causes their difference: the next pair to measure, and the answer.

GOOD and BAD differ in numbered parts; a hybrid is GOOD with some of BAD's parts. `Bisection.request` names the two
hybrids of the next pair and `Bisection.record` takes its log ratio, so the caller decides how pairs are measured, and
repeats them from its records after an interruption: equal pairs give equal requests. docs/bisect.md has the method.

Each test ends with a confidence sequence of its own share of the error rate (`iowatch.statistics.sequential`). Steps of
the search only choose where to look. A part is named only if GOOD with this part alone was measured and differs from
GOOD in the direction of the difference, so that a part without any effect is named with at most that probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Literal

from iowatch.statistics.sequential import NoiseScale, SequentialCentre, expected_pairs, fewest_pairs

Parts = frozenset[int]
Purpose = Literal["whole", "search", "alone", "rest"]
Result = Literal["like GOOD", "like BAD", "between", "no difference", "different", "undecided", "not usable"]
AnswerKind = Literal["no difference", "found", "narrowed", "undecided"]
CulpritKind = Literal["single", "together", "inseparable"]

# A search step enters a half of the remaining parts if it has more than this share of the difference.
_MARGIN = 0.35
# The whole difference is confirmed if it exceeds this share of its estimate: a first estimate is often too large.
_CONFIRMED_SHARE = 0.4
# What is left without the parts that were found is small below this share of the whole.
_SMALL_REST = 0.5
_PAIRS_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class BisectionSettings:
    """Thresholds of a bisection.

    Attributes:
        error_rate: probability that any interval misses, and so that a part without effect is named.
        negligible: a whole difference within this (0.05 is 5 %) is not bisected.
        most_pairs: pairs after which a test is undecided.
    """

    error_rate: float = 0.05
    negligible: float = 0.05
    most_pairs: int = 400


@dataclass(frozen=True, slots=True)
class PairRequest:
    """A pair to measure: numbers of BAD's parts in the two stacks; the log ratio is ln(right / left)."""

    left: Parts
    right: Parts


@dataclass(frozen=True, slots=True)
class BisectionTest:
    """One measured contrast.

    Attributes:
        purpose: the whole difference, a step of the search, parts alone, or the rest without the parts found.
        pairs: number of pairs.
        log_ratio: median of ln(right / left), or None without pairs.
        interval: of the log ratio; all intervals of a bisection hold together with 1 - error rate; may be infinite.
    """

    request: PairRequest
    purpose: Purpose
    pairs: int
    log_ratio: float | None
    interval: tuple[float, float]
    result: Result


@dataclass(frozen=True, slots=True)
class Culprit:
    """Parts that cause the difference, or a share of it.

    Attributes:
        kind: one part; parts that have an effect only together; parts that no usable hybrid separates.
        test: of these parts, on GOOD or on GOOD with the parts found before, against the same without them.
        share, share_interval: of the whole difference, as a fraction; ends may be infinite.
    """

    parts: tuple[int, ...]
    kind: CulpritKind
    test: BisectionTest
    share: float
    share_interval: tuple[float, float]


@dataclass(frozen=True)
class BisectionAnswer:
    """What a bisection found.

    Attributes:
        kind: `found`: the culprits explain the difference, or a share of it; `narrowed`: the difference, or the rest of
            it, is in `candidates`, and no further step was decided; `undecided`: not even the whole difference.
        candidates: parts among which the cause, or a further cause, is; empty if the search is complete.
        whole: the test of the whole difference; None if nothing was measured.
        rest: BAD against GOOD with all culprits; None if not measured.
        tests: all tests in their order.
        bound: x of "no difference above x", as a fraction.
    """

    kind: AnswerKind
    culprits: tuple[Culprit, ...]
    candidates: tuple[int, ...]
    whole: BisectionTest | None
    rest: BisectionTest | None
    tests: tuple[BisectionTest, ...]
    bound: float | None = None


class _Stopped(Exception):  # noqa: N818 - no error
    """The caller ends the bisection."""


class _NotUsable(Exception):  # noqa: N818 - no error
    """The requested hybrid cannot be measured."""


_Steps = Generator[PairRequest, float, BisectionTest]
_Found = tuple[tuple[int, ...], CulpritKind, BisectionTest]


@dataclass
class Bisection:
    """A search for the parts that cause a difference.

    Use:
        while (request := bisection.request) is not None: bisection.record(ln(right / left))
        bisection.answer()

    Attributes:
        parts: number of parts, at least 1.
        usable: whether a hybrid can be measured at all.
        request: the next pair, or None at the end.
    """

    parts: int
    usable: Callable[[Parts], bool] = lambda _hybrid: True
    settings: BisectionSettings = field(default_factory=BisectionSettings)
    request: PairRequest | None = None
    _scale: NoiseScale = field(default_factory=NoiseScale)
    _tests: list[BisectionTest] = field(default_factory=list)
    _culprits: list[Culprit] = field(default_factory=list)
    _candidates: tuple[int, ...] = ()
    _refused: set[Parts] = field(default_factory=set)
    _current: tuple[SequentialCentre, float] | None = None

    def __post_init__(self) -> None:
        self._all = frozenset(range(self.parts))
        self._steps = self._run()
        self.request = next(self._steps)

    def record(self, log_ratio: float) -> None:
        """Record ln(right / left) of the requested pair."""
        self._go_on(lambda: self._steps.send(log_ratio))

    def skip(self) -> None:
        """Report that the requested hybrid cannot be measured, as `git bisect skip`."""
        self._go_on(lambda: self._steps.throw(_NotUsable()))

    def stop(self) -> None:
        """End the search, for example at the end of a budget; no effect after its end."""
        if self.request is not None:
            self._go_on(lambda: self._steps.throw(_Stopped()))

    def _go_on(self, step: Callable[[], PairRequest]) -> None:
        try:
            self.request = step()
        except StopIteration:
            self.request = None

    def answer(self) -> BisectionAnswer:
        """The answer so far."""
        whole = next((test for test in self._tests if test.purpose == "whole"), None)
        rest = next((test for test in reversed(self._tests) if test.purpose == "rest"), None)
        kind: AnswerKind = "undecided"
        bound = None
        if whole is not None and whole.result == "no difference":
            kind, bound = "no difference", math.expm1(max(abs(end) for end in whole.interval))
        elif self._culprits:
            kind = "found"
        elif whole is not None and whole.result == "different":
            kind = "narrowed"
        return BisectionAnswer(kind, tuple(self._culprits), self._candidates, whole, rest, tuple(self._tests), bound)

    def is_end(self, stack: Parts) -> bool:
        """Whether this is GOOD or BAD, and no hybrid."""
        return stack in (frozenset(), self._all)

    def pairs_needed(self) -> int:
        """Pairs that this test needs at least; when it has these, so many that at most a fifth is measured in vain."""
        if self._current is None:
            return 0
        centre, error = self._current
        done = len(centre.log_ratios)
        return max(_PAIRS_AT_ONCE, fewest_pairs(error / 2) - done, done // 5)

    def planned_tests(self) -> int:
        """Tests of a bisection that finds one part: whole, halvings, the part alone, the rest."""
        return math.ceil(math.log2(self.parts)) + 3

    def pairs_left(self, *, least: bool = False) -> int:
        """Estimate of the pairs until the answer if one part causes the difference.

        Args:
            least: without any noise, as before the first pair.
        """
        error = self._error(len(self._tests) + 1) / 2
        whole = next((test for test in self._tests if test.purpose == "whole"), None)
        tests = max(1, self.planned_tests() - len(self._tests))
        centre = self._current[0] if self._current else None
        done = len(centre.log_ratios) if centre else 0
        noise = self._scale.estimate(centre.log_ratios if centre else [])
        size = abs(whole.log_ratio or 0.0) if whole else abs(centre.estimate) if centre and done else 0.0
        if noise == 0 or least:
            return max(1, tests * fewest_pairs(error) - done)
        each = expected_pairs((1 - _MARGIN) * size, noise, error)
        last = expected_pairs(_SMALL_REST * size, noise, error)
        return max(1, (tests - 1) * each + last - done)

    # The search

    def _error(self, number: int) -> float:
        """Error rate of the test with this number (from 1): half of all for those planned, half for any further."""
        planned, half = self.planned_tests(), self.settings.error_rate / 2
        further = number - planned
        return half / planned if further <= 0 else half / (further * (further + 1))

    def _run(self) -> Generator[PairRequest, float, None]:
        try:
            yield from self._search()
        except _Stopped:
            return

    def _search(self) -> Generator[PairRequest, float, None]:
        whole = yield from self._confirm()
        if whole.result != "different":
            return
        target = whole
        base: Parts = frozenset()
        while True:
            self._candidates = tuple(sorted(self._all - base))
            found = yield from self._find(base, target)
            if found is None:
                return
            self._add_culprit(*found, whole)
            base |= frozenset(found[0])
            self._candidates = tuple(sorted(self._all - base))
            if not self._candidates:
                return
            target = yield from self._measure_rest(base, whole)
            if target.result != "different":
                self._candidates = () if target.result == "no difference" else self._candidates
                return

    def _add_culprit(
        self, parts: tuple[int, ...], kind: CulpritKind, test: BisectionTest, whole: BisectionTest
    ) -> None:
        self._culprits.append(_culprit(parts, kind, test, whole))

    def _confirm(self) -> _Steps:
        """Whether BAD differs from GOOD: above a share of its own estimate, so that the search has a true size."""
        negligible = math.log1p(self.settings.negligible)

        def decide(centre: SequentialCentre, error: float) -> Result | None:
            if centre.is_below(negligible, error) and centre.is_above(-negligible, error):
                return "no difference"
            share = _CONFIRMED_SHARE * centre.estimate
            far = centre.is_above(share, error) if share > 0 else centre.is_below(share, error)
            return "different" if far and share else None

        return (yield from self._test(PairRequest(frozenset(), self._all), "whole", decide))

    def _measure_rest(self, base: Parts, whole: BisectionTest) -> _Steps:
        """What is left of the difference without the parts found: none that matters, or enough to go on."""
        small = _SMALL_REST * abs(whole.log_ratio or 0.0)

        def decide(centre: SequentialCentre, error: float) -> Result | None:
            if centre.is_below(small, error) and centre.is_above(-small, error):
                return "no difference"
            if centre.is_above(0, error) or centre.is_below(0, error):
                return "different"
            return None

        return (yield from self._test(PairRequest(base, self._all), "rest", decide))

    def _find(self, base: Parts, target: BisectionTest) -> Generator[PairRequest, float, _Found | None]:
        """Parts beyond `base` that cause at least a share of the target difference on their own; None if undecided.

        The parts that are left are put onto `base` one after the other, and the place where the difference appears is
        found by halving. The part at that place is then measured alone. If it has no effect alone, it needs an earlier
        one: it is kept on, and the earlier parts are searched in the same way.
        """
        pool = sorted(self._all - base)
        needed: tuple[int, ...] = ()
        size, shown = target.log_ratio or 0.0, target
        while True:
            low, high, before, after = 0, len(pool), 0.0, size
            apart = True
            while high - low > 1 and apart:
                middle, test = yield from self._halve(base, [*needed, *pool], len(needed), low, high, before, after)
                if test is None:
                    apart = False
                elif test.result == "undecided":
                    self._candidates = tuple(sorted([*needed, *pool[low:high]]))
                    return None
                elif test.result == "like GOOD":
                    low = middle
                    before = test.log_ratio if not _contains_zero(test) and test.log_ratio else before
                else:
                    high, shown = middle, test
                    after = test.log_ratio or after
                self._candidates = tuple(sorted([*needed, *pool[low:high]]))
            found = (*needed, *pool[low:high])
            kind: CulpritKind = "inseparable" if not apart else "together" if needed else "single"
            shown_at = shown if low == 0 else None  # measured as it is, in the last step that showed the difference
            if shown_at is None:
                shown_at = yield from self._test_hybrid(base, frozenset(found), 0.0, after - before, "alone")
            if shown_at is None or shown_at.result == "undecided":
                return None
            if shown_at.result != "like GOOD":
                return (yield from self._without_needless(base, found, len(needed), kind, shown_at))
            needed, pool, size = found, pool[:low], after

    def _without_needless(
        self, base: Parts, found: tuple[int, ...], kept: int, kind: CulpritKind, shown: BisectionTest
    ) -> Generator[PairRequest, float, _Found]:
        """Leave out each of the first `kept` parts without which the others still have an effect.

        A part is kept on after a test that showed no effect of it alone; it is needed only if the parts that were
        found later have none without it. Otherwise a part without any effect would be named with them.
        """
        for part in found[:kept]:
            others = tuple(one for one in found if one != part)
            test = yield from self._test_hybrid(base, frozenset(others), 0.0, shown.log_ratio or 0.0, "alone")
            if test is not None and test.result in ("like BAD", "between"):
                found, shown = others, test
        return tuple(sorted(found)), kind if len(found) > 1 else "single", shown

    def _halve(
        self, base: Parts, order: list[int], kept: int, low: int, high: int, before: float, after: float
    ) -> Generator[PairRequest, float, tuple[int, BisectionTest | None]]:
        """Test the usable hybrid next to the middle; (0, None) if there is none between the two ends."""
        centre = (low + high) / 2
        for middle in sorted(range(low + 1, high), key=lambda place: (abs(place - centre), place)):
            hybrid = frozenset(order[: kept + middle])
            test = yield from self._test_hybrid(base, hybrid, before, after, "search")
            if test is not None:
                return middle, test
        return 0, None

    def _test_hybrid(
        self, base: Parts, added: Parts, before: float, after: float, purpose: Purpose
    ) -> Generator[PairRequest, float, BisectionTest | None]:
        """Whether these parts of BAD on `base` are like GOOD (`before`) or like BAD (`after`); None if not usable."""
        hybrid = base | added
        if hybrid in self._refused or not self.usable(hybrid):
            self._refuse(PairRequest(base, hybrid), purpose)
            return None
        sign = 1 if after > before else -1
        # Alone, any effect counts: a part with half of the difference must not be taken for one without.
        margins = (0.0, _MARGIN) if purpose == "alone" else (_MARGIN, 1 - _MARGIN)
        low, high = (before + share * (after - before) for share in margins)

        def decide(centre: SequentialCentre, error: float) -> Result | None:
            beyond_low = centre.is_above(low, error) if sign > 0 else centre.is_below(low, error)
            below_high = centre.is_below(high, error) if sign > 0 else centre.is_above(high, error)
            if beyond_low and below_high and purpose != "alone":
                return "between"
            return "like BAD" if beyond_low else "like GOOD" if below_high else None

        request = PairRequest(base, hybrid)
        for known in (test for test in self._tests if test.request == request and test.pairs):
            ends = sorted(sign * end for end in known.interval)
            if (above := ends[0] > sign * low) or ends[1] < sign * high:
                return replace(known, result="like BAD" if above else "like GOOD")
        try:
            return (yield from self._test(request, purpose, decide))
        except _NotUsable:
            self._refuse(PairRequest(base, hybrid), purpose)
            return None

    def _refuse(self, request: PairRequest, purpose: Purpose) -> None:
        if request.right not in self._refused:
            self._refused.add(request.right)
            self._tests.append(BisectionTest(request, purpose, 0, None, (-math.inf, math.inf), "not usable"))

    def _test(
        self, request: PairRequest, purpose: Purpose, decide: Callable[[SequentialCentre, float], Result | None]
    ) -> _Steps:
        """Request pairs until the test is decided; the error of each side is half of that of the test."""
        error = self._error(1 + sum(test.pairs > 0 for test in self._tests))
        centre = SequentialCentre(self._scale)
        result: Result | None = None
        self._current = centre, error
        try:
            while result is None and len(centre.log_ratios) < self.settings.most_pairs:
                centre.add((yield request))
                result = decide(centre, error / 2)
        finally:
            self._current = None
            pairs = len(centre.log_ratios)
            if pairs:
                known = centre.estimate, centre.interval(error)
                test = BisectionTest(request, purpose, pairs, *known, result or "undecided")
                self._tests.append(test)
                self._scale.add_test(centre.log_ratios)
        return test


def _contains_zero(test: BisectionTest) -> bool:
    return test.interval[0] <= 0 <= test.interval[1]


def _culprit(parts: tuple[int, ...], kind: CulpritKind, test: BisectionTest, whole: BisectionTest) -> Culprit:
    """Share of the whole difference; its interval contains every quotient of the two intervals."""
    sizes = [abs(end) for end in whole.interval]
    sign = math.copysign(1.0, whole.log_ratio or 1.0)
    effect = sorted(sign * end for end in test.interval)
    if test is whole:
        return Culprit(parts, kind, test, 1.0, (1.0, 1.0))
    low, high = (
        effect[0] / (max(sizes) if effect[0] > 0 else min(sizes)),
        effect[1] / (min(sizes) if effect[1] > 0 else max(sizes)),
    )
    return Culprit(parts, kind, test, (test.log_ratio or 0.0) / (whole.log_ratio or 1.0), (low, high))
