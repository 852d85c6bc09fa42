"""What advice is about: the parameters that a user can choose, the cases with their samples, and pairs of cases.

Two cases are a pair for a parameter if they differ in it and are equal in everything else. The same function finds the
suites that would measure a parameter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import log, prod
from pathlib import Path

from iowatch.benchmarks.suites import load_suite, suite_names
from iowatch.comparison import SideEntry, sides
from iowatch.core import DAY_S, Scalar, UsageError, format_size, settings, suggest_name
from iowatch.findings import format_parameter_value, headline_series, load_detections, load_observations
from iowatch.reference import published
from iowatch.statistics import SideSamples
from iowatch.store import History, SeriesRow

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
class Workload:
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
        volume, ranks = case_volume_bytes(case), case.get("ranks")
        if per_rank and self.volume_bytes and self.ranks:
            volume_per_rank = volume / int(ranks) if volume and ranks else None
            return _size_distance(volume_per_rank, self.volume_bytes / self.ranks)
        return (
            _size_distance(volume, self.volume_bytes)
            + _size_distance(ranks, self.ranks)
            + _size_distance(case.get("nodes"), self.nodes)
        )


def _size_distance(size: Scalar | None, workload_size: float | None) -> float:
    if workload_size is None:
        return 0.0
    if not size:
        return _UNKNOWN_DISTANCE
    return abs(log(float(size) / workload_size))


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

    The samples of a session are its median: one observation per session, as findings count them.

    Args:
        last: number of newest sessions of each series.
    """
    rows = [row for row in headline_series(history, system) if row.case.parameters.get("operation") == operation]
    detections = load_detections(history, [row.id for row in rows])
    observations = load_observations(history, rows)
    runs: set[int] = set()
    for series_observations in observations.values():
        runs.update(int(run) for run in series_observations.run_id[-last:])
    sessions = history.session_of_runs(sorted(runs))
    imported = {row.uuid for row in history.sessions(system) if row.origin == "import"}
    entries = []
    for row in rows:
        # The time of its last change.
        changes = detections[row.id].changes if row.id in detections else ()
        since = max((change.time for change in changes), default=0.0)
        newest = observations[row.id]
        samples: dict[str, tuple[float, ...]] = defaultdict(tuple)
        for time, run, value in zip(newest.time[-last:], newest.run_id[-last:], newest.median[-last:], strict=True):
            if time < since or value <= 0:
                continue
            label = sessions[int(run)]
            # An import may hold the outputs of many days.
            if label in imported:
                label = f"{label}@{(int(time) - DAY_S // 2) // DAY_S}"
            samples[label] += (float(value),)
        if samples:
            entries.append(_entry(row, SideSamples(samples)))
    return entries


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
                entry_system = entry.axes.get("system")
                if entry.case.parameters.get("operation") == operation and system in (None, entry_system):
                    entries[entry_system, entry.case.key, entry.metric] = entry
    return list(entries.values())


def sources_with_system(system: str) -> tuple[str, ...]:
    """Keys of the published sources with tables that have this system throughout."""
    tables = [table for table in published.load_all_tables() if table.sidecar.common.get("system") == system]
    return tuple(dict.fromkeys(published.source_key(table.source) for table in tables))


def parse_given(texts: Sequence[str]) -> dict[str, Scalar | None]:
    """Parse `NAME=VALUE`; sizes may have suffixes, and `none` means that a case does not have the parameter.

    Raises:
        UsageError: a text of another form.
    """
    given = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise UsageError(f"--given {text}: expected NAME=VALUE", hint="For example --given api=HDF5")
        given[name] = sides.parse_filter_value(name, value)
    return given


def filter_given(entries: Sequence[SideEntry], given: Mapping[str, Scalar | None]) -> list[SideEntry]:
    """The entries with these parameters; values are equal if their texts are equal.

    Raises:
        UsageError: no case has the parameter, or this value of it.
    """
    remaining = list(entries)
    for name, value in given.items():
        values = {str(entry.described.get(name)) for entry in remaining}
        if values == {"None"}:
            names = sorted(set().union(*(entry.described for entry in entries)))
            raise UsageError(f"no case has the parameter '{name}'", hint=suggest_name(name, names))
        remaining = [entry for entry in remaining if str(entry.described.get(name)).lower() == str(value).lower()]
        if not remaining:
            raise UsageError(f"no case has {name}={value}", hint=suggest_name(str(value), sorted(values)))
    return remaining


def describe_case(entry: SideEntry) -> dict[str, Scalar]:
    """Axes, parameters and metric; what means the same as absence is absent, and names are those of the history."""
    described = {**entry.described, "metric": entry.metric}
    if "chunk_bytes" in described:
        described["chunk"] = described.pop("chunk_bytes")
    if "osts" in described:  # [bartz2014]: each process communicates with so many OSTs
        described["pattern"] = f"{described.pop('osts')}-OST"
    return _without_defaults(described)


def _without_defaults(parameters: Parameters) -> dict[str, Scalar]:
    return {name: value for name, value in parameters.items() if _SAME_AS_ABSENT.get(name) != value}


# Pairs


@dataclass(frozen=True)
class Contrast:
    """Two cases that differ in one parameter: positions, values, and what they have in common."""

    left: int
    right: int
    values: tuple[Scalar, Scalar]
    common: Parameters
    joint: frozenset[str]


def find_contrasts(
    choice: ParameterChoice, cases: Sequence[Parameters], *, joint: bool, stated: bool
) -> list[Contrast]:
    """Pairs of cases that differ in the parameter only (with `joint`: and in those that differ together with it)."""
    may_differ = {choice.name, *choice.optional, *choice.follows}
    if joint:
        may_differ.update(choice.joint)
    # What a paper does not state is unknown, not absent.
    absent = None if stated and choice.name in _NOT_STATED else choice.absent
    values: dict[int, Scalar] = {}
    groups: dict[frozenset[tuple[str, str]], list[int]] = defaultdict(list)
    for index, case in enumerate(cases):
        value = case.get(choice.name, absent)
        if value is not None:
            values[index] = value
            equal_in = frozenset((name, repr(value)) for name, value in case.items() if name not in may_differ)
            groups[equal_in].append(index)
    contrasts = []
    for members in groups.values():
        for pair in combinations(members, 2):
            # Pairs of the same two values have these in the same order.
            left, right = sorted(pair, key=lambda index: repr(values[index]))
            if values[left] == values[right] or not _agree(cases[left], cases[right], choice.optional):
                continue
            differing: frozenset[str] = frozenset()
            if joint:
                differing = frozenset(n for n in choice.joint if not _agree(cases[left], cases[right], [n]))
            common = _common_parameters(choice, cases[left], cases[right])
            contrasts.append(Contrast(left, right, (values[left], values[right]), common, differing))
    return contrasts


def _common_parameters(choice: ParameterChoice, left: Parameters, right: Parameters) -> dict[str, Scalar]:
    """What two cases have in common, and the optional parameters that one of them has."""
    common: dict[str, Scalar] = {}
    for name, value in left.items():
        if right.get(name) == value and name not in (choice.name, "metric"):
            common[name] = value
    for case in (left, right):
        for name in choice.optional:
            if name in case:
                common[name] = case[name]
    return common


def _agree(left: Parameters, right: Parameters, names: Sequence[str]) -> bool:
    """Whether two cases have the same value of each of these parameters that both have."""
    return all(left[name] == right[name] for name in names if name in left and name in right)


def suites_that_measure(choices: Sequence[ParameterChoice], workload: Workload) -> dict[str, tuple[str, ...]]:
    """Suites with cases that differ in a parameter only, by its name; the suite with the nearest size first."""
    roots = tuple(settings.roots())
    if not choices:
        return {}
    distances: dict[str, list[float]] = {}
    for suite, cases in _suite_cases(workload.operation, roots):
        distances[suite] = [workload.distance(case, per_rank=False) for case in cases]
    suites_by_choice: dict[str, tuple[str, ...]] = {}
    for choice in choices:
        nearest: dict[str, float] = {}
        for suite, pairs in _suite_pairs(choice, workload.operation, roots):
            of_suite = distances[suite]
            nearest[suite] = min(max(of_suite[left], of_suite[right]) for left, right in pairs)
        suites_by_choice[choice.name] = tuple(sorted(nearest, key=lambda suite: (nearest[suite], suite)))
    return suites_by_choice


@cache
def _suite_pairs(
    choice: ParameterChoice, operation: str, roots: tuple[Path, ...]
) -> list[tuple[str, list[tuple[int, int]]]]:
    """Of each suite that has some, the positions of cases that differ in the parameter only, else with joint ones."""
    pairs_by_suite: list[tuple[str, list[tuple[int, int]]]] = []
    for suite, cases in _suite_cases(operation, roots):
        contrasts = find_contrasts(choice, cases, joint=False, stated=False)
        if not contrasts and choice.joint:
            contrasts = find_contrasts(choice, cases, joint=True, stated=False)
        if contrasts:
            pairs_by_suite.append((suite, [(contrast.left, contrast.right) for contrast in contrasts]))
    return pairs_by_suite


@cache
def _suite_cases(operation: str, _roots: tuple[Path, ...]) -> list[tuple[str, list[Parameters]]]:
    """The cases of each suite with this operation; reading all suites takes 0.2 s."""
    cases_by_suite: list[tuple[str, list[Parameters]]] = []
    for suite in suite_names():
        cases: list[Parameters] = []
        for case in load_suite(suite):
            operations = [expected_operation for expected_operation, _ in case.expects]
            if operation in operations:
                parameters = {**case.tool.shows(case.options), **case.tool.case(case.options)}
                cases.append(_without_defaults({"benchmark": case.benchmark, **parameters}))
        cases_by_suite.append((suite, cases))
    return cases_by_suite


def count_sessions(left: SideEntry, right: SideEntry) -> int | None:
    """Number of sessions that a comparison can use; None for published figures."""
    if not (isinstance(left.side, SideSamples) and isinstance(right.side, SideSamples)):
        return None
    return min(len(left.side.sessions), len(right.side.sessions))
