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


@dataclass(frozen=True, slots=True)
class Cause:
    """Parts that cause a difference, how, and the test that showed it."""

    parts: tuple[int, ...]
    kind: CulpritKind
    test: BisectionTest


@dataclass(frozen=True, slots=True)
class _Bracket:
    """Two hybrids between which the difference appears, while parts are put onto a base one after the other.

    Attributes:
        order: the parts in this order.
        needed: number of parts at its beginning that all hybrids have.
        low, high: number of parts of the hybrid without the difference, and of the one with it.
        before, after: log ratios of the two hybrids to the base.
        shown: the test that showed the difference of the second one.
        is_separable: whether there is a usable hybrid between the two, as far as it was tried.
    """

    order: tuple[int, ...]
    needed: int
    low: int
    high: int
    before: float
    after: float
    shown: BisectionTest
    is_separable: bool = True

    @property
    def suspects(self) -> tuple[int, ...]:
        """Parts that can cause the difference, with those that they need."""
        return self.order[: self.needed] + self.order[self.low : self.high]


@dataclass(frozen=True, slots=True)
class _HybridLimits:
    """From where on a hybrid is like GOOD or like BAD.

    Attributes:
        direction: 1 if the log ratio of BAD is above that of GOOD, else -1.
        like_bad: log ratio beyond which a hybrid is like BAD.
        like_good: log ratio that a hybrid like GOOD does not reach.
        has_between: whether a hybrid can be neither, with a part of the difference.
    """

    direction: int
    like_bad: float
    like_good: float
    has_between: bool

    @classmethod
    def of_difference(cls, before: float, after: float, purpose: Purpose) -> _HybridLimits:
        """The limits between the log ratios of GOOD (`before`) and of BAD (`after`)."""
        direction = 1 if after > before else -1
        # Alone, any effect counts: a part with half of the difference must not be taken for one without.
        low_share, high_share = _MARGIN, 1 - _MARGIN
        if purpose == "alone":
            low_share, high_share = 0.0, _MARGIN
        like_bad = before + low_share * (after - before)
        like_good = before + high_share * (after - before)
        return cls(direction, like_bad, like_good, has_between=purpose != "alone")

    def decide(self, centre: SequentialCentre, error: float) -> Result | None:
        """The result of the pairs so far; None if they are too few."""
        if self.direction > 0:
            is_like_bad = centre.is_above(self.like_bad, error)
            is_like_good = centre.is_below(self.like_good, error)
        else:
            is_like_bad = centre.is_below(self.like_bad, error)
            is_like_good = centre.is_above(self.like_good, error)
        # Beyond the first limit and not up to the second one: a share of the difference.
        if is_like_bad and is_like_good and self.has_between:
            return "between"
        if is_like_bad:
            return "like BAD"
        if is_like_good:
            return "like GOOD"
        return None

    def result_of(self, test: BisectionTest) -> Result | None:
        """The result that a finished test of the same two stacks has with these limits, if it is certain."""
        low, high = sorted(self.direction * end for end in test.interval)
        if low > self.direction * self.like_bad:
            return "like BAD"
        if high < self.direction * self.like_good:
            return "like GOOD"
        return None


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
        answer_kind: AnswerKind = "undecided"
        bound = None
        if whole is not None and whole.result == "no difference":
            answer_kind = "no difference"
            bound = math.expm1(max(abs(end) for end in whole.interval))
        elif self._culprits:
            answer_kind = "found"
        elif whole is not None and whole.result == "different":
            answer_kind = "narrowed"
        return BisectionAnswer(
            kind=answer_kind,
            culprits=tuple(self._culprits),
            candidates=self._candidates,
            whole=whole,
            rest=rest,
            tests=tuple(self._tests),
            bound=bound,
        )

    def is_end(self, stack: Parts) -> bool:
        """Whether this is GOOD or BAD, and no hybrid."""
        return stack in (frozenset(), self._all)

    def pairs_needed(self) -> int:
        """Pairs that this test needs at least; when it has these, so many that at most a fifth is measured in vain."""
        if self._current is None:
            return 0
        centre, error = self._current
        measured_count = len(centre.log_ratios)
        return max(_PAIRS_AT_ONCE, fewest_pairs(error / 2) - measured_count, measured_count // 5)

    def planned_tests(self) -> int:
        """Tests of a bisection that finds one part: whole, halvings, the part alone, the rest."""
        return math.ceil(math.log2(self.parts)) + 3

    def pairs_left(self, *, without_noise: bool = False) -> int:
        """Estimate of the pairs until the answer if one part causes the difference.

        Args:
            without_noise: the number without any noise, as before the first pair: no search needs fewer.
        """
        error = self._error(len(self._tests) + 1) / 2
        tests_left = max(1, self.planned_tests() - len(self._tests))
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
        if noise == 0 or without_noise:
            return max(1, tests_left * fewest_pairs(error) - len(log_ratios))
        # All tests but the last one, which measures the rest, are steps of the search.
        pairs_of_step = expected_pairs((1 - _MARGIN) * size, noise, error)
        pairs_of_rest = expected_pairs(_SMALL_REST * size, noise, error)
        return max(1, (tests_left - 1) * pairs_of_step + pairs_of_rest - len(log_ratios))

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
        """Confirm the whole difference, then find culprits until they explain it."""
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
            self._add_culprit(cause, whole)
            # What remains of the difference is measured on GOOD with all culprits.
            base |= frozenset(cause.parts)
            self._candidates = tuple(sorted(self._all - base))
            if not self._candidates:
                return
            target = yield from self._measure_rest(base, whole)
            if target.result == "no difference":
                self._candidates = ()
            if target.result != "different":
                return

    def _add_culprit(self, cause: Cause, whole: BisectionTest) -> None:
        self._culprits.append(_culprit(cause, whole))

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

    def _find(self, base: Parts, target: BisectionTest) -> Generator[PairRequest, float, Cause | None]:
        """Parts beyond `base` that cause at least a share of the target difference on their own; None if undecided.

        The parts that are left are put onto `base` one after the other, and the position where the difference appears
        is found by halving. The part at that position is then measured alone. If it has no effect alone, it needs an
        earlier one: it is kept on, and the earlier parts are searched in the same way.
        """
        order = tuple(sorted(self._all - base))
        bracket = _Bracket(order, 0, 0, len(order), 0.0, target.log_ratio or 0.0, target)
        while True:
            # Halve until the two hybrids differ in one part, or in parts that no usable hybrid separates.
            while bracket.high - bracket.low > 1 and bracket.is_separable:
                smaller = yield from self._halve(base, bracket)
                bracket = smaller or bracket
                self._candidates = tuple(sorted(bracket.suspects))
                if smaller is None:
                    return None
            parts = bracket.suspects
            culprit_kind: CulpritKind = "single"
            if not bracket.is_separable:
                culprit_kind = "inseparable"
            elif bracket.needed:
                culprit_kind = "together"
            # The parts alone; without earlier ones, the last step that showed the difference measured just them.
            alone: BisectionTest | None = bracket.shown
            if bracket.low > bracket.needed:
                size = bracket.after - bracket.before
                alone = yield from self._test_hybrid(base, frozenset(parts), 0.0, size, "alone")
            if alone is None or alone.result == "undecided":
                return None
            if alone.result != "like GOOD":
                cause = Cause(parts, culprit_kind, alone)
                return (yield from self._without_needless(base, cause, bracket.needed))
            # They need an earlier part: it is searched among those before the position, with these kept on.
            earlier_parts = bracket.order[bracket.needed : bracket.low]
            order = parts + earlier_parts
            bracket = _Bracket(order, len(parts), len(parts), len(order), 0.0, bracket.after, bracket.shown)

    def _without_needless(self, base: Parts, cause: Cause, earlier_count: int) -> Generator[PairRequest, float, Cause]:
        """Leave out each of the first parts of a cause without which the others still have an effect.

        A part is kept on after a test that showed no effect of it alone; it is needed only if the parts that were
        found later have none without it. Otherwise a part without any effect would be named with them.

        Args:
            earlier_count: number of parts at the beginning that were kept on in this way.
        """
        needed_parts = cause.parts
        shown = cause.test
        for candidate in cause.parts[:earlier_count]:
            others = tuple(part for part in needed_parts if part != candidate)
            test = yield from self._test_hybrid(base, frozenset(others), 0.0, shown.log_ratio or 0.0, "alone")
            if test is not None and test.result in ("like BAD", "between"):
                needed_parts = others
                shown = test
        culprit_kind = "single" if len(needed_parts) == 1 else cause.kind
        return Cause(tuple(sorted(needed_parts)), culprit_kind, shown)

    def _halve(self, base: Parts, bracket: _Bracket) -> Generator[PairRequest, float, _Bracket | None]:
        """Test the usable hybrid next to the middle of a bracket.

        Returns:
            the half in which the difference appears; the bracket as not separable if no hybrid in it can be used; None
            if the test is undecided.
        """
        middle = (bracket.low + bracket.high) / 2
        positions = sorted(
            range(bracket.low + 1, bracket.high), key=lambda position: (abs(position - middle), position)
        )
        for position in positions:
            hybrid = frozenset(bracket.order[:position])
            test = yield from self._test_hybrid(base, hybrid, bracket.before, bracket.after, "search")
            if test is None:
                continue
            if test.result == "undecided":
                return None
            if test.result == "like GOOD":
                # A part of the difference that is certain is before this position.
                before = bracket.before
                if test.log_ratio and not contains_zero(test):
                    before = test.log_ratio
                return replace(bracket, low=position, before=before)
            return replace(bracket, high=position, after=test.log_ratio or bracket.after, shown=test)
        return replace(bracket, is_separable=False)

    def _test_hybrid(
        self, base: Parts, added: Parts, before: float, after: float, purpose: Purpose
    ) -> Generator[PairRequest, float, BisectionTest | None]:
        """Whether these parts of BAD on `base` are like GOOD (`before`) or like BAD (`after`); None if not usable."""
        hybrid = base | added
        request = PairRequest(base, hybrid)
        if hybrid in self._refused or not self.usable(hybrid):
            self._refuse(request, purpose)
            return None
        limits = _HybridLimits.of_difference(before, after, purpose)
        # An earlier test of the same two stacks can have the answer.
        for earlier_test in self._tests:
            if earlier_test.request == request and earlier_test.pairs:
                result = limits.result_of(earlier_test)
                if result is not None:
                    return replace(earlier_test, result=result)
        try:
            return (yield from self._test(request, purpose, limits.decide))
        except _NotUsable:
            self._refuse(request, purpose)
            return None

    def _refuse(self, request: PairRequest, purpose: Purpose) -> None:
        """Record, once, that a hybrid cannot be used."""
        if request.right not in self._refused:
            self._refused.add(request.right)
            unknown_interval = (-math.inf, math.inf)
            self._tests.append(BisectionTest(request, purpose, 0, None, unknown_interval, "not usable"))

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
                log_ratio = yield request
                centre.add(log_ratio)
                result = decide(centre, error / 2)
        finally:
            # Also the pairs of a test that was stopped are reported, and show the noise.
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


def _culprit(cause: Cause, whole: BisectionTest) -> Culprit:
    """Share of the whole difference; its interval contains every quotient of the two intervals."""
    if cause.test is whole:
        return Culprit(cause.parts, cause.kind, cause.test, 1.0, (1.0, 1.0))
    smallest_whole, largest_whole = sorted(abs(end) for end in whole.interval)
    # In the direction of the whole difference.
    direction = math.copysign(1.0, whole.log_ratio or 1.0)
    low_effect, high_effect = sorted(direction * end for end in cause.test.interval)
    # The lowest share is a small effect of a large whole; below 0, of a small one.
    low_share = low_effect / (largest_whole if low_effect > 0 else smallest_whole)
    high_share = high_effect / (smallest_whole if high_effect > 0 else largest_whole)
    share = (cause.test.log_ratio or 0.0) / (whole.log_ratio or 1.0)
    return Culprit(cause.parts, cause.kind, cause.test, share, (low_share, high_share))
