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
# Parts that cause a difference, how, and the test that showed it.
_Cause = tuple[tuple[int, ...], CulpritKind, BisectionTest]


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
        tests = max(1, self.planned_tests() - len(self._tests))
        # The pairs of the test that is running now.
        log_ratios: list[float] = []
        size = 0.0
        if self._current is not None:
            centre, _ = self._current
            log_ratios = centre.log_ratios
            if log_ratios:
                size = abs(centre.estimate)
        # The size of the difference is best known from the test of the whole.
        whole = next((test for test in self._tests if test.purpose == "whole"), None)
        if whole is not None:
            size = abs(whole.log_ratio or 0.0)
        noise = self._scale.estimate(log_ratios)
        if noise == 0 or least:
            return max(1, tests * fewest_pairs(error) - len(log_ratios))
        pairs_of_step = expected_pairs((1 - _MARGIN) * size, noise, error)
        pairs_of_rest = expected_pairs(_SMALL_REST * size, noise, error)
        return max(1, (tests - 1) * pairs_of_step + pairs_of_rest - len(log_ratios))

    # The search

    def _error(self, number: int) -> float:
        """Error rate of the test with this number (from 1): half of all for those planned, half for any further."""
        planned, half = self.planned_tests(), self.settings.error_rate / 2
        if number <= planned:
            return half / planned
        # 1/2 + 1/6 + 1/12 + … is 1, however many there are.
        further = number - planned
        return half / (further * (further + 1))

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
            cause = yield from self._find(base, target)
            if cause is None:
                return
            parts, culprit_kind, test = cause
            self._add_culprit(parts, culprit_kind, test, whole)
            base |= frozenset(parts)
            self._candidates = tuple(sorted(self._all - base))
            if not self._candidates:
                return
            target = yield from self._measure_rest(base, whole)
            if target.result == "no difference":
                self._candidates = ()
            if target.result != "different":
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
            if share > 0 and centre.is_above(share, error):
                return "different"
            if share < 0 and centre.is_below(share, error):
                return "different"
            return None

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

    def _find(self, base: Parts, target: BisectionTest) -> Generator[PairRequest, float, _Cause | None]:
        """Parts beyond `base` that cause at least a share of the target difference on their own; None if undecided.

        The parts that are left are put onto `base` one after the other, and the place where the difference appears is
        found by halving. The part at that place is then measured alone. If it has no effect alone, it needs an earlier
        one: it is kept on, and the earlier parts are searched in the same way.
        """
        pool = sorted(self._all - base)
        needed: tuple[int, ...] = ()
        size, shown = target.log_ratio or 0.0, target
        while True:
            # The difference appears between the hybrids with the first `low` and the first `high` parts of the pool.
            low, high, before, after = 0, len(pool), 0.0, size
            is_separable = True
            while high - low > 1 and is_separable:
                middle, test = yield from self._halve(base, [*needed, *pool], len(needed), low, high, before, after)
                if test is None:
                    is_separable = False
                elif test.result == "undecided":
                    self._candidates = tuple(sorted([*needed, *pool[low:high]]))
                    return None
                elif test.result == "like GOOD":
                    low = middle
                    if test.log_ratio and not contains_zero(test):
                        before = test.log_ratio
                else:
                    high, shown = middle, test
                    after = test.log_ratio or after
                self._candidates = tuple(sorted([*needed, *pool[low:high]]))
            parts = (*needed, *pool[low:high])
            culprit_kind: CulpritKind = "single"
            if not is_separable:
                culprit_kind = "inseparable"
            elif needed:
                culprit_kind = "together"
            # The parts alone; without earlier ones, the last step that showed the difference measured just them.
            alone: BisectionTest | None = shown
            if low > 0:
                alone = yield from self._test_hybrid(base, frozenset(parts), 0.0, after - before, "alone")
            if alone is None or alone.result == "undecided":
                return None
            if alone.result != "like GOOD":
                return (yield from self._without_needless(base, parts, len(needed), culprit_kind, alone))
            needed, pool, size = parts, pool[:low], after

    def _without_needless(
        self, base: Parts, parts: tuple[int, ...], kept: int, culprit_kind: CulpritKind, shown: BisectionTest
    ) -> Generator[PairRequest, float, _Cause]:
        """Leave out each of the first `kept` parts without which the others still have an effect.

        A part is kept on after a test that showed no effect of it alone; it is needed only if the parts that were
        found later have none without it. Otherwise a part without any effect would be named with them.
        """
        needed = parts
        for candidate in parts[:kept]:
            others = tuple(part for part in needed if part != candidate)
            test = yield from self._test_hybrid(base, frozenset(others), 0.0, shown.log_ratio or 0.0, "alone")
            if test is not None and test.result in ("like BAD", "between"):
                needed, shown = others, test
        if len(needed) == 1:
            culprit_kind = "single"
        return tuple(sorted(needed)), culprit_kind, shown

    def _halve(
        self, base: Parts, order: list[int], kept: int, low: int, high: int, before: float, after: float
    ) -> Generator[PairRequest, float, tuple[int, BisectionTest | None]]:
        """Test the usable hybrid next to the middle; (0, None) if there is none between the two ends."""
        centre = (low + high) / 2
        for middle in sorted(range(low + 1, high), key=lambda position: (abs(position - centre), position)):
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
            if beyond_low:
                return "like BAD"
            if below_high:
                return "like GOOD"
            return None

        # An earlier test of the same two stacks can have the answer.
        request = PairRequest(base, hybrid)
        for earlier_test in self._tests:
            if earlier_test.request != request or not earlier_test.pairs:
                continue
            lowest, highest = sorted(sign * end for end in earlier_test.interval)
            if lowest > sign * low:
                return replace(earlier_test, result="like BAD")
            if highest < sign * high:
                return replace(earlier_test, result="like GOOD")
        try:
            return (yield from self._test(request, purpose, decide))
        except _NotUsable:
            self._refuse(request, purpose)
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
                interval = centre.interval(error)
                test = BisectionTest(request, purpose, pairs, centre.estimate, interval, result or "undecided")
                self._tests.append(test)
                self._scale.add_test(centre.log_ratios)
        return test


def contains_zero(test: BisectionTest) -> bool:
    """Whether it is not certain that the two stacks of a test differ."""
    return test.interval[0] <= 0 <= test.interval[1]


def _culprit(parts: tuple[int, ...], kind: CulpritKind, test: BisectionTest, whole: BisectionTest) -> Culprit:
    """Share of the whole difference; its interval contains every quotient of the two intervals."""
    if test is whole:
        return Culprit(parts, kind, test, 1.0, (1.0, 1.0))
    smallest_whole, largest_whole = sorted(abs(end) for end in whole.interval)
    # In the direction of the whole difference.
    sign = math.copysign(1.0, whole.log_ratio or 1.0)
    low_effect, high_effect = sorted(sign * end for end in test.interval)
    low = low_effect / (largest_whole if low_effect > 0 else smallest_whole)
    high = high_effect / (smallest_whole if high_effect > 0 else largest_whole)
    return Culprit(parts, kind, test, (test.log_ratio or 0.0) / (whole.log_ratio or 1.0), (low, high))
