"""What a session and the history show, as text: the report of the newest session, retests, extent, trends, changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo

from iowatch.core import NodeDifference, NodePairs, covariate_label, format_count, format_day, format_number, local_day
from iowatch.findings import MIN_OBSERVATIONS, Finding, HistoryExtent, Retest, Trend
from iowatch.output.text.changes import format_factor
from iowatch.output.text.evidence import format_moved_layer
from iowatch.output.text.findings import short_summary
from iowatch.output.text.losses import format_lasting, format_outlook, format_session_loss
from iowatch.site import system_zone
from iowatch.statistics import Detection
from iowatch.store import NewestSessionReport, fold_node_names


def describe_newest_session(report: NewestSessionReport, findings: Sequence[Finding]) -> str:
    """Report of the newest session in one line.

    Args:
        findings: those of the system, of the update that made the report.
    """
    if not report.measured:
        return "no series with a known level was measured"
    load = ""
    if report.adjusted_for is not None:
        load = f" (without the effect of {covariate_label(report.adjusted_for)})"
    texts = [*_loss_texts(findings), *_event_texts(findings)]
    if texts:
        return f"{report.unusual} of {report.measured} series far off{load}, {'; '.join(texts)}"
    if report.unusual:
        return f"{report.unusual} of {report.measured} series far off, no more than usual{load}"
    return f"nothing unusual in {report.measured} series{load}"


def _loss_texts(findings: Iterable[Finding]) -> list[str]:
    """The unusual losses of the last session, the largest first."""
    gains_and_texts: list[tuple[float, str]] = []
    for finding in findings:
        if finding.resolution is None and finding.session_loss is not None:
            gains_and_texts.append((finding.session_loss.gain, _describe_loss(finding)))
    return [text for _gain, text in sorted(gains_and_texts)]


def _event_texts(findings: Iterable[Finding]) -> list[str]:
    """The other events of the newest sessions, the most probable first."""
    ranks_and_texts: list[tuple[float, str]] = []
    for finding in findings:
        if finding.resolution is not None or finding.session_loss is not None:
            continue
        if finding.outlook is not None and finding.outlook.is_current:
            ranks_and_texts.append((-finding.outlook.probability_lasting, _describe_event(finding)))
    return [text for _rank, text in sorted(ranks_and_texts)]


def _describe_loss(finding: Finding) -> str:
    parts = [short_summary(finding), f"last session {format_session_loss(finding)}"]
    return "; ".join([*parts, *_named_layer(finding), format_lasting(finding)])


def _describe_event(finding: Finding) -> str:
    return "; ".join([short_summary(finding), *_named_layer(finding), format_outlook(finding)])


def _named_layer(finding: Finding) -> list[str]:
    """The lowest layer that moved, if it is known."""
    if finding.layer is None or not finding.layer.named:
        return []
    return [format_moved_layer(finding.layer)]


def format_saturation(pressures_percent: Sequence[float]) -> str:
    """What is to be known about runs on saturated nodes: `measured at a processor pressure of 99 %, …`.

    Args:
        pressures_percent: of each of these runs, at least one.
    """
    lowest, highest = (format_number(round(extreme(pressures_percent))) for extreme in (min, max))
    pressure = highest if lowest == highest else f"{lowest} to {highest}"
    return f"measured at a processor pressure of {pressure} %, left out of levels and references"


# Of more values or nodes the number is given.
_MAX_NODE_GROUPS = 3


def format_node_difference(difference: NodeDifference) -> str:
    """What differs between nodes: `kernel 6.1.0-21 on node n3, 6.1.0-25 on the other 3 nodes`.

    Without a value that most nodes have: `kernel 6.1.0-21 on nodes n[1-2], 6.1.0-25 on nodes n[3-4]`.
    """
    texts: list[str] = []
    for group in difference.others[:_MAX_NODE_GROUPS]:
        noun = "node" if len(group.nodes) == 1 else "nodes"
        texts.append(f"{group.value} on {noun} {fold_node_names(group.nodes)}")
    hidden = len(difference.others) - _MAX_NODE_GROUPS
    if hidden > 0:
        texts.append(f"{format_count(hidden, 'further value')}")
    if difference.usual is not None:
        count = len(difference.usual.nodes)
        others = "the other node" if count == 1 else f"the other {count} nodes"
        texts.append(f"{difference.usual.value} on {others}")
    return f"{difference.label} {', '.join(texts)}"


def format_slow_nodes(pairs: NodePairs) -> str:
    """The nodes whose messages are slow: `slow messages: n3: 0.11 of the usual network bandwidth in 3 of 3 pairs`."""
    texts: list[str] = []
    for slow_node in pairs.slow_nodes:
        figure = f"{format_number(slow_node.ratio)} of the usual network bandwidth"
        if slow_node.metric == "latency":
            figure = f"{format_number(slow_node.ratio)} times the usual latency"
        texts.append(f"{slow_node.node}: {figure} in {slow_node.slow_pairs} of {slow_node.pairs} pairs")
    return f"slow messages: {'; '.join(texts)}"


def format_retest(retest: Retest) -> str:
    """For example `on other nodes (n2 instead of n1), 12 min after the first run`."""
    first_nodes, retest_nodes = retest.nodes
    nodes = ""
    if retest.place == "other nodes":
        nodes = f" ({fold_node_names(retest_nodes)} instead of {fold_node_names(first_nodes)})"
    elif retest.place == "the same nodes":
        nodes = f" ({fold_node_names(retest_nodes)})"
    return f"on {retest.place}{nodes}, {round(retest.later_s / 60)} min after the first run"


def format_extent(extent: HistoryExtent) -> str:
    """The amount of history on which an answer is based, or why it is too small; the same for every report.

    Its unit is the day: sessions of one day are no longer history than one of them.
    """
    days = f"{format_count(extent.days, 'day')} of observations"
    if not extent.is_assessed:
        return f"{days} of {extent.series} series, {_missing_extent(extent)}{format_early_steps(extent)}"
    too_few = extent.series - extent.assessable
    rest = f" ({too_few} more have too few observations to be assessed)" if too_few else ""
    return f"{days} of {extent.assessable} series{rest}"


def _missing_extent(extent: HistoryExtent) -> str:
    """Why changes are not detected yet."""
    if extent.days >= MIN_OBSERVATIONS:
        return "not assessed yet"
    return f"too few to detect changes ({MIN_OBSERVATIONS} days are needed; sessions of one day count once)"


def format_early_steps(extent: HistoryExtent) -> str:
    """What was found all the same, with a semicolon before it; empty if nothing was."""
    if not extent.stepped:
        return ""
    return (
        f"; a step is in {extent.stepped} of {extent.series} series all the same, the largest "
        f"{format_factor(extent.largest_step)} (`iowatch detect` lists them)"
    )


def format_no_findings(extent: HistoryExtent, hidden: int) -> str:
    """Reason for an empty list: no data, too little data, or no change, which are different results.

    Args:
        hidden: number of findings that are not open.
    """
    if hidden:
        return f"no open findings in {format_extent(extent)} (--all shows all)"
    if not extent.series:
        return "no data: no session has delivered a headline metric; `iowatch history list` shows the sessions"
    if not extent.is_assessed:
        return f"no findings yet: {format_extent(extent)}"
    return f"no findings: no lasting change in {format_extent(extent)}"


def trend_lines(trends: Iterable[Trend]) -> Iterator[str]:
    """One line per trend, with a heading; empty without trends."""
    for position, trend in enumerate(trends):
        if position == 0:
            yield "Slow trends, no step and no finding:"
        since = format_day(trend.first, system_zone(trend.system))
        yield f"  {trend.system}: {trend.name} {format_factor(trend.gain)} since {since}"


def detection_cells(detection: Detection, zone: tzinfo) -> Iterator[tuple[str, ...]]:
    """Cells of each change and drift of a series: kind, since, observations, ratio, before, after, confidence.

    Args:
        zone: of the days.
    """
    for step in detection.steps:
        yield (
            f"suspected {step.direction}" if step.suspected else step.direction,
            str(local_day(step.time, zone)),
            str(step.observations),
            format_number(step.ratio),
            format_number(step.before),
            format_number(step.after),
            f"{step.confidence:.2f}",
        )
    for drift in detection.drifts:
        observations = str(drift.last_index - drift.index + 1)
        since = str(local_day(drift.time, zone))
        yield f"drift {drift.direction}", since, observations, format_number(drift.ratio), "", "", ""
