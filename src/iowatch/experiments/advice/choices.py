"""What advice is about: the parameters that a user can choose, the cases with their samples, and pairs of cases.

Two cases are a pair for a parameter if they differ in it and are equal in everything else. The same function finds the
suites that would measure a parameter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import log, prod
from pathlib import Path

from iowatch.benchmarks.suites import load_suite, suite_names
from iowatch.comparison import SideEntry, sides
from iowatch.core import Scalar, UsageError, format_size, session_of_day, settings, suggest_name
from iowatch.findings import format_parameter_value, headline_series, load_detections, load_observations
from iowatch.reference import published
from iowatch.statistics import SideSamples
from iowatch.store import History, SeriesPoints, SeriesRow

Parameters = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class ParameterChoice:
    """A parameter that a user can choose.

    Attributes:
        name: the case parameter.
        label: as printed.
        absent: value of cases without the parameter; None: such cases are not compared.
        default: value that programs have without a choice, if there is one.
        optional: parameters that cases with some of its values do not have (POSIX is neither collective nor
            independent).
        follows: parameters that it determines.
        joint: parameters that usually differ together with it; such pairs are used only if there are no others, and
            reported as not separable.
    """

    name: str
    label: str
    absent: str | None = None
    default: Scalar | None = None
    optional: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    joint: tuple[str, ...] = ()


CHOICES = (
    ParameterChoice("file_system", "file system"),
    ParameterChoice("file", "file layout", joint=("api", "collective", "total_bytes")),
    ParameterChoice("api", "interface", optional=("collective",)),
    ParameterChoice("collective", "access", default=False),
    ParameterChoice("stripe_count", "stripe count", absent="default", default="default", optional=("stripe_bytes",)),
    ParameterChoice("stripe_bytes", "stripe size", absent="default", default="default"),
    ParameterChoice("hints", "MPI-IO hints", absent="none", default="none"),
    ParameterChoice("chunk", "chunk", absent="contiguous", default="contiguous", follows=("layout",)),
    ParameterChoice("alignment_bytes", "alignment", absent="none", default="none"),
    ParameterChoice("transfer_bytes", "transfer size", joint=("block_bytes", "total_bytes")),
    ParameterChoice("pattern", "access pattern", joint=("transfer_bytes", "block_bytes", "segments", "local_size")),
)

# Values that mean the same as the absence of the parameter.
_SAME_AS_ABSENT: Mapping[str, Scalar] = {
    **{"layout": "contiguous", "unlimited": False, "fill": False, "collective_metadata": False},
    **{"alignment_bytes": 0, "stripe_count": 0, "stripe_bytes": 0, "hints": ""},
}
# What a paper does not state about striping was not necessarily the default.
_NOT_STATED = ("stripe_count", "stripe_bytes")
_WORD_BYTES = 8
_UNKNOWN_DISTANCE = log(100)
# Sizes that differ by less count as equal.
EQUAL_SIZES = log(1.1)


@dataclass(frozen=True, slots=True)
class AdvisedWorkload:
    """What the advice is for; None: any size (published tables only).

    Attributes:
        operation: `write` or `read`.
        volume_bytes: user data over all ranks.
    """

    operation: str
    volume_bytes: int | None = None
    ranks: int | None = None
    nodes: int | None = None

    def distance(self, case: Parameters, *, per_rank: bool) -> float:
        """Sum of the absolute log ratios of volume, ranks and nodes to those of a case; 0 for what is not given.

        Args:
            per_rank: compare only the volume per rank, if volume and ranks are given: weak scaling, as in the papers.
        """
        volume = case_volume_bytes(case)
        ranks = case.get("ranks")
        if per_rank and self.volume_bytes and self.ranks:
            volume_per_rank = None
            if volume and ranks:
                volume_per_rank = volume / int(ranks)
            return _size_distance(volume_per_rank, self.volume_bytes / self.ranks)
        return (
            _size_distance(volume, self.volume_bytes)
            + _size_distance(ranks, self.ranks)
            + _size_distance(case.get("nodes"), self.nodes)
        )


def _size_distance(size: Scalar | None, size_of_workload: float | None) -> float:
    """|ln(size of a case / that of the workload)|; 0 if the workload has none, large if the case has none."""
    if size_of_workload is None:
        return 0.0
    if not size:
        return _UNKNOWN_DISTANCE
    return abs(log(float(size) / size_of_workload))


def case_volume_bytes(case: Parameters) -> int | None:
    """User data of one repetition over all ranks, from the parameters of a case; None if they do not determine it."""
    ranks, block = case.get("ranks"), case.get("block_bytes")
    if "total_bytes" in case:
        return int(case["total_bytes"])
    if ranks and block:
        return int(ranks) * int(block) * int(case.get("segments", 1))
    if ranks and "local_size" in case:
        return int(ranks) * _WORD_BYTES * prod(map(int, str(case["local_size"]).split("x")))
    return None


def format_value(choice: ParameterChoice, value: Scalar) -> str:
    """A value of a parameter as text: `8 MiB`, `full striping`, `collective`."""
    if value == choice.absent:
        return str(value)
    if choice.name == "chunk" and isinstance(value, int):
        return format_size(float(value))
    return format_parameter_value(choice.name, value)


def history_entries(history: History, system: str, operation: str, last: int) -> list[SideEntry]:
    """The monitored series of one operation of a system, each since its last detected change.

    The samples of a session are the medians of its observations: one, because a run and its retest are one observation,
    as findings count them; as many as runs measured the series if an import holds several of a day.

    Args:
        operation: `write` or `read`.
        last: number of newest observations of each series; those before its last change are left out of them.
    """
    rows = [row for row in headline_series(history, system) if row.case.parameters.get("operation") == operation]
    detections = load_detections(history, [row.id for row in rows])
    observations = load_observations(history, rows)
    # The session of the run of each observation.
    run_ids: set[int] = set()
    for series_observations in observations.values():
        run_ids.update(int(run_id) for run_id in series_observations.run_id[-last:])
    session_by_run = history.session_of_runs(sorted(run_ids))
    # An import may hold the outputs of many days: each day counts as a session.
    imports = {session.uuid for session in history.sessions(system) if session.origin == "import"}
    entries: list[SideEntry] = []
    for row in rows:
        last_change = 0.0
        if row.id in detections:
            last_change = max((change.time for change in detections[row.id].changes), default=0.0)
        medians_by_session: dict[str, tuple[float, ...]] = defaultdict(tuple)
        for observation in _newest_observations(observations[row.id], last):
            # Without a logarithm a value is of no use for ratios.
            if observation.time < last_change or observation.median <= 0:
                continue
            session = session_by_run[observation.run_id]
            if session in imports:
                session = session_of_day(session, int(observation.time))
            medians_by_session[session] += (observation.median,)
        if medians_by_session:
            entries.append(_entry(row, SideSamples(medians_by_session)))
    return entries


@dataclass(frozen=True)
class _Observation:
    """One observation of a series: its time in epoch seconds, its run, and the median of its samples."""

    time: float
    run_id: int
    median: float


def _newest_observations(points: SeriesPoints, number: int) -> Iterator[_Observation]:
    """So many of the newest observations of a series, the oldest of them first."""
    columns = zip(points.time[-number:], points.run_id[-number:], points.median[-number:], strict=True)
    for time, run_id, median in columns:
        yield _Observation(float(time), int(run_id), float(median))


def _entry(row: SeriesRow, samples: SideSamples) -> SideEntry:
    axes = {"system": row.system, "partition": row.partition, "stack": row.stack}
    return SideEntry(row.case, row.metric, sides.series_axes(row.case, axes), samples)


def published_entries(sources: Sequence[str], system: str | None, operation: str) -> list[SideEntry]:
    """The figures of all tables of some sources; of equal cases in two tables the one printed last.

    Args:
        system: only of this system.

    Raises:
        UsageError: unknown source.
    """
    entries: dict[tuple[str | None, str, str], SideEntry] = {}
    for source in sources:
        for table in published.published_table_names(source):
            if not published.has_long_form(published.load_published_table(source, table)):
                continue
            for entry in sides.published_side_entries(f"{source}/{table}"):
                system_of_entry = entry.axes.get("system")
                is_selected = system in (None, system_of_entry)
                if is_selected and entry.case.parameters.get("operation") == operation:
                    entries[system_of_entry, entry.case.key, entry.metric] = entry
    return list(entries.values())


def sources_with_system(system: str) -> tuple[str, ...]:
    """Keys of the published sources with tables that have this system throughout."""
    sources: dict[str, None] = {}  # each once, in their order
    for table in published.load_all_tables():
        if table.sidecar.common.get("system") == system:
            sources[published.source_key(table.source)] = None
    return tuple(sources)


def parse_fixed_parameters(texts: Sequence[str]) -> dict[str, Scalar | None]:
    """Parse `NAME=VALUE`; sizes may have suffixes, and `none` means that a case does not have the parameter.

    Raises:
        UsageError: a text of another form.
    """
    fixed: dict[str, Scalar | None] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise UsageError(f"--given {text}: expected NAME=VALUE", hint="For example --given api=HDF5")
        fixed[name] = sides.parse_filter_value(name, value)
    return fixed


def filter_entries(entries: Sequence[SideEntry], fixed: Mapping[str, Scalar | None]) -> list[SideEntry]:
    """The entries with these parameters; values are equal if their texts are equal.

    Raises:
        UsageError: no case has the parameter, or this value of it.
    """
    matching = list(entries)
    for name, value in fixed.items():
        values = {str(entry.described.get(name)) for entry in matching}
        if values == {"None"}:
            names = sides.described_names(entries)
            raise UsageError(f"no case has the parameter '{name}'", hint=suggest_name(name, names))
        matching = [entry for entry in matching if str(entry.described.get(name)).lower() == str(value).lower()]
        if not matching:
            raise UsageError(f"no case has {name}={value}", hint=suggest_name(str(value), sorted(values)))
    return matching


def describe_case(entry: SideEntry) -> dict[str, Scalar]:
    """Axes, parameters and metric; what means the same as absence is absent, and names are those of the history."""
    parameters = {**entry.described, "metric": entry.metric}
    if "chunk_bytes" in parameters:
        parameters["chunk"] = parameters.pop("chunk_bytes")
    if "osts" in parameters:  # [bartz2014]: each process communicates with so many OSTs
        parameters["pattern"] = f"{parameters.pop('osts')}-OST"
    return _without_defaults(parameters)


def _without_defaults(parameters: Parameters) -> dict[str, Scalar]:
    return {name: value for name, value in parameters.items() if _SAME_AS_ABSENT.get(name) != value}


# Pairs


@dataclass(frozen=True)
class Contrast:
    """Two cases that differ in one parameter.

    Attributes:
        left, right: their positions.
        values: of the parameter, of the left and of the right case.
        common: parameters that are equal in both.
        joint: parameters that differ together with it.
    """

    left: int
    right: int
    values: tuple[Scalar, Scalar]
    common: Parameters
    joint: frozenset[str]


def find_contrasts(
    choice: ParameterChoice, cases: Sequence[Parameters], *, joint: bool, stated: bool
) -> list[Contrast]:
    """Pairs of cases that differ in the parameter only.

    Args:
        joint: they may differ in the joint parameters of the choice, too.
        stated: the cases are published; what a paper does not state is not known.
    """
    may_differ = {choice.name, *choice.optional, *choice.follows}
    if joint:
        may_differ.update(choice.joint)
    absent_value = choice.absent
    if stated and choice.name in _NOT_STATED:
        absent_value = None
    # Cases that are equal without the parameters that may differ form a group.
    groups: dict[frozenset[tuple[str, str]], list[_ChoiceCase]] = defaultdict(list)
    for position, case in enumerate(cases):
        value = case.get(choice.name, absent_value)
        if value is not None:
            equal_parameters = {name: repr(setting) for name, setting in case.items() if name not in may_differ}
            groups[frozenset(equal_parameters.items())].append(_ChoiceCase(position, value, case))
    # Every two cases of a group with other values are a pair, in the same order for the same values.
    contrasts: list[Contrast] = []
    for group in groups.values():
        for first, second in combinations(group, 2):
            if first.value == second.value or _optional_differs(choice, first.parameters, second.parameters):
                continue
            left, right = sorted((first, second), key=lambda choice_case: repr(choice_case.value))
            contrasts.append(_make_contrast(choice, left, right, joint))
    return contrasts


@dataclass(frozen=True)
class _ChoiceCase:
    """A case at a position, and its value of a parameter."""

    position: int
    value: Scalar
    parameters: Parameters


def _optional_differs(choice: ParameterChoice, left: Parameters, right: Parameters) -> bool:
    """Whether two cases differ in a parameter that cases with some values of the choice do not have."""
    return not all(_agree(left.get(name), right.get(name)) for name in choice.optional)


def _make_contrast(choice: ParameterChoice, left: _ChoiceCase, right: _ChoiceCase, joint: bool) -> Contrast:
    """The contrast of two cases that differ in a parameter.

    Args:
        joint: whether they may differ in the joint parameters of the choice, too; those are listed.
    """
    common: dict[str, Scalar] = {}
    for name, value in left.parameters.items():
        if name not in (choice.name, "metric") and right.parameters.get(name) == value:
            common[name] = value
    # What only one of them has agrees with the other.
    for case in (left.parameters, right.parameters):
        common.update({name: case[name] for name in choice.optional if name in case})
    differing: set[str] = set()
    if joint:
        for name in choice.joint:
            if not _agree(left.parameters.get(name), right.parameters.get(name)):
                differing.add(name)
    return Contrast(left.position, right.position, (left.value, right.value), common, frozenset(differing))


def _agree(left: Scalar | None, right: Scalar | None) -> bool:
    """Whether two values are equal, or one of the cases has none."""
    return left is None or right is None or left == right


def suites_that_measure(choices: Sequence[ParameterChoice], workload: AdvisedWorkload) -> dict[str, tuple[str, ...]]:
    """Suites with cases that differ in a parameter only, by its name; the suite with the nearest size first."""
    roots = tuple(settings.roots())
    if not choices:
        return {}
    distances: dict[str, list[float]] = {}
    for suite, cases in _suite_cases(workload.operation, roots).items():
        distances[suite] = [workload.distance(case, per_rank=False) for case in cases]
    suites_by_choice: dict[str, tuple[str, ...]] = {}
    for choice in choices:
        ranked: list[tuple[float, str]] = []
        for suite, contrasts in _suite_contrasts(choice, workload.operation, roots).items():
            # Of a pair the farther case counts, of a suite its nearest pair.
            far = distances[suite]
            nearest = min(max(far[contrast.left], far[contrast.right]) for contrast in contrasts)
            ranked.append((nearest, suite))
        suites_by_choice[choice.name] = tuple(suite for _, suite in sorted(ranked))
    return suites_by_choice


@cache
def _suite_contrasts(
    choice: ParameterChoice, operation: str, roots: tuple[Path, ...]
) -> Mapping[str, Sequence[Contrast]]:
    """By suite, the pairs of its cases that differ in the parameter only, else with joint ones; suites with some."""
    contrasts_by_suite: dict[str, list[Contrast]] = {}
    for suite, cases in _suite_cases(operation, roots).items():
        contrasts = find_contrasts(choice, cases, joint=False, stated=False)
        if not contrasts and choice.joint:
            contrasts = find_contrasts(choice, cases, joint=True, stated=False)
        if contrasts:
            contrasts_by_suite[suite] = contrasts
    return contrasts_by_suite


@cache
def _suite_cases(operation: str, _roots: tuple[Path, ...]) -> Mapping[str, Sequence[Parameters]]:
    """By suite, its cases with this operation; reading all suites takes 0.2 s."""
    cases_by_suite: dict[str, list[Parameters]] = {}
    for suite in suite_names():
        cases: list[Parameters] = []
        for case in load_suite(suite):
            operations = [expected_operation for expected_operation, _ in case.expects]
            if operation in operations:
                parameters = {**case.tool.shows(case.options), **case.tool.case(case.options)}
                cases.append(_without_defaults({"benchmark": case.benchmark, **parameters}))
        cases_by_suite[suite] = cases
    return cases_by_suite


def count_sessions(left: SideEntry, right: SideEntry) -> int | None:
    """Number of sessions that a comparison can use; None for published figures."""
    if not (isinstance(left.side, SideSamples) and isinstance(right.side, SideSamples)):
        return None
    return min(len(left.side.sessions), len(right.side.sessions))
