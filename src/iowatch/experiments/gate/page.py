"""History of a library: performance over the commits of its branches, from recorded gates (docs/gate.md).

Data flow: sessions with the record of a gate -> `experiments.common.gate_records` (order of commits, relative levels)
-> one picture of decisions per branch and one per result -> `gates.html`, and `gate/SESSION.html` for each gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from iowatch.core import escape_controls
from iowatch.experiments.common.gate_records import (
    RECORD,
    CommitGates,
    LevelChains,
    RecordedGate,
    RelativeLevel,
    gates_by_commit,
    has_commit_order,
    read_recorded_gates,
)
from iowatch.experiments.common.text import format_change
from iowatch.output.dashboard import Page, SiteBuild, drawing, safe_file_name, shorten_text
from iowatch.output.dashboard.data import session_page_path

# Results of a branch that are shown at once, those with the largest loss first; the others are in a fold.
_SHOWN_RESULTS = 6
# Rows of the table of a branch that are shown at once.
SHOWN_COMMITS = 15
# Digits of a hash on the page, as `git log --oneline` has them.
SHORT_HASH = 7
# A run of a gate that fails as a whole (`GateRun`).
_EVERYTHING = "everything"
# Distances in pictures, in CSS pixels.
_TOP, _BOTTOM, _LEFT, _RIGHT, _STRIP_HEIGHT, _CHART_HEIGHT = 24.0, 34.0, 52.0, 22.0, 62.0, 190.0
_SYMBOL = 5.0
# Width of a short hash below an axis.
_HASH_WIDTH = 58.0
# An axis shows at least this distance from 1 on both sides: noise of a few per cent looks small.
_LEAST_RANGE = 0.1


@dataclass(frozen=True)
class _Layout:
    """Width of a picture, its style classes, and how many of the newest commits fit side by side."""

    width: float
    classes: str
    max_commits: int


_LAYOUTS = (_Layout(620.0, "picture curves for-wide", 36), _Layout(340.0, "picture curves for-narrow", 18))


@dataclass(frozen=True)
class ResultView:
    """One result over the commits of a branch: its name, its newest level in words, and its picture."""

    name: str
    newest: str
    picture: Markup


@dataclass(frozen=True)
class CommitView:
    """One row of the table of a branch.

    Attributes:
        gates: of the commit.
        page: of the newest gate.
        largest_loss: a run that fails, or a result that is erratic, else name and change of that which lost most, or
            empty.
        bisect_command: the search between the newest commit before it that passed and this one; empty unless it was
            stopped.
    """

    gates: CommitGates
    page: str
    largest_loss: str
    bisect_command: str


@dataclass(frozen=True)
class BranchView:
    """One branch of a package on one system.

    Attributes:
        commits: newest commit first.
        decisions: picture of the decisions.
        results: those with the largest loss first.
        is_by_date: whether commits are in the order of their dates, because a clone was shallow.
    """

    name: str
    commits: Sequence[CommitView]
    decisions: Markup
    results: Sequence[ResultView]
    is_by_date: bool

    @property
    def shown_results(self) -> Sequence[ResultView]:
        """Results that are not in the fold."""
        return self.results[:_SHOWN_RESULTS]

    @property
    def folded_results(self) -> Sequence[ResultView]:
        """Further results."""
        return self.results[_SHOWN_RESULTS:]


@dataclass(frozen=True)
class LibraryView:
    """The branches of a package on one system."""

    package: str
    system: str
    branches: Sequence[BranchView]


def gate_page_path(gate: RecordedGate) -> str:
    """Path of the page of a gate in the site."""
    return f"gate/{safe_file_name(gate.session.uuid)}.html"


def publish_gate_pages(site: SiteBuild) -> None:
    """Write `gates.html`, and a page per recorded gate."""
    libraries: list[LibraryView] = []
    faults: list[str] = []
    for machine in site.catalogue.machines:
        records = read_recorded_gates(machine.sessions)
        faults += records.faults
        for package in sorted({gate.record.package for gate in records.gates}):
            gates = [gate for gate in records.gates if gate.record.package == package]
            libraries.append(_library_view(site, machine.name, gates))
    formats: dict[str, Any] = {"page_of": gate_page_path, "hash_digits": SHORT_HASH, "symbol": symbol_key}
    site.write_page(
        "gates.html", "gate/gates.html", libraries=libraries, faults=faults, shown_commits=SHOWN_COMMITS, **formats
    )


def _has_gates(site: SiteBuild) -> bool:
    """Whether a gate was recorded; one that cannot be read is reported on the page."""
    for machine in site.catalogue.machines:
        if any(RECORD in session.facts.document for session in machine.sessions):
            return True
    return False


PAGE = Page(
    "gates.html",
    "Gates",
    None,
    publish_gate_pages,
    below="comparisons.html",
    line="performance of libraries over their commits, as recorded gates measured it.",
    has_content=_has_gates,
)


def _library_view(site: SiteBuild, system: str, gates: Sequence[RecordedGate]) -> LibraryView:
    """The branches of one package, that with the newest gate first; writes the pages of its gates."""
    chains = LevelChains(gates)
    branches: list[BranchView] = []
    for branch in dict.fromkeys(gate.record.branch for gate in gates):
        of_branch = [gate for gate in gates if gate.record.branch == branch]
        commits = gates_by_commit(of_branch)
        branches.append(_branch_view(branch, commits, chains, is_by_date=not has_commit_order(of_branch)))
        _write_gate_pages(site, commits)
    return LibraryView(gates[0].record.package, system, branches)


def _write_gate_pages(site: SiteBuild, commits: Sequence[CommitGates]) -> None:
    """Write a page for each gate of a branch."""
    for number, commit in enumerate(commits):
        all_gates = (commit.newest, *commit.earlier)
        for gate in all_gates:
            others = [other for other in all_gates if other is not gate]
            site.write_page(
                gate_page_path(gate),
                "gate/gate.html",
                gate=gate,
                document=gate.record.document,
                is_missing=commit.is_missing,
                is_newest=gate is commit.newest,
                others=[(other, gate_page_path(other)) for other in others],
                session_page=session_page_path(gate.session),
                bisect_command=_bisect_command(commits, number),
                change=format_change,
                hash_digits=SHORT_HASH,
                symbol=symbol_key,
            )


def _branch_view(branch: str, commits: Sequence[CommitGates], chains: LevelChains, *, is_by_date: bool) -> BranchView:
    """One branch, whose commits are given oldest first."""
    rows: list[CommitView] = []
    for number, commit in enumerate(commits):
        page = gate_page_path(commit.newest)
        rows.append(CommitView(commit, page, _largest_loss(commit.newest), _bisect_command(commits, number)))
    rows.reverse()
    return BranchView(branch, rows, _decisions_pictures(branch, commits), _result_views(commits, chains), is_by_date)


def _largest_loss(gate: RecordedGate) -> str:
    """A run that fails, or a result that is erratic, else that which lost most; empty if none lost anything."""
    for run in sorted(gate.failed_runs):
        return f"{run} fails"
    for result in gate.results:
        if result.decision == "erratic":
            return f"{result.name} erratic"
    losses: list[tuple[float, str]] = []
    for result in gate.results:
        # What was left out for its noise did not take part in the decision.
        if result.change is not None and result.change < 0 and result.decision != "left out":
            losses.append((result.change, result.name))
    if not losses:
        return ""
    change, name = min(losses)
    return f"{name} {format_change(change)}"


def _bisect_command(commits: Sequence[CommitGates], number: int) -> str:
    """The search between the newest commit before one that passed and this one; empty unless a level was stopped.

    A search compares the best repetitions of runs, so it does not find what makes a head erratic.
    """
    bad = commits[number].newest
    # A commit that a forced push replaced cannot be built any more.
    if commits[number].is_missing or not any(result.decision == "slower" for result in bad.results):
        return ""
    for commit in reversed(commits[:number]):
        if commit.newest.decision == "pass" and not commit.is_missing:
            good = commit.newest.commit
            return f"iowatch bisect --from-gates {bad.record.package} {good[:12]} {bad.commit[:12]}"
    return ""


@dataclass(frozen=True)
class _Point:
    """One commit in the picture of a result.

    Attributes:
        level: None where the gate has no number, as of a run that fails.
        state: a key of `_SYMBOLS`.
    """

    commit: CommitGates
    level: RelativeLevel | None
    state: str


def _result_views(commits: Sequence[CommitGates], chains: LevelChains) -> list[ResultView]:
    """All results of a branch, that with the lowest level at any commit first."""
    # The name of a result is that of the newest gate that has it.
    names: dict[str, str] = {}
    runs: dict[str, str] = {}
    for commit in commits:
        for result in commit.newest.results:
            names[result.key] = result.name
            runs[result.key] = result.run
    views: list[tuple[float, ResultView]] = []
    for key, name in names.items():
        points = list(_result_points(commits, chains, key, runs[key]))
        levels = [point.level for point in points if point.level is not None]
        if not levels:
            continue
        words = f"{100 * levels[-1].value:.1f} % of the first base"
        lowest = min(level.value for level in levels)
        views.append((lowest, ResultView(name, words, _level_pictures(name, points))))
    views.sort(key=lambda view: view[0])
    return [view for _, view in views]


def _result_points(commits: Sequence[CommitGates], chains: LevelChains, key: str, run: str) -> Iterator[_Point]:
    """The points of a result, one per commit whose gate has it or fails to run it."""
    for commit in commits:
        gate = commit.newest
        if gate.failed_runs & {run, _EVERYTHING}:
            yield _Point(commit, None, "failed")
            continue
        result = gate.result(key)
        if result is not None:
            yield _Point(commit, chains.level(gate, key), result_state(result.decision))


def result_state(decision: str) -> str:
    """Symbol of the decision about one result."""
    if decision == "within":
        return "pass"
    if decision in ("slower", "erratic"):
        return "regression"
    return "undecided"  # open, or left out


def gate_state(gate: RecordedGate) -> str:
    """Symbol of the decision of a gate."""
    if gate.failed_runs:
        return "failed"
    return gate.decision if gate.decision in _SYMBOLS else "undecided"


# Symbols: shape and colour differ, so that each is recognised without the other. Words are those of the legend.
_SYMBOLS = {
    "pass": "pass",
    "regression": "stopped: slower or erratic",
    "failed": "stopped: does not work",
    "undecided": "undecided",
}


def _symbol(state: str, x: float, y: float, is_missing: bool) -> str:
    """A circle, a triangle, a cross or a hollow diamond around a position; replaced commits are in a dashed square."""
    size = _SYMBOL
    if state == "pass":
        shape = f'<circle class="gated pass" cx="{x:.1f}" cy="{y:.1f}" r="{size - 0.5:g}"/>'
    elif state == "regression":
        points = f"{x - size:.1f},{y - size:.1f} {x + size:.1f},{y - size:.1f} {x:.1f},{y + size:.1f}"
        shape = f'<polygon class="gated regression" points="{points}"/>'
    elif state == "failed":
        line = f"M{x - size:.1f} {y - size:.1f}L{x + size:.1f} {y + size:.1f}M{x - size:.1f} {y + size:.1f}"
        shape = f'<path class="gated failed" d="{line}L{x + size:.1f} {y - size:.1f}"/>'
    else:
        wide = size + 1
        points = f"{x - wide:.1f},{y:.1f} {x:.1f},{y - wide:.1f} {x + wide:.1f},{y:.1f} {x:.1f},{y + wide:.1f}"
        shape = f'<polygon class="gated undecided" points="{points}"/>'
    if is_missing:
        edge = size + 4
        shape += f'<rect class="gated replaced" x="{x - edge:.1f}" y="{y - edge:.1f}" width="{2 * edge:g}" '
        shape += f'height="{2 * edge:g}"/>'
    return shape


def symbol_key(state: str, is_missing: bool = False) -> Markup:
    """A symbol beside its words, for the legend and for tables."""
    words = "replaced by a forced push" if is_missing else _SYMBOLS[state]
    return drawing.svg_picture(20, 20, words, [_symbol(state, 10, 10, is_missing)], "picture gate-key")


def _linked(gate: RecordedGate, content: str, words: str) -> str:
    """A part of a picture that leads to the page of a gate."""
    title = escape(escape_controls(words))
    link = escape(gate_page_path(gate))
    return f'<a href="{link}" aria-label="{title}"><title>{title}</title>{content}</a>'


def _point_words(commit: CommitGates, state: str, level: RelativeLevel | None = None) -> str:
    """A point in words, for the pointer and for screen readers."""
    gate = commit.newest
    words = [f"{gate.commit[:SHORT_HASH]} {shorten_text(gate.record.head.subject, 60)}", _SYMBOLS[state]]
    if level is not None:
        words.append(f"{100 * level.value:.1f} %")
    if commit.earlier:
        words.append(f"gated {len(commit.earlier) + 1} times")
    if commit.is_missing:
        words.append("replaced by a forced push")
    return "; ".join(words)


def _positions(layout: _Layout, count: int) -> list[float]:
    """Centres of commits from left to right: equal distances, whatever the time between them."""
    scale = drawing.AxisScale(0, max(count - 1, 1), _LEFT + 12, layout.width - _RIGHT - 12)
    if count == 1:
        return [(scale.start + scale.end) / 2]
    return [scale(number) for number in range(count)]


def _commit_axis(commits: Sequence[CommitGates], positions: Sequence[float], bottom: float) -> Iterator[str]:
    """Short hashes below a picture: the newest one, and as many before it as fit."""
    right_edge = float("inf")
    for commit, position in reversed([*zip(commits, positions, strict=True)]):
        if position + _HASH_WIDTH / 2 <= right_edge:
            yield drawing.svg_line("grid", position, bottom, position, bottom + 4)
            yield drawing.svg_text("date", position, bottom + 17, commit.newest.commit[:SHORT_HASH])
            right_edge = position - _HASH_WIDTH / 2


def _decisions_pictures(branch: str, commits: Sequence[CommitGates]) -> Markup:
    """The decision about each commit in one row, wide and narrow."""
    pictures = Markup()
    for layout in _LAYOUTS:
        shown = commits[-layout.max_commits :]
        positions = _positions(layout, len(shown))
        bottom = _STRIP_HEIGHT - _BOTTOM
        parts = [drawing.svg_line("grid", _LEFT, bottom, layout.width - _RIGHT, bottom)]
        for commit, position in zip(shown, positions, strict=True):
            state = gate_state(commit.newest)
            symbol = _symbol(state, position, bottom - 14, commit.is_missing)
            parts.append(_linked(commit.newest, symbol, _point_words(commit, state)))
        parts += _commit_axis(shown, positions, bottom)
        label = f"decisions about {len(shown)} commits of {branch}"
        pictures += _linked_picture(layout, _STRIP_HEIGHT, label, parts)
    return pictures


def _linked_picture(layout: _Layout, height: float, label: str, parts: Sequence[str]) -> Markup:
    """A picture with links: for screen readers a group of them, not one image."""
    picture = drawing.svg_picture(layout.width, height, label, parts, layout.classes)
    return picture.replace('role="img"', Markup('role="group"'), 1)


def _level_pictures(name: str, points: Sequence[_Point]) -> Markup:
    """The level of one result over commits, wide and narrow."""
    pictures = Markup()
    for layout in _LAYOUTS:
        pictures += _level_picture(name, points[-layout.max_commits :], layout)
    return pictures


def _level_picture(name: str, points: Sequence[_Point], layout: _Layout) -> Markup:
    bottom = _CHART_HEIGHT - _BOTTOM
    y = _level_axis(points, bottom)
    positions = _positions(layout, len(points))
    right = layout.width - _RIGHT
    # Values with a grid, and a stronger line at the base.
    parts: list[str] = [drawing.svg_text("unit", 2, _TOP - 10, "% of the first base")]
    for level in (y.low, (y.low + 1) / 2, 1.0, (1 + y.high) / 2, y.high):
        style = "grid one" if level == 1.0 else "grid"
        parts.append(drawing.svg_line(style, _LEFT, y(level), right, y(level)))
        parts.append(drawing.svg_text("tick", _LEFT - 6, y(level) + 4, f"{100 * level:g}"))
    parts += _level_lines(points, positions, y)
    for point, position in zip(points, positions, strict=True):
        parts += _draw_point(point, position, y, bottom)
    parts += _commit_axis([point.commit for point in points], positions, bottom)
    return _linked_picture(layout, _CHART_HEIGHT, f"{name} over commits", parts)


def _level_axis(points: Sequence[_Point], bottom: float) -> drawing.AxisScale:
    """Axis around 1 with all levels; ends of intervals may be cut off."""
    distance = _LEAST_RANGE
    for point in points:
        if point.level is not None:
            distance = max(distance, abs(point.level.value - 1))
    # A little more than the farthest level, in steps of 5 %.
    steps = int(distance * 1.1 / 0.05) + 1
    low = max(0.0, 1 - steps * 0.05)
    return drawing.AxisScale(low, 1 + steps * 0.05, bottom, _TOP)


def _level_lines(points: Sequence[_Point], positions: Sequence[float], y: drawing.AxisScale) -> Iterator[str]:
    """Lines between neighbouring commits whose levels have the same origin; replaced commits are beside the line."""
    previous: tuple[float, RelativeLevel] | None = None
    for point, position in zip(points, positions, strict=True):
        if point.level is None or point.commit.is_missing:
            continue
        if previous is not None and previous[1].origin == point.level.origin:
            before, level = previous
            yield drawing.svg_line("gate-line", before, y.limited(level.value), position, y.limited(point.level.value))
        previous = (position, point.level)


def _draw_point(point: _Point, x: float, y: drawing.AxisScale, bottom: float) -> Iterator[str]:
    """The interval of the change and the symbol above it; without a level the symbol is at the bottom."""
    level = point.level
    gate = point.commit.newest
    words = _point_words(point.commit, point.state, level)
    if level is None:
        yield _linked(gate, _symbol(point.state, x, bottom - 9, point.commit.is_missing), words)
        return
    # An end that is not known reaches to the edge of the picture.
    low = y.low if level.low is None else level.low
    high = y.high if level.high is None else level.high
    yield drawing.svg_line("gate-interval", x, y.limited(low), x, y.limited(high))
    yield _linked(gate, _symbol(point.state, x, y.limited(level.value), point.commit.is_missing), words)
