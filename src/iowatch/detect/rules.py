"""From stretches of nights to transients, accepted steps and drift; each rule shortens the list."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from iowatch.detect.noise import Floats, good_share, surprise
from iowatch.detect.stretch import Series, Stretch
from iowatch.detect.trust import confidences

# first night, end, ln(ratio)
Spell = tuple[int, int, float]


def settle(series: Series, stretches: list[Stretch], price: float) -> tuple[list[Stretch], list[Spell]]:
    """Lasting levels and transients of a path."""
    stretches, spells = take_transients(series, stretches, price)
    stretches = drop_weak_steps(series, stretches, price)
    stretches, spells = take_short(series, stretches, spells)
    stretches, more = take_transients(series, stretches, price)
    stretches = drop_weak_steps(series, stretches, price)
    return drop_doubtful_steps(series, stretches), sorted(spells + more)


def take_transients(
    series: Series, stretches: list[Stretch], price: float
) -> tuple[list[Stretch], list[Spell]]:
    """Take out short departures that come back, the shortest and clearest first."""
    spells = []
    while departures := sorted(_departures(series, stretches, price)):
        _, _, i, j, level = departures[0]
        first, end = stretches[i].first, stretches[j].end
        depth = float(np.mean([s.level for s in stretches[i : j + 1]])) - level
        spells.append((first, end, depth))
        series.away[first:end] = True
        stretches = [
            *stretches[: i - 1],
            series.stretch(stretches[i - 1].first, stretches[j + 1].end, level),
            *stretches[j + 2 :],
        ]
    return stretches, sorted(spells)


def _departures(
    series: Series, stretches: list[Stretch], price: float
) -> Iterator[tuple[int, float, int, int, float]]:
    """Runs i … j of up to three stretches, on one side of the common level of their neighbours."""
    settings, spread = series.settings, float(series.noise.spread)
    for i in range(1, len(stretches) - 1):
        for j in range(i, min(i + 3, len(stretches) - 1)):
            if stretches[j].end - stretches[i].first > settings.transient_nights:
                break
            before, after = stretches[i - 1], stretches[j + 1]
            level, evidence = series.common(before, after)
            depths = [s.level - level for s in stretches[i : j + 1]]
            one_side = min(depths) > 0 or max(depths) < 0
            near = max(settings.return_share * max(np.abs(depths)), 0.5 * spread)
            if one_side and evidence < price and abs(after.level - before.level) < near:
                yield j - i, evidence, i, j, level


def take_short(
    series: Series, stretches: list[Stretch], spells: list[Spell]
) -> tuple[list[Stretch], list[Spell]]:
    """Take out what is too short for a level: spells between two levels, and a first level of a few nights.

    A short stretch that lies between its neighbours' levels belongs to the step from one to the other, and
    joins the nearer. The last stretch may be short, and so may the one before it: too few nights tell what
    follows.
    """
    settings = series.settings
    spells = list(spells)
    while True:
        short = [
            i
            for i in range(len(stretches) - 1)
            if _too_short(stretches, i, settings.transient_nights, settings.confirm_nights)
        ]
        if not short:
            return stretches, sorted(spells)
        i = min(short, key=lambda k: stretches[k].nights)
        this = stretches[i]
        before, after = stretches[i - 1] if i else stretches[1], stretches[i + 1]
        if i and (this.level - before.level) * (after.level - this.level) > 0:
            nearer = i - 1 if series.common(before, this)[1] < series.common(this, after)[1] else i
            stretches = _merged(series, stretches, nearer)
            continue
        depths = (this.level - before.level, this.level - after.level)
        spells.append((this.first, this.end, min(depths, key=abs)))
        series.away[this.first : this.end] = True
        stretches = [*stretches[:i], series.stretch(this.first, after.end, after.level), *stretches[i + 2 :]]


def _too_short(stretches: list[Stretch], i: int, spell: int, first: int) -> bool:
    if i == 0:
        return stretches[0].nights <= first
    settled = i < len(stretches) - 2 or stretches[-1].nights > spell // 2
    return stretches[i].end - stretches[i].first <= spell and settled


def _merged(series: Series, stretches: list[Stretch], i: int) -> list[Stretch]:
    """Stretches i and i + 1 as one."""
    before, after = stretches[i : i + 2]
    level, _ = series.common(before, after)
    return [*stretches[:i], series.stretch(before.first, after.end, level), *stretches[i + 2 :]]


def surpluses(series: Series, stretches: list[Stretch], price: float) -> list[float]:
    """Evidence (nats) above its price for the step before each stretch but the first.

    The price grows where the level before or after is short, because spells of bad nights are short; a level
    that still lasts is spared, so that news is told early. A step too small to matter has none.
    """
    settings = series.settings
    found = []
    for i, (before, after) in enumerate(pairwise(stretches)):
        lasts = i == len(stretches) - 2
        nights = before.nights if lasts else min(before.nights, after.nights)
        short = max(0.0, 1 - nights / settings.transient_nights)
        small = abs(after.level - before.level) < settings.min_effect
        evidence = 0.0 if small else series.common(before, after)[1]
        found.append(evidence - price - settings.short_penalty * short)
    return found


def drop_weak_steps(series: Series, stretches: list[Stretch], price: float) -> list[Stretch]:
    """Merge, the weakest step first, until every step brings its price."""
    while len(stretches) > 1:
        surplus = surpluses(series, stretches, price)
        weakest = int(np.argmin(surplus))
        if surplus[weakest] >= 0:
            break
        stretches = _merged(series, stretches, weakest)
    return stretches


def drop_doubtful_steps(series: Series, stretches: list[Stretch]) -> list[Stretch]:
    """Merge, the most doubtful step first, until every step is credible."""
    while len(stretches) > 1:
        trust = confidences(series, stretches)
        least = int(np.argmin(trust))
        if trust[least] >= series.settings.min_confidence:
            break
        stretches = without_step(series, stretches, least)
    return stretches


def without_step(series: Series, stretches: list[Stretch], i: int) -> list[Stretch]:
    """Without the doubtful step between stretches i and i + 1.

    A few nights at the start are not joined to the level that follows, of which they say nothing: they count
    as away from it (in `series.away`).
    """
    first, second = stretches[:2]
    if i > 0 or not first.nights <= series.settings.transient_nights < second.nights:
        return _merged(series, stretches, i)
    series.away[first.first : first.end] = True
    return [series.stretch(first.first, second.end, second.level), *stretches[2:]]


def take_drift(series: Series, stretches: list[Stretch], price: float) -> tuple[list[Stretch], list[Spell]]:
    """Replace runs of steps in one direction by a slope where the slope describes the nights better."""
    drifts = []
    i = 1
    while i < len(stretches):
        last = _run_end(stretches, i)
        slope = _best_slope(series, stretches, i, last, price)
        if slope is None:
            i = last + 1
            continue
        first, end, rise = slope
        drifts.append((stretches[first].first, stretches[end].end, rise))
        whole = stretches[first : end + 1]
        level = float(np.median(np.concatenate([s.logs for s in whole])))
        merged = series.stretch(whole[0].first, whole[-1].end, level)
        stretches = [*stretches[:first], merged, *stretches[end + 1 :]]
        i = first + 1
    return stretches, drifts


def _run_end(stretches: list[Stretch], i: int) -> int:
    """The last stretch of the run of steps in one direction that begins with the step before stretch i."""
    sign = np.sign(stretches[i].level - stretches[i - 1].level)
    while i + 1 < len(stretches) and np.sign(stretches[i + 1].level - stretches[i].level) == sign:
        i += 1
    return i


def _best_slope(
    series: Series, stretches: list[Stretch], i: int, last: int, price: float
) -> tuple[int, int, float] | None:
    """The longest part of a run that a slope describes better than its steps: first and last stretch, rise."""
    parts = [(a - 1, b) for a in range(i, last + 1) for b in range(a, last + 1)]
    for first, end in sorted(parts, key=lambda part: part[0] - part[1]):
        whole = stretches[first : end + 1]
        if whole[-1].end - whole[0].first < series.settings.drift_share * len(series.logs):
            continue
        nights = np.arange(whole[0].first, whole[-1].end)
        counts = ~series.away[nights]
        cost, slope = fit_slope(series, nights[counts].astype(float), series.logs[nights[counts]])
        steps = sum(s.cost for s in whole) + (end - first) * price
        if cost + series.settings.drift_penalty < steps:
            return first, end, slope * len(nights)
    return None


def fit_slope(series: Series, nights: Floats, logs: Floats, rounds: int = 12) -> tuple[float, float]:
    """Surprise of the nights along the likeliest straight line, and its slope a night."""
    x = (nights - nights.mean()) / max(1.0, float(np.ptp(nights)))
    third = max(1, len(x) // 3)
    run = float(x[-third:].mean() - x[:third].mean())
    slope = float(np.median(logs[-third:]) - np.median(logs[:third])) / max(run, 1e-9)
    middle = float(np.median(logs - slope * x))
    noise, freedom = series.noise, series.settings.freedom
    for _ in range(rounds):
        residuals = logs - slope * x - middle
        spread = np.where(residuals < 0, noise.left, noise.right)
        weight = (freedom + 1) / (freedom + (residuals / spread) ** 2) / spread**2
        weight = weight * good_share(residuals, noise, series.settings) + 1e-9
        centre, mean = np.average(x, weights=weight), np.average(logs, weights=weight)
        slope = float(
            (weight * (x - centre) * (logs - mean)).sum() / ((weight * (x - centre) ** 2).sum() + 1e-12)
        )
        middle = float(mean - slope * centre)
    cost = float(surprise(logs - slope * x - middle, noise, series.settings).sum())
    return cost, slope / max(1.0, float(np.ptp(nights)))


def date(series: Series, before: Stretch, after: Stretch) -> int:
    """The first night of the new level: the likeliest of those whose neighbourhood most probably holds it.

    Nights of transients count a little: without them all nights of a spell next to the step would be equally
    likely, and the date would be drawn into the spell.
    """
    nights = slice(before.first, after.end)
    logs = series.logs[nights]
    gain = surprise(logs - before.level, series.noise, series.settings)
    gain -= surprise(logs - after.level, series.noise, series.settings)
    gain[series.away[nights]] *= series.settings.dating_away
    score = -np.cumsum(gain)[:-1]
    chance = np.exp(score - score.max())
    half = series.settings.dating_nights
    sums = np.convolve(chance, np.ones(2 * half + 1))[half : half + len(chance)]
    likely = np.flatnonzero(sums >= (1 - series.settings.dating_slack) * sums.max())
    return before.first + 1 + int(likely[chance[likely].argmax()])


def redate(series: Series, stretches: list[Stretch]) -> list[Stretch]:
    """The same levels, with each border at its date."""
    edges = [0]
    for before, after in pairwise(stretches):
        edges.append(min(max(date(series, before, after), edges[-1] + 1), after.end - 1))
    edges.append(len(series.logs))
    return [
        Stretch(first, end, s.level, s.cost, series.logs[first:end][~series.away[first:end]])
        for s, (first, end) in zip(stretches, pairwise(edges), strict=True)
    ]
