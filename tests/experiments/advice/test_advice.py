"""Advice: which cases are compared, planted best values, the sentences of the papers, and the command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result as Invocation

from iowatch.comparison.sides import SideEntry
from iowatch.core import DAY_S, MIB, Case, Scalar
from iowatch.experiments.advice.advice import Advice, AdvicePart, ChoiceAdvice, MeasuredSize, advise
from iowatch.experiments.advice.choices import (
    CHOICES,
    AdvisedWorkload,
    case_volume_bytes,
    filter_entries,
    find_contrasts,
    history_entries,
    published_entries,
    suites_that_measure,
)
from iowatch.experiments.advice.report import hints_file
from iowatch.findings import headline_series
from iowatch.findings.detections import detect_series
from iowatch.statistics import SideSamples
from iowatch.store import History
from tests.builders import build_result, build_run, build_session
from tests.experiments.advice.planted_advice import (
    AXES,
    GIB,
    Level,
    collective_with_hdf5,
    flat,
    full_striping,
    planted_entries,
)

Cli = Callable[..., Invocation]
START = 1_700_000_000
BY_NAME = {choice.name: choice for choice in CHOICES}
WORKLOAD = AdvisedWorkload("write", 100 * GIB, 512)
STRIPING = {name: AXES[name] for name in ("collective", "stripe_count")}
ACCESS = {name: AXES[name][:2] for name in ("api", "collective")}


def of(found: Advice, name: str) -> ChoiceAdvice:
    return next(choice for choice in found.choices if choice.choice.name == name)


def only_part(found: Advice, name: str) -> AdvicePart:
    (part,) = of(found, name).parts
    return part


def entry(value: float = 1000.0, sessions: int = 12, **parameters: Scalar) -> SideEntry:
    """A case with the same value in all sessions but for 1 %, so that every difference is sure."""
    samples = {f"s{i}": (value * (1 + 0.01 * (i * 7 % 5 - 2)),) for i in range(sessions)}
    full: dict[str, Scalar] = {"operation": "write", "ranks": 512, "total_bytes": 64 * GIB, **parameters}
    return SideEntry(Case("benchio", full), "bandwidth", {"system": "x", "stack": "gnu"}, SideSamples(samples))


# Which cases are compared


def pairs(name: str, *cases: Mapping[str, Scalar], joint: bool = False) -> list[tuple[int, int]]:
    """Positions of the cases that are compared, in ascending order."""
    found = find_contrasts(BY_NAME[name], cases, joint=joint, stated=False)
    return [(min(one.left, one.right), max(one.left, one.right)) for one in found]


def test_cases_that_differ_in_one_parameter_are_compared() -> None:
    one = {"api": "MPIIO", "file": "shared", "collective": True}
    assert pairs("collective", one, {**one, "collective": False}) == [(0, 1)]
    assert pairs("collective", one, {**one, "collective": False, "file": "per-node"}) == []
    assert pairs("api", one, {**one, "api": "HDF5", "ranks": 4}) == []


def test_parameters_that_an_interface_does_not_have_are_no_difference() -> None:
    """POSIX is neither collective nor independent, so it is compared with both."""
    posix = {"api": "POSIX", "file": "shared"}
    mpiio = [{"api": "MPIIO", "file": "shared", "collective": way} for way in (True, False)]
    assert pairs("api", posix, *mpiio) == [(0, 1), (0, 2)]
    assert pairs("collective", posix, *mpiio) == [(1, 2)]


def test_absence_of_striping_is_the_default_except_in_papers() -> None:
    cases = [{"api": "MPIIO"}, {"api": "MPIIO", "stripe_count": 4, "stripe_bytes": MIB}]
    assert pairs("stripe_count", *cases) == [(0, 1)]
    assert find_contrasts(BY_NAME["stripe_count"], cases, joint=False, stated=True) == []


def test_layout_follows_the_chunk() -> None:
    plain = {"api": "HDF5"}
    assert pairs("chunk", plain, {**plain, "chunk": "64x64x64", "layout": "chunked"}) == [(0, 1)]


@pytest.mark.slow
def test_file_layout_and_interface_together_are_reported_as_not_separable() -> None:
    entries = [entry(2000, api="POSIX", file="per-process"), entry(1000, api="MPIIO", file="shared", collective=True)]
    found = of(advise(entries, WORKLOAD, "x"), "file")
    assert found.joint == ("api",)
    assert found.parts[0].best == "per-process"
    separable = [*entries, entry(1900, api="POSIX", file="shared")]
    assert of(advise(separable, WORKLOAD, "x"), "file").joint == ()


@pytest.mark.parametrize(
    ("parameters", "volume"),
    [
        ({"total_bytes": 5, "ranks": 4, "block_bytes": 7}, 5),
        ({"ranks": 64, "block_bytes": 1_000_000, "segments": 2000}, 128_000_000_000),  # [antypas2009], section 3
        ({"ranks": 24, "local_size": "128x128x128"}, 384 * MIB),  # [lawrence2017], Table 1
        ({"ranks": 24}, None),
    ],
)
def test_volume_of_a_case(parameters: Mapping[str, Scalar], volume: int | None) -> None:
    assert case_volume_bytes(parameters) == volume


def test_nearest_size_is_used_and_stated() -> None:
    """Striping helps at 512 ranks and hurts at 8: the advice for 400 ranks is that of 512."""
    far = [entry(1000, ranks=8, total_bytes=GIB), entry(500, ranks=8, total_bytes=GIB, stripe_count=-1)]
    near = [entry(1000), entry(2000, stripe_count=-1)]
    found = of(advise([*far, *near], AdvisedWorkload("write", 80 * GIB, 400), "x"), "stripe_count")
    assert found.sizes == (MeasuredSize(64 * GIB, 512),)
    assert found.parts[0].best == -1
    assert of(advise([*far, *near], AdvisedWorkload("write", GIB, 8), "x"), "stripe_count").parts[0].best == "default"


def test_too_few_sessions_are_no_advice() -> None:
    found = of(advise([entry(1000, 2), entry(3000, 2, stripe_count=-1)], WORKLOAD, "x"), "stripe_count")
    assert found.parts == ()
    assert found.few_sessions == 2
    assert "survey" in found.suites


def test_a_metric_of_times_has_the_shorter_one_as_best() -> None:
    slow, fast = entry(20, api="MPIIO"), entry(10, api="HDF5")
    times = [replace(one, metric="time") for one in (slow, fast)]
    part = only_part(advise(times, WORKLOAD, "x"), "api")
    assert part.best == "HDF5"
    assert part.others[0].gain == pytest.approx(2)


def test_every_choice_but_the_place_is_varied_by_a_suite() -> None:
    """What is not measured is reported with the suite that would measure it; a suite runs on one file system."""
    suites = suites_that_measure(CHOICES, AdvisedWorkload("write", GIB, 4))
    assert {name for name, known in suites.items() if not known} <= {"file_system"}
    assert "hints" in suites["hints"]
    assert suites["chunk"][0] in ("survey", "hamburg-small")  # of a gibibyte on 4 ranks, not 200 GiB on 10
    assert suites_that_measure(CHOICES, AdvisedWorkload("write", 200 * GIB, 10))["chunk"][0] == "hamburg"


# Planted best values


def draw(level: Level, sessions: int, axes: Mapping[str, Sequence[Scalar]], noise: float = 0.08) -> list[Advice]:
    return [advise(planted_entries(seed, axes, sessions, level, noise), WORKLOAD, "planted") for seed in range(40)]


def test_planted_best_value_is_found_with_its_sign_and_gain() -> None:
    """30 % with full striping, 20 sessions: right in at least 95 % of the draws, the interval contains the gain."""
    found = [of(one, "stripe_count").parts[0] for one in draw(full_striping, 20, STRIPING)]
    assert sum(part.best == -1 and part.is_sure for part in found) >= 38
    intervals = [other.ci for part in found for other in part.others if part.best == -1 and other.ci]
    assert sum(low <= 1.3 <= high for low, high in intervals) >= 0.95 * len(intervals)


def test_no_advice_where_nothing_has_an_effect() -> None:
    """At most 5 % of answers have any false statement; more than 5 of 40 have a probability of 1.4 % at that rate."""
    found = draw(flat, 12, STRIPING)
    assert sum(any(part.is_difference for c in one.choices for part in c.parts) for one in found) <= 5
    assert sum(any(len(c.parts) > 1 for c in one.choices) for one in found) <= 5


def test_no_dependence_where_gains_differ_by_chance_only() -> None:
    """With 40 % noise of a case the gains of the two interfaces often differ by more than a factor of 1.25."""
    found = draw(flat, 12, ACCESS, noise=0.4)
    assert sum(any(len(choice.parts) > 1 for choice in one.choices) for one in found) <= 5


def test_planted_dependence_is_reported() -> None:
    """Collective transfers help with HDF5 only: two parts, of which one has a best value and the other has none."""
    found = [
        {part.where: part for part in of(one, "collective").parts} for one in draw(collective_with_hdf5, 20, ACCESS)
    ]
    right = [p for p in found if set(p) == {"HDF5", "MPI-IO"} and p["HDF5"].is_sure and p["HDF5"].best is True]
    assert len(right) >= 38
    assert sum(p["MPI-IO"].is_difference for p in right) <= 5


# The papers' printed advice, from their tables


@cache
def printed(source: str) -> list[SideEntry]:
    return published_entries([source], None, "write")


def papers(source: str, system: str, workload: AdvisedWorkload, **given: str) -> Advice:
    entries = filter_entries(printed(source), {"system": system, **given})
    return advise(entries, workload, source, system=system, is_published=True)


def test_lawrence2017_maximum_striping_for_one_shared_file() -> None:
    """Conclusions: "the optimal configuration for a single shared output file was to use maximum striping"."""
    for system, default in (("archer", 4), ("cirrus", 1)):
        part = only_part(papers("lawrence2017", system, AdvisedWorkload("write")), "stripe_count")
        assert (part.best, part.is_sure, part.others[0].value) == (-1, True, default)
        rules = {rule.value: rule for rule in part.others[0].rules}
        assert rules[-1].gain > 4
        assert re.search(r"nodes (<|=)", rules[default].rule)  # one or a few nodes do not need more stripes


def test_lawrence2017_stripe_size_matches_the_size_of_the_operation() -> None:
    """Data Size: "lower volume operations should be given smaller stripe sizes, while larger … larger stripes"."""
    small, large = (
        only_part(papers("lawrence2017", "archer", AdvisedWorkload("write", per_rank * 6144, 6144)), "stripe_bytes")
        for per_rank in (16 * MIB, 128 * MIB)
    )
    assert (small.best, large.best) == (4 * MIB, 8 * MIB)
    gains = {one.value: one.gain for one in large.others}
    assert gains[MIB] > max(one.gain for one in small.others)
    assert next(one for one in large.others if one.value == MIB).verdict == "faster"


@pytest.mark.parametrize(("ranks", "best"), [(256, {8, 10}), (512, {8, 10}), (4096, {120})])
def test_lawrence2017_cosma6_needs_all_stripes_only_at_the_largest_size(ranks: int, best: set[int]) -> None:
    """COSMA6: "Up to 2048 writers, best performance is seen from a stripe count of 8-10 … beyond that, maximum"."""
    part = only_part(papers("lawrence2017", "cosma6", AdvisedWorkload("write", None, ranks)), "stripe_count")
    assert part.best in best


def test_lawrence2017_hdf5_is_slow_on_lustre_and_not_on_gpfs() -> None:
    """Cirrus: "The HDF5 backend … does not approach the bandwidths of either MPI-IO or NetCDF" (striped, nodes)."""
    striped = only_part(papers("lawrence2017", "cirrus", AdvisedWorkload("write"), stripe_count="-1"), "api")
    assert max(striped.others, key=lambda one: one.gain).value == "HDF5"
    gpfs = only_part(papers("lawrence2017", "rdf-dac", AdvisedWorkload("write")), "api")
    assert gpfs.best == "HDF5"


def test_bartz2014_best_practices_for_hdf5() -> None:
    """Best practices: contiguous layout, 1-OST pattern, aligned, independent, large transfers."""
    found = papers("bartz2014", "hamburg", AdvisedWorkload("write"), api="HDF5")
    best = {name: only_part(found, name).best for name in ("chunk", "pattern", "alignment_bytes", "collective")}
    assert best == {"chunk": "contiguous", "pattern": "1-OST", "alignment_bytes": MIB, "collective": False}
    transfer = only_part(found, "transfer_bytes")
    assert transfer.best == 512 * MIB
    assert transfer.others[0].value == 128 * 1024  # the smallest loses most


def test_bartz2014_collective_only_with_the_disjoint_pattern() -> None:
    """Summaries of 4.4 and 4.5: collective writes synchronise the disjoint pattern, and slow down the others."""
    rules = only_part(papers("bartz2014", "hamburg", AdvisedWorkload("write")), "collective").others[0].rules
    assert {(rule.value, rule.rule) for rule in rules} == {(True, "with disjoint"), (False, "with not disjoint")}


# Hints


def test_hints_file_has_what_is_supported_and_why() -> None:
    hinted = [
        entry(1000, stripe_count=8, stripe_bytes=MIB),
        entry(2000, stripe_count=16, stripe_bytes=MIB),
        entry(1500, stripe_count=8, stripe_bytes=4 * MIB),
        entry(1300, stripe_count=8, stripe_bytes=MIB, hints="cb=on+cb_buffer_size=4194304"),
    ]
    text = hints_file([advise(hinted, WORKLOAD, "x")])
    assert text is not None
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        "striping_factor 16",
        f"striping_unit {4 * MIB}",
        "romio_cb_write enable",
        "romio_cb_read enable",
        "cb_buffer_size 4194304",
    ]
    assert "# write: stripe count, ×2 " in text


def test_no_hints_without_a_sure_difference_or_where_advice_contradicts() -> None:
    assert hints_file([advise([entry(1000, api="POSIX"), entry(1500, api="MPIIO")], WORKLOAD, "x")]) is None
    eight, sixteen = {"stripe_count": 8}, {"stripe_count": 16}
    writes = advise([entry(1000, **eight), entry(2000, **sixteen)], WORKLOAD, "x")
    reads = advise([entry(2000, **eight), entry(1000, **sixteen)], AdvisedWorkload("read", GIB, 4), "x")
    assert hints_file([writes]) is not None
    assert hints_file([writes, reads]) is None


def test_full_striping_becomes_the_number_of_targets() -> None:
    """systems/archer: fs3 has 48 OSTs ([lawrence2017], section 4); fs4 has 56."""
    cases = [entry(1000, stripe_count=4, file_system="fs3"), entry(2000, stripe_count=-1, file_system="fs3")]
    text = hints_file([advise(cases, WORKLOAD, "x", system="archer")])
    assert text is not None
    assert "striping_factor 48\n" in text
    unknown = [replace(one, case=one.case.without("file_system")) for one in cases]
    assert hints_file([advise(unknown, WORKLOAD, "x", system="archer")]) is None


# The command, on a history


def store(path: Path, sessions: int, levels: Callable[[int], Mapping[int, float]]) -> None:
    """Nights of writes with a stripe count each, around `levels` (MiB/s) of the night; the noise is 2 %."""
    rng = np.random.default_rng(7)
    with History.open(str(path)) as history:
        for night in range(sessions):
            session, time = f"night-{night:03}", START + night * DAY_S
            history.begin_session(build_session(session, system="here", started_at=time))
            for count, level in levels(night).items():
                case: dict[str, Scalar] = {"api": "MPIIO", "ranks": 64, "total_bytes": GIB, "stripe_count": count}
                value = level * float(np.exp(0.02 * rng.standard_normal()))
                name = f"ior:{count}"
                history.record_runs(session, [build_run(build_result(value, case=case), name=name, started_at=time)])
            history.end_session(session, "ok", time + 600)


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Twelve nights of two stripe counts, of which the larger one is 50 % faster, on a system `here`."""
    path = tmp_path / "history.db"
    store(path, 12, lambda _night: {4: 1000.0, 16: 1500.0})
    return path


def test_only_sessions_since_the_last_change_are_used(tmp_path: Path) -> None:
    """Until night 30 both counts are equal, since then 16 stripes are twice as fast; the advice is that of today."""
    path = tmp_path / "history.db"
    store(path, 50, lambda night: {4: 1000.0, 16: 2000.0 if night >= 30 else 1000.0})
    with History.open(str(path)) as history:
        detect_series(history, headline_series(history, "here"), {})
        entries = history_entries(history, "here", "write", 60)
    comparison = only_part(advise(entries, AdvisedWorkload("write", GIB, 64), "here"), "stripe_count").others[0]
    assert comparison.sessions == 20
    assert comparison.gain == pytest.approx(2, rel=0.03)


def test_command_reports_best_value_interval_sessions_and_what_is_missing(cli: Cli, measured: Path) -> None:
    done = cli("advise", "--write", "100g", "--ranks", "512", "--db", measured)
    assert done.exit_code == 0, done.output
    (row,) = (line for line in done.output.splitlines() if line.startswith("stripe count"))
    shown = re.fullmatch(r"stripe count +16 +4 +×([\d.]+) +([\d.]+) – ([\d.]+) +12 +better *", row)
    assert shown is not None, row
    low, gain, high = float(shown[2]), float(shown[1]), float(shown[3])
    assert low < gain < high
    assert gain == pytest.approx(1.5, rel=0.03)
    assert "differs from what was asked for by up to a factor of 100." in done.output  # 100 GiB and 1 GiB
    assert re.search(r"^chunk: not measured. It is varied by: iowatch run --suite ", done.output, re.MULTILINE)


def test_command_writes_json_and_the_hints_file(cli: Cli, measured: Path, tmp_path: Path) -> None:
    hints = tmp_path / "hints"
    done = cli("advise", "--write", "1g", "--ranks", "64", "--db", measured, "--hints-file", hints, "--json")
    document = json.loads(done.stdout)
    (one,) = document["advice"]
    assert (one["operation"], one["volume_bytes"], one["ranks"], one["system"]) == ("write", GIB, 64, "here")
    striping = next(row for row in one["parameters"] if row["parameter"] == "stripe_count")
    (part,) = striping["parts"]
    assert (part["best"], part["sure"], part["others"][0]["verdict"]) == (16, True, "better")
    assert "striping_factor 16" in hints.read_text().splitlines()
    assert f"ROMIO_HINTS={hints}" in done.stderr


def test_no_hints_file_without_a_supported_hint(cli: Cli, tmp_path: Path) -> None:
    path, hints = tmp_path / "equal.db", tmp_path / "hints"
    store(path, 12, lambda _night: {4: 1000.0, 16: 1000.0})
    done = cli("advise", "--write", "1g", "--ranks", "64", "--db", path, "--hints-file", hints)
    assert done.exit_code == 0
    assert "no difference above" in done.output
    assert "not written" in done.stderr
    assert not hints.exists()


def test_system_without_results_but_with_published_tables(cli: Cli, measured: Path) -> None:
    done = cli("advise", "--system", "archer", "--write", "768g", "--ranks", "6144", "--db", measured, "--json")
    assert "published tables" in done.stderr
    assert json.loads(done.stdout)["advice"][0]["published"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected --write SIZE, --read SIZE or --published SOURCE"),
        (("--write", "much"), "'much' is not a size"),
        (("--write", "0"), "expected more than 0 bytes"),
        (("--write", "1g", "--given", "api"), "expected NAME=VALUE"),
        (("--write", "1g", "--given", "colour=red"), "no case has the parameter 'colour'"),
        (("--write", "1g", "--given", "api=POSIX"), "no case has api=POSIX"),
        (("--write", "1g", "--file-system", "scratch"), "no case has the parameter 'file_system'"),
        (("--read", "1g"), "no read results of system 'here'"),
        (("--write", "1g", "--system", "nowhere"), "no results of system 'nowhere'"),
        (("--published", "nobody2020"), "no published source 'nobody2020'"),
        (("--published", "lawrence2017", "--read", "1g"), "no published read figures in Lawrence et al. 2017"),
    ],
)
def test_wrong_use_is_refused_in_one_message(cli: Cli, measured: Path, words: tuple[str, ...], message: str) -> None:
    done = cli("advise", *words, "--db", measured)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "Traceback" not in done.output
