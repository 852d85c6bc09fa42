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
            share = volume / int(ranks) if volume and ranks else None
            return _size_distance(share, self.volume_bytes / self.ranks)
        sizes = ((volume, self.volume_bytes), (ranks, self.ranks), (case.get("nodes"), self.nodes))
        return sum(_size_distance(size, wanted) for size, wanted in sizes)


def _size_distance(size: Scalar | None, wanted: float | None) -> float:
    if wanted is None:
        return 0.0
    return abs(log(float(size) / wanted)) if size else _UNKNOWN_DISTANCE


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
    is_size = choice.name == "chunk" and isinstance(value, int)
    return format_size(float(value)) if is_size else format_parameter_value(choice.name, value)


def history_entries(history: History, system: str, operation: str, last: int) -> list[SideEntry]:
    """The monitored series of one operation of a system, each since its last detected change.

    The samples of a session are its median: one observation per session, as findings count them.

    Args:
        last: number of newest sessions of each series.
    """
    rows = [row for row in headline_series(history, system) if row.case.parameters.get("operation") == operation]
    detections = load_detections(history, [row.id for row in rows])
    points = load_observations(history, rows)
    runs = [int(run) for one in points.values() for run in one.run_id[-last:]]
    sessions = history.session_of_runs(sorted(set(runs)))
    imported = {row.uuid for row in history.sessions(system) if row.origin == "import"}
    found = []
    for row in rows:
        changes = detections[row.id].changes if row.id in detections else ()
        since = max((change.time for change in changes), default=0.0)
        samples: dict[str, tuple[float, ...]] = defaultdict(tuple)
        for time, run, value in zip(*(getattr(points[row.id], n)[-last:] for n in _COLUMNS), strict=True):
            if time >= since and value > 0:
                session = sessions[int(run)]
                # An import may hold the outputs of many days.
                label = f"{session}@{(int(time) - DAY_S // 2) // DAY_S}" if session in imported else session
                samples[label] += (float(value),)
        if samples:
            found.append(_entry(row, SideSamples(samples)))
    return found


_COLUMNS = ("time", "run_id", "median")


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
    found: dict[tuple[str | None, str, str], SideEntry] = {}
    for source in sources:
        for table in published.published_table_names(source):
            if published.has_long_form(published.load_published_table(source, table)):
                for entry in sides.published_side_entries(f"{source}/{table}"):
                    of = entry.axes.get("system")
                    if entry.case.parameters.get("operation") == operation and system in (None, of):
                        found[of, entry.case.key, entry.metric] = entry
    return list(found.values())


def sources_with_system(system: str) -> tuple[str, ...]:
    """Keys of the published sources with tables that have this system throughout."""
    tables = [t for t in published.load_all_tables() if t.sidecar.common.get("system") == system]
    return tuple(dict.fromkeys(published.source_key(table.source) for table in tables))


def parse_given(texts: Sequence[str]) -> dict[str, Scalar | None]:
    """Parse `NAME=VALUE`; sizes may have suffixes, and `none` means that a case does not have the parameter.

    Raises:
        UsageError: a text of another form.
    """
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise UsageError(f"--given {text}: expected NAME=VALUE", hint="For example --given api=HDF5")
        found[name] = sides.parse_filter_value(name, value)
    return found


def filter_given(entries: Sequence[SideEntry], given: Mapping[str, Scalar | None]) -> list[SideEntry]:
    """The entries with these parameters; values are equal if their texts are equal.

    Raises:
        UsageError: no case has the parameter, or this value of it.
    """
    found = list(entries)
    for name, value in given.items():
        values = {str(entry.described.get(name)) for entry in found}
        if values == {"None"}:
            known = sorted({key for entry in entries for key in entry.described})
            raise UsageError(f"no case has the parameter '{name}'", hint=suggest_name(name, known))
        found = [e for e in found if str(e.described.get(name)).lower() == str(value).lower()]
        if not found:
            raise UsageError(f"no case has {name}={value}", hint=suggest_name(str(value), sorted(values)))
    return found


def describe_case(entry: SideEntry) -> dict[str, Scalar]:
    """Axes, parameters and metric; what means the same as absence is absent, and names are those of the history."""
    found = {**entry.described, "metric": entry.metric}
    if "chunk_bytes" in found:
        found["chunk"] = found.pop("chunk_bytes")
    if "osts" in found:  # [bartz2014]: each process communicates with so many OSTs
        found["pattern"] = f"{found.pop('osts')}-OST"
    return _without_defaults(found)


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
    removed = {choice.name, *choice.optional, *choice.follows, *(choice.joint if joint else ())}
    groups: dict[frozenset[tuple[str, str]], list[int]] = defaultdict(list)
    absent = None if stated and choice.name in _NOT_STATED else choice.absent
    for index, case in enumerate(cases):
        if case.get(choice.name, absent) is not None:
            groups[frozenset((n, repr(v)) for n, v in case.items() if n not in removed)].append(index)
    found = []
    for members in groups.values():
        for one, other in combinations(members, 2):
            values = [cases[index].get(choice.name, absent) for index in (one, other)]
            agree = all(_agree(cases[one].get(name), cases[other].get(name)) for name in choice.optional)
            if values[0] is None or values[1] is None or values[0] == values[1] or not agree:
                continue
            left, right = sorted((one, other), key=lambda index: repr(cases[index].get(choice.name, absent)))
            both = cases[left], cases[right]
            common = {n: v for n, v in both[0].items() if both[1].get(n) == v and n not in (choice.name, "metric")}
            common |= {n: case[n] for case in both for n in choice.optional if n in case}
            differ = frozenset(n for n in choice.joint if joint and not _agree(both[0].get(n), both[1].get(n)))
            pair = both[0].get(choice.name, absent), both[1].get(choice.name, absent)
            found.append(Contrast(left, right, pair, common, differ))  # type: ignore[arg-type]
    return found


def _agree(one: Scalar | None, other: Scalar | None) -> bool:
    return one is None or other is None or one == other


def suites_that_measure(choices: Sequence[ParameterChoice], workload: Workload) -> dict[str, tuple[str, ...]]:
    """Suites with cases that differ in a parameter only, by its name; the suite with the nearest size first."""
    roots = tuple(settings.roots())
    cases = _suite_cases(workload.operation, roots) if choices else []
    far = {name: [workload.distance(case, per_rank=False) for case in those] for name, those in cases}
    found: dict[str, tuple[str, ...]] = {}
    for choice in choices:
        suites = [
            (min(max(far[name][left], far[name][right]) for left, right in pairs), name)
            for name, pairs in _suite_pairs(choice, workload.operation, roots)
        ]
        found[choice.name] = tuple(name for _, name in sorted(suites))
    return found


@cache
def _suite_pairs(
    choice: ParameterChoice, operation: str, roots: tuple[Path, ...]
) -> list[tuple[str, list[tuple[int, int]]]]:
    """Of each suite that has some, the positions of cases that differ in the parameter only, else with joint ones."""
    found: list[tuple[str, list[tuple[int, int]]]] = []
    for name, cases in _suite_cases(operation, roots):
        pairs = find_contrasts(choice, cases, joint=False, stated=False)
        if not pairs and choice.joint:
            pairs = find_contrasts(choice, cases, joint=True, stated=False)
        if pairs:
            found.append((name, [(pair.left, pair.right) for pair in pairs]))
    return found


@cache
def _suite_cases(operation: str, _roots: tuple[Path, ...]) -> list[tuple[str, list[Parameters]]]:
    """The cases of each suite with this operation; reading all suites takes 0.2 s."""
    found: list[tuple[str, list[Parameters]]] = []
    for name in suite_names():
        cases: list[Parameters] = []
        for case in load_suite(name):
            if operation in [of for of, _ in case.expects]:
                parameters = {**case.tool.shows(case.options), **case.tool.case(case.options)}
                cases.append(_without_defaults({"benchmark": case.benchmark, **parameters}))
        found.append((name, cases))
    return found


def count_sessions(left: SideEntry, right: SideEntry) -> int | None:
    """Number of sessions that a comparison can use; None for published figures."""
    if not (isinstance(left.side, SideSamples) and isinstance(right.side, SideSamples)):
        return None
    return min(len(left.side.sessions), len(right.side.sessions))
