"""Which layer moved: how well "a fault of this layer alone" explains the changes of all series of one event.

A hypothesis is a layer and, for layers of files, the direction of the transfers that it concerns. Under it every series
that passes through the layer takes longer by about the same amount per unit of work (bytes, operations, or a share of
its time), and every other series does not. What is not known is summed over: the size of the fault (log-uniform), the
share of the series that notice it, how far each one's amount is from that of the others, and a shift that all series of
a session have in common. A gain is the loss that it would be if the two sides were exchanged.

The numbers below are those of the prior, set by judgement; the threshold is from simulated sessions
(`bench/statistics/layers.py`), not from the planted faults of docs/layers.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from iowatch.statistics.constants import Bools, Floats

TransferDirection = Literal["write", "read"]
LayerWork = Literal["share", "bytes", "operations"]

# Probability from which a layer is named; else the likeliest layers with this probability together are candidates.
NAMED, _TOGETHER = 0.8, 0.95
# If all layers together are less likely, no single layer explains the changes.
_LEAST_TOGETHER = 0.5
# Prior probability that no single layer explains the event, and that nothing changed; the layers share the rest.
_SEVERAL, _NOTHING = 0.1, 0.1
# Share of the faults of a layer of files that concern writes and reads, only writes, only reads.
_DIRECTIONS: dict[TransferDirection | None, float] = {None: 0.5, "write": 0.3, "read": 0.2}
# Amount of a fault: 5 % to 300 times the time of the median series of the layer.
_AMOUNTS = np.geomspace(0.05, 300, 24)
# Amount of a change that has nothing to do with the fault: from the smallest noise to that of the largest fault.
_ANY_AMOUNTS = np.geomspace(0.03, 300, 24)
# Share of the series of one kind that notice the fault of a layer below them, equally likely; of the control series of
# the faulty layer see `Layer`.
_NOTICE = (0.05, 0.3, 0.7, 0.97)
# Probability that at least one control series of a layer notices its fault.
_CONTROLS_TELL = 0.97
# Share of the faults of a layer that cost what is usual for it; the rest costs a share of the time.
_USUAL_WORK = 0.7
# Of a series that notices it, the amount is about that of its kind (a factor of exp(0.6)), or any other.
_ALIKE, _SPREAD = 0.7, 0.6
# So dense that the noise of a series spans several nodes: with few, chance decides how near the next one is.
_SPREAD_NODES = np.linspace(-2.5, 2.5, 41)
_SPREAD_WEIGHTS = np.exp(-(_SPREAD_NODES**2) / 2)
# Series of another kind may make more or fewer of the slow calls (messages between ranks that wait for a processor lose
# more than calculations): their amount is that of the control series, or any part or multiple of it. In steps of
# `_AMOUNTS`: factors of 0.03 to 1000.
_KIND_ALIKE, _KIND_STEPS = 0.7, np.arange(-9, 19)
# Amounts of a kind are those of the fault, `_AMOUNTS`, and these parts and multiples of them; the slice selects from an
# array over all amounts of a kind those that are equal to `_AMOUNTS`.
_SAME_AMOUNTS = slice(-_KIND_STEPS[0], -_KIND_STEPS[0] + len(_AMOUNTS))
_TRANSFERS = "transfers"
# Series that are not concerned and change all the same, by any amount.
_OUTLIERS = 0.01
# Standard deviation of the shift that all series of one session share: natural logarithm, and share of their noise,
# because what disturbs one of them disturbs the others as well.
_COMMON_SHIFT, _COMMON_NOISE = 0.05, 0.7
_SHIFT_NODES = np.linspace(-2.5, 2.5, 11)
_SHIFT_WEIGHTS = np.exp(-(_SHIFT_NODES**2) / 2)
# Noise is a t distribution, and at least 3 %.
_FREEDOM, _LEAST_NOISE = 6.0, 0.03
# A series has moved if its change is at least 10 % and this many times its noise.
_MOVED_SIZE, _MOVED_NOISE = math.log(1.1), 3.0


class Layer(Protocol):
    """What the inference needs to know about a layer between a program and the hardware."""

    @property
    def name(self) -> str:
        """As in the paths of the series."""

    @property
    def work(self) -> LayerWork:
        """What a fault costs: a share of the time of whatever passes through, or time per byte or per operation."""

    @property
    def has_directions(self) -> bool:
        """Whether writes and reads can change separately."""

    @property
    def controls_notice(self) -> float:
        """Probability that a control series notices a fault of the layer."""


@dataclass(frozen=True)
class LayerSeries:
    """The change of one series.

    Attributes:
        path: names of the layers that it passes through; the last is the one that it measures (its *control* series).
        log_gain: natural logarithm of the gain of performance; negative for a loss.
        noise: standard deviation of `log_gain` without a change.
        seconds: time per MiB or per operation before the change.
        mib: MiB per operation; 0 if `seconds` is that of an operation without data; NaN if unknown.
        direction: None if it is neither a write nor a read.
    """

    path: tuple[str, ...]
    log_gain: float
    noise: float
    seconds: float
    mib: float
    direction: TransferDirection | None = None


@dataclass(frozen=True)
class LayerProbability:
    """Posterior probability of a layer."""

    layer: str
    probability: float


@dataclass(frozen=True)
class LayerInference:
    """Which layer moved.

    Attributes:
        named: the layer, or None if none is likely enough.
        candidates: the likeliest layers, best first; empty if no single layer explains the changes.
        ranked: all layers, the likeliest first.
        moved, unmoved: layers whose control series mostly moved, or did not, in the order of the layers.
        measured: layers that have control series.
        direction: of the transfers that the fault of the named layer concerns.
    """

    named: str | None
    candidates: tuple[LayerProbability, ...]
    ranked: tuple[LayerProbability, ...]
    moved: tuple[str, ...]
    unmoved: tuple[str, ...]
    measured: tuple[str, ...]
    direction: TransferDirection | None = None


def infer_layer(series: Sequence[LayerSeries], layers: Sequence[Layer]) -> LayerInference:
    """Infer the layer whose fault, or improvement, explains the changes of all series.

    Args:
        series: changed and unchanged ones; those without a path are left out.
        layers: in ascending order; every name of a path is one of them.
    """
    with_path = [of_series for of_series in series if of_series.path]
    measured_names = {of_series.path[-1] for of_series in with_path}
    measured = tuple(layer.name for layer in layers if layer.name in measured_names)
    if not with_path:
        return LayerInference(None, (), (), (), (), measured)
    # Whether it is a fault or an improvement is not known beforehand.
    evidence = _combine_signs([_evidence(with_path, layers, sign) for sign in (-1.0, 1.0)])
    # Posterior probability of each layer, whatever direction its fault concerns.
    total = float(np.logaddexp.reduce(list(evidence.values())))
    by_layer: list[LayerProbability] = []
    for layer in layers:
        of_layer = [value for hypothesis, value in evidence.items() if hypothesis.name == layer.name]
        if of_layer:
            probability = math.exp(float(np.logaddexp.reduce(of_layer)) - total)
            by_layer.append(LayerProbability(layer.name, probability))
    ranked = tuple(sorted(by_layer, key=lambda candidate: -candidate.probability))
    named = ranked[0].layer if ranked[0].probability >= NAMED else None
    # The likeliest direction of the layer that is named.
    directions: dict[TransferDirection | None, float] = {}
    for hypothesis, value in evidence.items():
        if hypothesis.name == named:
            directions[hypothesis.direction] = value
    moved, unmoved = _control_layers(with_path, layers)
    return LayerInference(
        named=named,
        candidates=_candidates(ranked),
        ranked=ranked,
        moved=moved,
        unmoved=unmoved,
        measured=measured,
        direction=max(directions, key=directions.__getitem__) if directions else None,
    )


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A layer, or `several` or `nothing`, and the direction of the transfers that its fault concerns (None: both)."""

    name: str
    direction: TransferDirection | None = None


_SEVERAL_LAYERS, _NO_LAYER = Hypothesis("several"), Hypothesis("nothing")


def _combine_signs(by_sign: Sequence[Mapping[Hypothesis, float]]) -> dict[Hypothesis, float]:
    """ln of the sum over faults and improvements, by hypothesis."""
    combined: dict[Hypothesis, float] = {}
    for hypothesis in by_sign[0]:
        combined[hypothesis] = float(np.logaddexp.reduce([evidence[hypothesis] for evidence in by_sign]))
    return combined


def _candidates(ranked: Sequence[LayerProbability]) -> tuple[LayerProbability, ...]:
    """The fewest layers that are likely enough together; none if they are too many, or not likely enough."""
    totals = np.cumsum([candidate.probability for candidate in ranked])
    if not len(totals) or totals[-1] < _LEAST_TOGETHER:
        return ()
    shares = totals / totals[-1]
    if shares[0] >= NAMED:
        return tuple(ranked[:1])
    fewest = int(np.flatnonzero(shares[1:] >= _TOGETHER)[0]) + 2
    return tuple(ranked[:fewest])


@dataclass(frozen=True)
class _Likelihoods:
    """ln p(change) of each series, for each shift that all series of a session may have in common.

    Attributes:
        unchanged: if nothing but the shift changed it, shape (series, 1, shifts).
        any_amount: if it changed by any amount, shape (series, 1, shifts).
        concerned: if it notices a fault of each amount, shape (series, amounts of a kind, shifts); by `Layer.work`.
    """

    unchanged: Floats
    any_amount: Floats
    concerned: Mapping[LayerWork, Floats]


def _evidence(series: Sequence[LayerSeries], layers: Sequence[Layer], sign: float) -> dict[Hypothesis, float]:
    """ln of prior x likelihood of each hypothesis.

    Args:
        sign: -1 for a fault, 1 for an improvement.
    """
    likelihoods = _likelihoods(series, sign)
    # Under several layers each series changes by any amount or not at all; under none only outliers do.
    several = np.logaddexp(likelihoods.unchanged, likelihoods.any_amount) + math.log(0.5)
    log_inlier, log_outlier = math.log(1 - _OUTLIERS), math.log(_OUTLIERS)
    outside = np.logaddexp(log_inlier + likelihoods.unchanged, log_outlier + likelihoods.any_amount)
    evidence: dict[Hypothesis, float] = {
        _SEVERAL_LAYERS: math.log(_SEVERAL) + _average_unknown(several.sum(axis=0)),
        _NO_LAYER: math.log(_NOTHING) + _average_unknown(outside.sum(axis=0)),
    }
    # The layers that some series passes through share the rest of the prior probability.
    in_paths: set[str] = set()
    for of_series in series:
        in_paths |= set(of_series.path)
    possible = [layer for layer in layers if layer.name in in_paths]
    with_directions = {layer.name for layer in layers if layer.has_directions}
    kinds: list[str] = []
    for of_series in series:
        measured_layer = of_series.path[-1]
        kinds.append(_TRANSFERS if measured_layer in with_directions else measured_layer)
    for layer in possible:
        prior = (1 - _SEVERAL - _NOTHING) / len(possible)
        directions = _DIRECTIONS if layer.has_directions else {None: 1.0}
        for direction, share in directions.items():
            concerned = _concerned(series, layer, direction)
            if concerned.any():
                groups = _group_series(series, layer, np.array(kinds), concerned)
                not_concerned = outside[~concerned].sum(axis=0)
                total = _layer_evidence(layer, groups, likelihoods, not_concerned)
                evidence[Hypothesis(layer.name, direction)] = math.log(prior * share) + total
    return evidence


def _concerned(series: Sequence[LayerSeries], layer: Layer, direction: TransferDirection | None) -> Bools:
    """Series through a layer; with a direction only those of that direction."""
    passes_through: Bools = np.array([layer.name in of_series.path for of_series in series])
    if direction is None:
        return passes_through
    has_direction = np.array([of_series.direction == direction for of_series in series])
    return np.asarray(passes_through & has_direction)


@dataclass(frozen=True)
class _SeriesGroups:
    """Series that a fault of a layer concerns; each mask has shape (series,).

    Attributes:
        controls: the control series of the layer.
        alike: other series of the same kind as the controls, which a fault costs the same amount.
        others: series of each other kind, which a fault costs any part or multiple of that amount.
    """

    controls: Bools
    alike: tuple[Bools, ...]
    others: tuple[Bools, ...]


def _group_series(
    series: Sequence[LayerSeries], layer: Layer, kinds: NDArray[np.str_], concerned: Bools
) -> _SeriesGroups:
    """The series that are concerned, by kind.

    Args:
        kinds: name of the layer of which a series is a control, or "transfers", which are alike whatever their layer.
    """
    controls = concerned & np.array([of_series.path[-1] == layer.name for of_series in series])
    kind_of_controls = _TRANSFERS if layer.has_directions else layer.name
    alike: list[Bools] = []
    others: list[Bools] = []
    for kind in np.unique(kinds[concerned & ~controls]):
        group = concerned & ~controls & (kinds == kind)
        (alike if kind == kind_of_controls else others).append(group)
    return _SeriesGroups(controls, tuple(alike), tuple(others))


def _layer_evidence(layer: Layer, groups: _SeriesGroups, likelihoods: _Likelihoods, not_concerned: Floats) -> float:
    """ln p of the changes of all series if the layer had a fault, averaged over all that is not known about the fault.

    The fault costs either what is usual for the layer (`Layer.work`) or a share of the time; the two are mixed with
    their prior probabilities. For one amount of the fault and one shift of the session the series are independent, so
    that their ln p are added:

    controls: each changes by the amount of the fault if it notices it; nearly always at least one does.
    alike: the share of the series of a kind that notice the fault is unknown; their amount is that of the fault.
    others: the same, but the amount of the whole kind may be a part or a multiple of that of the fault.

    Args:
        groups: series that the fault concerns.
        likelihoods: of all series.
        not_concerned: ln p of all other series together, which the fault does not change; shape (1, shifts).
    """
    unchanged = likelihoods.unchanged
    log_terms: list[float] = []
    # The two costs that a fault can have, each with its prior probability.
    for work, prior in (layer.work, _USUAL_WORK), ("share", 1 - _USUAL_WORK):
        changed = likelihoods.concerned[work]
        # Shape (amounts of the fault, shifts) as soon as a series is concerned.
        total = not_concerned
        # The ln p of each group of series is added.
        if groups.controls.any():
            changed_controls = changed[groups.controls][:, _SAME_AMOUNTS]
            total = total + _log_p_controls(changed_controls, unchanged[groups.controls], layer.controls_notice)
        for group in groups.alike:
            total = total + _log_p_kind(changed[group], unchanged[group])[_SAME_AMOUNTS]
        for group in groups.others:
            total = total + _average_multiples(_log_p_kind(changed[group], unchanged[group]))
        # Amount and shift are unknown: their average remains, weighted by the prior probability of this cost.
        log_terms.append(_average_unknown(total) + math.log(prior))
    return float(np.logaddexp.reduce(log_terms))


def _log_p_kind(changed: Floats, unchanged: Floats) -> Floats:
    """ln p of the series of one kind together, of which an unknown share notices a fault.

    Args:
        changed: of the series as in `_Likelihoods.concerned`, shape (series, amounts of a kind, shifts).
        unchanged: as in `_Likelihoods`, shape (series, 1, shifts).

    Returns:
        Shape (amounts of a kind, shifts).
    """
    by_share = [_log_p_each(changed, unchanged, share).sum(axis=0) for share in _NOTICE]
    mixed: Floats = np.logaddexp.reduce(by_share) - math.log(len(_NOTICE))
    return mixed


def _average_multiples(by_amount: Floats) -> Floats:
    """ln p of the series of one kind, averaged over the parts and multiples of the amount of the fault.

    Args:
        by_amount: shape (amounts of a kind, shifts).

    Returns:
        Shape (amounts of the fault, shifts).
    """
    # Any step is possible; those of at most one amount have most of the prior probability.
    weights = np.full(len(_KIND_STEPS), (1 - _KIND_ALIKE) / len(_KIND_STEPS))
    is_alike = np.abs(_KIND_STEPS) <= 1
    weights[is_alike] += _KIND_ALIKE / is_alike.sum()
    # The amounts of a kind for all amounts of the fault, shifted by each step.
    multiples = np.stack([by_amount[first : first + len(_AMOUNTS)] for first in range(len(_KIND_STEPS))])
    mixed: Floats = np.logaddexp.reduce(multiples + np.log(weights)[:, None, None])
    return mixed


def _log_p_each(changed: Floats, unchanged: Floats, probability: float) -> Floats:
    """ln p of each series if it notices a fault with this probability; shapes as in `_log_p_kind`."""
    mixed: Floats = np.logaddexp(math.log(probability) + changed, math.log1p(-probability) + unchanged)
    return mixed


def _log_p_controls(changed: Floats, unchanged: Floats, probability: float) -> Floats:
    """ln p of the control series of a layer together, of which at least one nearly always notices a fault of it.

    Args:
        changed: shape (controls, amounts of the fault, shifts).
        unchanged: shape (controls, 1, shifts).
        probability: that a control series notices the fault (`Layer.controls_notice`).

    Returns:
        Shape (amounts of the fault, shifts).
    """
    all_cases = _log_p_each(changed, unchanged, probability).sum(axis=0)
    all_unchanged = unchanged.sum(axis=0)
    # At least one notices it: all cases without that in which none does, divided by the probability of that.
    none_notices = all_unchanged + len(unchanged) * math.log1p(-probability)
    # Rounding must not make "none" as likely as all cases: the logarithm of their difference would be infinite.
    difference = np.minimum(none_notices - all_cases, -1e-12)
    some_notice = all_cases + np.log1p(-np.exp(difference))
    some_notice -= math.log1p(-((1 - probability) ** len(unchanged)))
    mixed: Floats = np.logaddexp(math.log(_CONTROLS_TELL) + some_notice, math.log1p(-_CONTROLS_TELL) + all_unchanged)
    return mixed


def _average_unknown(logs: Floats) -> float:
    """ln of the mean of a likelihood over what is not known, from its ln; shape (amounts or 1, shifts)."""
    weights = _SHIFT_WEIGHTS / _SHIFT_WEIGHTS.sum() / len(logs)
    return float(np.logaddexp.reduce(logs + np.log(weights), axis=None))


def _likelihoods(series: Sequence[LayerSeries], sign: float) -> _Likelihoods:
    """Likelihoods of the changes of each series.

    Args:
        sign: -1 if a fault, 1 if an improvement is assumed.
    """
    slower = np.array([sign * of_series.log_gain for of_series in series])
    seconds = np.array([of_series.seconds for of_series in series])
    if sign > 0:
        # Of an improvement the time after it is the time before the fault that it would be.
        seconds = seconds * np.exp(-slower)
    noise = np.maximum([of_series.noise for of_series in series], _LEAST_NOISE)
    shifts = np.hypot(_COMMON_SHIFT, _COMMON_NOISE * noise)[:, None] * _SHIFT_NODES
    rest = (slower[:, None] - shifts)[:, None, :]  # (series, 1, shifts)

    def density(effects: Floats, weights: Floats) -> Floats:
        """ln of the mixture over the last axis of `effects` (series, amounts, parts); (series, amounts, shifts)."""
        mixed = np.zeros(())
        for number, weight in enumerate(weights):
            scaled = (rest - effects[:, :, number, None]) / noise[:, None, None]
            base = 1 + scaled * scaled / _FREEDOM
            # base ** (-(_FREEDOM + 1) / 2), which falls too slowly to be 0 anywhere; a general power takes far longer.
            mixed = mixed + weight / (base * base * base * np.sqrt(base))
        return np.asarray(np.log(mixed / noise[:, None, None]))

    # Unchanged, and changed by any amount in either direction.
    unchanged = density(np.zeros((len(series), 1, 1)), np.ones(1))
    slower_effects = np.log1p(_ANY_AMOUNTS)
    both_signs = np.concatenate([slower_effects, -slower_effects])
    any_amount = density(np.tile(both_signs, (len(series), 1, 1)), np.full(len(both_signs), 1 / len(both_signs)))
    # Changed by each amount of the fault, or about as much.
    factors, weights = np.exp(_SPREAD * _SPREAD_NODES), _SPREAD_WEIGHTS / _SPREAD_WEIGHTS.sum()
    ratio = _AMOUNTS[1] / _AMOUNTS[0]
    amounts = _AMOUNTS[0] * ratio ** np.arange(_KIND_STEPS[0], len(_AMOUNTS) + _KIND_STEPS[-1])
    concerned: dict[LayerWork, Floats] = {}
    for work in get_args(LayerWork):
        units = _relative_units(series, seconds, work)
        effects = np.log1p(amounts[:, None] * np.nan_to_num(units)[:, None, None] * factors)
        changed = np.logaddexp(math.log(_ALIKE) + density(effects, weights), math.log(1 - _ALIKE) + any_amount)
        # Without a common unit a series has any amount of its own.
        concerned[work] = np.where(np.isnan(units)[:, None, None], any_amount, changed)
    return _Likelihoods(unchanged, any_amount, concerned)


def _relative_units(series: Sequence[LayerSeries], seconds: Floats, work: LayerWork) -> Floats:
    """Share of its time that one unit of a fault costs each series, relative to the median; NaN if unknown."""
    if work == "share":
        return np.ones(len(series))
    mib = np.array([of_series.mib for of_series in series])
    with np.errstate(divide="ignore", invalid="ignore"):
        if work == "bytes":
            units = np.where(mib > 0, 1 / seconds, np.nan)
        else:
            units = np.where(mib == 0, 1 / seconds, 1 / (seconds * mib))
    # Operations without data are the typical ones for a fault per operation.
    is_typical = np.ones(len(units), dtype=bool)
    if work == "operations" and (mib == 0).any():
        is_typical = mib == 0
    typical = units[is_typical & np.isfinite(units)]
    if not len(typical):
        return units
    return np.asarray(units / np.median(typical))


def _control_layers(series: Sequence[LayerSeries], layers: Sequence[Layer]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Layers of whose control series at least a third moved in the main direction, and none did."""
    gains = np.array([of_series.log_gain for of_series in series])
    noise = np.maximum([of_series.noise for of_series in series], _LEAST_NOISE)
    is_strong = np.abs(gains) >= np.maximum(_MOVED_SIZE, _MOVED_NOISE * noise)
    main_direction = np.sign(gains[is_strong].sum()) if is_strong.any() else 0.0
    has_moved = is_strong & (np.sign(gains) == main_direction)
    # Share of the control series of each layer that moved.
    shares: dict[str, float] = {}
    for layer in layers:
        is_control = np.array([of_series.path[-1] == layer.name for of_series in series])
        if is_control.any():
            shares[layer.name] = float(np.mean(has_moved[is_control]))
    moved = tuple(name for name, share in shares.items() if share >= 1 / 3)
    return moved, tuple(name for name, share in shares.items() if share == 0)
