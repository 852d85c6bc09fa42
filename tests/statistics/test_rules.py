"""The found rule is the planted rule; random changes are not explained."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from iowatch.core import Scalar
from iowatch.findings import CASE_PARAMETERS, derive_parameters, short_case_names
from iowatch.statistics import Explanation, PossibleCause, SeriesResponse
from tests.statistics.storage import explain_changes, possible_cause, rank_causes

MIB = 2**20


def matrix() -> list[dict[str, Scalar]]:
    """48 cases: three interfaces, two transfer sizes, write and read, two job sizes, two stripings."""
    cases: list[dict[str, Scalar]] = []
    for api, transfer, operation, ranks, stripes in itertools.product(
        ("POSIX", "MPIIO", "HDF5"), (MIB, 1_000_000), ("write", "read"), (64, 256), (1, -1)
    ):
        file = "per-process" if api == "POSIX" else "shared"
        cases.append(
            {
                "benchmark": "ior",
                "api": api,
                "file": file,
                "transfer_bytes": transfer,
                "operation": operation,
                "ranks": ranks,
                "stripe_count": stripes,
                "stack": "one",
            }
        )
    return cases


def explained(changed: list[bool], factor: float = 0.5) -> Explanation:
    return explain_changes(
        [
            SeriesResponse(case, is_, math.log(factor) if is_ else 0.0)
            for case, is_ in zip(matrix(), changed, strict=True)
        ]
    )


PLANTED = [
    ({"operation": "read"}, "reads"),
    ({"file": "shared"}, "MPI-IO shared file"),
    ({"api": "HDF5"}, "HDF5"),
    ({"api": "MPIIO", "operation": "write"}, "MPI-IO writes"),
    ({"stripe_count": 1}, "with stripe_count = 1"),
    ({"transfer_bytes": 1_000_000}, "unaligned"),
    ({"file": "shared", "operation": "read", "transfer_bytes": 1_000_000}, "unaligned MPI-IO shared file reads"),
    ({"ranks": 256, "operation": "write"}, "writes with ranks = 256"),
]


@pytest.mark.parametrize(("planted", "text"), PLANTED, ids=[text for _, text in PLANTED])
def test_planted_rule_is_found_exactly(planted: dict[str, Scalar], text: str) -> None:
    rule = explained([planted.items() <= case.items() for case in matrix()]).rule
    assert rule is not None
    assert (rule.precision, rule.recall) == (1.0, 1.0)
    assert rule.text == text
    assert len(rule.conditions) <= len(planted)


def test_order_of_series_does_not_matter() -> None:
    cases = matrix()
    observations = [SeriesResponse(c, c["api"] == "HDF5" and c["operation"] == "read", 0.0) for c in cases]
    shuffled = list(observations)
    np.random.default_rng(7).shuffle(shuffled)
    one, other = explain_changes(observations).rule, explain_changes(shuffled).rule
    assert one is not None
    assert other is not None
    assert one.conditions == other.conditions


def test_rule_with_an_exception_on_each_side_names_both() -> None:
    changed = [case["api"] == "HDF5" for case in matrix()]
    inside, outside = changed.index(True), changed.index(False)
    changed[inside], changed[outside] = False, True
    found = explained(changed)
    assert found.rule is not None
    assert found.rule.text == "HDF5"
    assert {(e.member, e.inside) for e in found.exceptions} == {(inside, True), (outside, False)}
    assert (found.rule.changed_in, found.rule.total_in, found.rule.changed_out) == (15, 16, 1)


def test_random_changes_are_rarely_explained() -> None:
    """Labels drawn at random have no common factor; some of 60 draws find one by chance."""
    stream = np.random.default_rng(11)
    cases = matrix()
    found = 0
    for _ in range(60):
        labels = [bool(x) for x in stream.random(len(cases)) < 0.25]
        found += explained(labels).rule is not None
    assert found <= 7


def test_all_changed_needs_no_condition_and_none_changed_has_no_rule() -> None:
    everything, nothing = explained([True] * 48), explained([False] * 48)
    assert everything.rule is not None
    assert everything.rule.conditions == ()
    assert everything.control is None
    assert nothing.rule is None


@pytest.mark.parametrize("others", [17, 20, 22])
def test_rule_names_the_subgroup_where_changes_are_more_frequent(others: int) -> None:
    """All 16 series with a file per process changed; more, but a smaller share, of the 32 with a shared file."""
    cases = matrix()
    shared = [number for number, case in enumerate(cases) if case["file"] == "shared"]
    also_changed = set(np.random.default_rng(others).choice(shared, others, replace=False).tolist())
    changed = [number not in shared or number in also_changed for number in range(len(cases))]
    rule = explained(changed).rule
    assert rule is not None
    assert (rule.text, rule.changed_in, rule.total_in) == ("file per process", 16, 16)


def test_equivalent_conditions_are_listed() -> None:
    """In this matrix shared file, MPI-IO and `not POSIX` are the same cases."""
    rule = explained([case["file"] == "shared" for case in matrix()]).rule
    assert rule is not None
    equivalents = [condition for group in rule.equivalents for condition in group]
    words = {condition.words(CASE_PARAMETERS) for condition in (*rule.conditions, *equivalents)}
    assert {"shared file", "MPI-IO", "not POSIX"} <= words


def test_missing_parameter_of_a_case_is_never_its_cause() -> None:
    cases: list[dict[str, Scalar]] = [*matrix(), {"benchmark": "mdtest", "operation": "create", "stack": "one"}]
    observations = [SeriesResponse(c, c.get("stripe_count") == 1, 0.0) for c in cases]
    rule = explain_changes(observations).rule
    assert rule is not None
    assert (rule.changed_in, rule.total_in) == (24, 24)


def test_subgroups_of_about_equal_fit_are_named_by_the_more_meaningful_parameter() -> None:
    """By hand, the residual variance is 0.09 with segments and 0.92 with the layout; segments are rarely a cause."""
    groups = [("per-process", 1, 2.0)] * 5 + [("shared", 16, 8.0)] * 5 + [("shared", 1, 2.8)]
    found = explain_changes(
        [
            SeriesResponse(
                {"benchmark": "ior", "operation": "read", "file": file, "segments": segments}, True, math.log(ratio)
            )
            for file, segments, ratio in groups
        ]
    )
    assert {m.members: round(m.ratio, 2) for m in found.magnitudes} == {
        (0, 1, 2, 3, 4): 2.0,
        (5, 6, 7, 8, 9): 8.0,
        (10,): 2.8,
    }
    assert {m.label for m in found.magnitudes if 0 in m.members} == {"file per process"}


@pytest.mark.parametrize(
    ("api", "file", "expected"),
    [
        ("MPIIO", "shared", True),
        ("MPIIO", "per-process", True),
        ("HDF5", "shared", True),
        ("NETCDF4", "shared", True),
        ("PNETCDF", "shared", True),
        ("HDF5", "per-process", False),
        ("POSIX", "shared", False),
    ],
)
def test_libraries_use_mpiio_only_for_shared_files(api: str, file: str, expected: bool) -> None:
    """HDF5, NetCDF-4 and PnetCDF open a shared file with an MPI communicator, a file per process with POSIX."""
    assert derive_parameters({"api": api, "file": file})["mpiio"] is expected


@pytest.mark.parametrize(
    ("transfer_bytes", "expected"),
    [
        *((MIB, True), (4 * MIB, True), (MIB // 2, True), (4096, True)),
        # Franklin's 10^6 bytes, 47008 bytes of a checkpoint, one and a half MiB, parts of a page.
        *((1_000_000, False), (47008, False), (3 * MIB // 2, False), (2048, False), (1, False)),
    ],
)
def test_only_transfers_that_cross_a_stripe_or_split_a_page_are_unaligned(transfer_bytes: int, expected: bool) -> None:
    assert derive_parameters({"transfer_bytes": transfer_bytes})["aligned"] is expected


def test_hints_are_parameters_of_their_own_and_named_in_words() -> None:
    hints = [None, "cb=off", "cb=off+ds=off", "cb=on", "cb_nodes=2", "cb_nodes=4+cb=off"]
    cases = [
        {"benchmark": "benchio", "api": api, "operation": operation, **({"hints": text} if text else {})}
        for api, operation, text in itertools.product(("MPIIO", "HDF5"), ("write", "read"), hints)
    ]
    changed = ["cb=off" in str(case.get("hints")) for case in cases]
    found = explain_changes(
        [SeriesResponse(c, is_, -0.7 if is_ else 0.0) for c, is_ in zip(cases, changed, strict=True)]
    )
    assert found.rule is not None
    assert found.rule.text == "with collective buffering off"
    assert (found.rule.precision, found.rule.recall) == (1.0, 1.0)
    assert derive_parameters({"hints": "cb=off+cb_nodes=4"}) == {"cb": "off", "cb_nodes": 4}
    assert "benchio write MPI-IO 2 aggregators" in short_case_names(cases)


@pytest.mark.parametrize("limit", [256, 1024])
def test_every_value_but_the_smallest_can_be_an_upper_limit(limit: int) -> None:
    cases: list[dict[str, Scalar]] = [
        {"benchmark": "ior", "operation": operation, "api": api, "ranks": ranks}
        for ranks in (16, 64, 256, 1024)
        for operation in ("write", "read")
        for api in ("POSIX", "MPIIO", "HDF5")
    ]
    rule = explain_changes([SeriesResponse(c, int(str(c["ranks"])) < limit, 0.0) for c in cases]).rule
    assert rule is not None
    assert rule.text == f"with ranks < {limit}"
    assert (rule.precision, rule.recall) == (1.0, 1.0)


def test_precision_and_recall_count_their_own_series() -> None:
    """HDF5: 14 of 16 changed; of the other 32 one changed."""
    changed = [case["api"] == "HDF5" for case in matrix()]
    first, second = (i for i, is_ in enumerate(changed) if is_ and i % 8 == 0)
    changed[first] = changed[second] = False
    changed[next(i for i, case in enumerate(matrix()) if case["api"] == "POSIX")] = True
    rule = explained(changed).rule
    assert rule is not None
    assert (rule.text, rule.precision, rule.recall) == ("HDF5", 14 / 16, 14 / 15)


def test_series_of_two_common_factors_is_sized_once() -> None:
    """Reads on scratch1 and everything through HDF5 changed: HDF5 reads on scratch1 fit both."""
    cases: list[dict[str, Scalar]] = [
        {**case, "file_system": name} for case in matrix() for name in ("scratch1", "scratch2")
    ]
    changed = [c["api"] == "HDF5" or (c["file_system"] == "scratch1" and c["operation"] == "read") for c in cases]
    found = explain_changes(
        [SeriesResponse(c, is_, math.log(0.5) * is_) for c, is_ in zip(cases, changed, strict=True)]
    )
    assert found.second is not None
    sized = [m for group in (*found.magnitudes, *found.second_magnitudes) for m in group.members]
    assert sorted(sized) == [i for i, is_ in enumerate(changed) if is_]


@pytest.mark.parametrize(("odd", "text"), [(1, None), (2, "scratch2")])
def test_two_series_outside_the_common_factor_may_have_their_own(odd: int, text: str | None) -> None:
    """Everything through HDF5 changed, and the one or two POSIX series that use scratch2."""
    posix = [i for i, case in enumerate(matrix()) if case["api"] == "POSIX"][:odd]
    cases = [{**case, "file_system": f"scratch{1 + (i in posix)}"} for i, case in enumerate(matrix())]
    changed = [c["api"] == "HDF5" or i in posix for i, c in enumerate(cases)]
    found = explain_changes(
        [SeriesResponse(c, is_, math.log(0.5) * is_) for c, is_ in zip(cases, changed, strict=True)]
    )
    assert (found.second and found.second.text) == text


def test_size_of_a_subgroup_is_a_geometric_mean() -> None:
    """Of the ratios 2 and 2.88 (less than a factor of 1.5 apart): 2.4; their arithmetic mean is 2.44."""
    observations = [SeriesResponse(c, True, math.log((2.0, 2.88)[i % 2])) for i, c in enumerate(matrix())]
    (size,) = explain_changes(observations).magnitudes
    assert size.ratio == pytest.approx(2.4)
    assert (size.lowest, size.highest) == (pytest.approx(2.0), pytest.approx(2.88))


def test_largest_effect_is_listed_first_in_any_direction() -> None:
    """Logarithms: a third (1.1) is more than double (0.7)."""
    ratios = {"write": 2.0, "read": 1 / 3}
    found = explain_changes([SeriesResponse(c, True, math.log(ratios[str(c["operation"])])) for c in matrix()])
    assert [(size.label, size.ratio) for size in found.magnitudes] == [
        ("reads", pytest.approx(1 / 3)),
        ("writes", pytest.approx(2.0)),
    ]


def test_control_group_is_counted_and_sized_outside_the_common_factor() -> None:
    """HDF5 changed on both file systems; of seven other series on scratch1 one changed, and one on scratch2."""
    hdf5 = [("HDF5", name, True, 0.5) for name in ("scratch1", "scratch2") for _ in range(4)]
    unchanged = [0.96, 0.98, 1.01, 1.03, 1.05, 1.3]
    others = [("MPIIO" if i % 2 else "POSIX", "scratch1", False, ratio) for i, ratio in enumerate(unchanged)]
    odd = [("POSIX", "scratch1", True, 0.5), ("POSIX", "scratch2", True, 0.5)]
    found = explain_changes(
        [
            SeriesResponse({"benchmark": "ior", "api": api, "file_system": name}, is_, math.log(ratio))
            for api, name, is_, ratio in [*hdf5, *others, *odd]
        ]
    )
    assert found.rule is not None
    assert found.rule.text == "HDF5"
    assert found.control is not None
    assert (found.control.label, found.control.unchanged, found.control.total) == ("scratch1", 6, 7)
    assert found.control.ratio == pytest.approx(math.sqrt(1.01 * 1.03))


DAY = 86_400
BEFORE, AFTER = 100 * DAY, 101 * DAY


def ranked(*likely_causes: PossibleCause, cases: list[dict[str, Scalar]] | None = None) -> dict[str, float]:
    """Scores by name, best first, for a change of everything through HDF5."""
    observations = [SeriesResponse(c, c["api"] == "HDF5", 0.0) for c in cases or matrix()]
    causes = rank_causes(likely_causes, BEFORE, AFTER, observations, explain_changes(observations))
    return {cause.name: cause.score for cause in causes}


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (BEFORE - 8 * DAY, BEFORE - 8 * DAY + 1, None),
        (BEFORE - 8 * DAY, BEFORE - 6 * DAY, "6 days before the change"),
        (BEFORE - 8 * DAY, BEFORE + 1, "at the change"),
        (BEFORE - 8 * DAY, AFTER + 8 * DAY, "at the change"),
        (AFTER - 1, AFTER + 8 * DAY, "at the change"),
        (AFTER + 2 * DAY, AFTER + 9 * DAY, "2 days after the change"),
        (AFTER + 4 * DAY, AFTER + 4 * DAY, None),
    ],
)
def test_event_distance_is_from_the_gap_between_the_runs(start: int, end: int, expected: str | None) -> None:
    """Events up to seven days before and three days after count; an event that overlaps the gap is at the change."""
    observations = [SeriesResponse(c, c["api"] == "HDF5", 0.0) for c in matrix()]
    event = possible_cause("event", "other", "other", start, end)
    causes = rank_causes([event], BEFORE, AFTER, observations, explain_changes(observations))
    assert [cause.when for cause in causes] == ([] if expected is None else [expected])


def test_nearer_events_have_a_higher_score() -> None:
    events = [possible_cause(f"{d}", "other", "other", BEFORE - d * DAY, BEFORE - d * DAY) for d in (6, 3, 1)]
    assert list(ranked(possible_cause("0", "other", "other", BEFORE, AFTER), *events)) == ["0", "1", "3", "6"]


def test_events_after_the_change_have_a_lower_score_than_events_before() -> None:
    """exp(-6 / 2) = 0.050 for six days before, 0.1 exp(-1) = 0.037 for one day after."""
    after = possible_cause("after", "other", "other", AFTER + DAY, AFTER + DAY)
    before = possible_cause("before", "other", "other", BEFORE - 6 * DAY, BEFORE - 6 * DAY)
    scores = ranked(after, before)
    assert list(scores) == ["before", "after"]
    assert scores["after"] / scores["before"] == pytest.approx(0.1 * math.exp(-1) / math.exp(-3))


@pytest.mark.parametrize(
    ("scope", "supports", "text"),
    [
        ({"api": "HDF5"}, True, "16 of 16 changed series lie in its scope (api HDF5)"),
        ({"operation": "read"}, False, "8 of 16 changed series lie in its scope (operation read)"),
    ],
)
def test_scope_is_evidence_for_an_event_only_if_it_holds_all_changed_series(
    scope: dict[str, Scalar], supports: bool, text: str
) -> None:
    observations = [SeriesResponse(c, c["api"] == "HDF5", 0.0) for c in matrix()]
    event = possible_cause("event", "other", "other", BEFORE, AFTER, scope)
    (cause,) = rank_causes([event], BEFORE, AFTER, observations, explain_changes(observations))
    assert (text in cause.speaks_for, text in cause.speaks_against) == (supports, not supports)


@pytest.mark.parametrize(("kind", "supports"), [("software", False), ("hardware", True)])
def test_change_outside_the_common_factor_is_evidence_for_global_causes(kind: str, supports: bool) -> None:
    """HDF5 changed except one series, and one POSIX series changed: only that one is named."""
    changed = [case["api"] == "HDF5" for case in matrix()]
    changed[changed.index(True)] = False
    changed[next(i for i, case in enumerate(matrix()) if case["api"] == "POSIX")] = True
    observations = [SeriesResponse(c, is_, 0.0) for c, is_ in zip(matrix(), changed, strict=True)]
    found = explain_changes(observations)
    (odd,) = (one.name for one in found.exceptions if not one.inside)
    event = possible_cause("event", kind, kind, BEFORE, AFTER)
    (cause,) = rank_causes([event], BEFORE, AFTER, observations, found)
    text = f"{odd} changed too, outside the common factor"
    assert (text in cause.speaks_for, text in cause.speaks_against) == (supports, not supports)


def test_evidence_for_and_against_an_event_changes_its_rank() -> None:
    supported, neutral, contradicted = (
        possible_cause(name, "other", "other", BEFORE, AFTER, {}, evidence)
        for name, evidence in (
            ("supported", (("supports", "reproduced with the old driver"),)),
            ("neutral", ()),
            ("contradicted", (("contradicts", "no errors logged"),)),
        )
    )
    assert list(ranked(contradicted, neutral, supported)) == ["supported", "neutral", "contradicted"]


def test_global_cause_is_assessed_by_the_series_in_its_scope() -> None:
    """All series on scratch1 use HDF5 and changed; of the whole system a third changed."""
    cases: list[dict[str, Scalar]] = [
        {**case, "file_system": "scratch1" if case["api"] == "HDF5" else "scratch2"} for case in matrix()
    ]
    scores = ranked(
        possible_cause("scratch1", "workload", "workload", BEFORE, AFTER, {"file_system": "scratch1"}),
        possible_cause("everywhere", "workload", "workload", BEFORE, AFTER),
        cases=cases,
    )
    assert scores["scratch1"] == pytest.approx(1.0)
    assert scores["everywhere"] == pytest.approx(16 / 48)


def test_what_only_the_largest_changes_share_is_stated_without_a_rule() -> None:
    """Edison, 4 August 2017: all three shared reads of IOR at a seventh, one other series at 81 %; six compared."""
    cases: list[tuple[str, str, str, str, float]] = [
        *(("ior", "shared", "read", f"scratch{n}", 0.14) for n in (1, 2, 3)),
        ("bd-cats", "shared", "read", "scratch1", 0.81),
        ("ior", "per-process", "read", "scratch1", 1.0),
        ("vpic-io", "shared", "write", "scratch1", 1.0),
    ]
    series = [
        SeriesResponse(
            {"benchmark": name, "file": file, "operation": operation, "file_system": place}, ratio < 1, math.log(ratio)
        )
        for name, file, operation, place, ratio in cases
    ]
    found = explain_changes(series)
    assert found.rule is None
    assert found.largest is not None
    assert (found.largest.label, found.largest.members) == ("ior shared file", (0, 1, 2))
    assert found.largest.ratio == pytest.approx(0.14)
    # Not if the next change is as large, or if another series of that kind is unchanged.
    similar = [*series[:3], SeriesResponse(series[3].parameters, True, math.log(0.15)), *series[4:]]
    unchanged = [*series, SeriesResponse({**series[0].parameters, "file_system": "scratch4"}, False, 0.0)]
    for other in (similar, unchanged):
        largest = explain_changes(other).largest
        assert largest is None or largest.members != (0, 1, 2)


def test_series_changed_in_the_other_direction_are_outside_of_the_rule() -> None:
    """All reads fell and all writes rose: without the writes nothing would be left to compare with."""
    reads, writes = ([c for c in matrix() if c["operation"] == one] for one in ("read", "write"))
    fallen = [SeriesResponse(case, True, math.log(0.5)) for case in reads]
    risen = [SeriesResponse(case, True, math.log(2)) for case in writes]
    found = explain_changes(fallen, risen)
    assert found.rule is not None
    assert (found.rule.text, found.changed, found.total) == ("reads", 24, 48)
    assert (found.control, found.exceptions) == (None, ())


def test_names_of_many_parameters_leave_out_usual_values_and_stay_unique() -> None:
    usual: dict[str, Scalar] = {
        "benchmark": "benchio", "operation": "write", "api": "HDF5", "file": "shared", "ranks": 4, "sync": False,
        "cache": "drop", "segments": 1, "layout": "contiguous", "block_bytes": MIB,
    }  # fmt: skip
    unusual = {"ranks": 8, "sync": True, "cache": "keep", "segments": 16, "layout": "chunked", "block_bytes": 2 * MIB}
    cases = [usual, *({**usual, name: value} for name, value in unusual.items()), {**usual, **unusual}]
    names = short_case_names(cases * 2)
    assert names[: len(cases)] == names[len(cases) :]
    assert len(set(names)) == len(cases)
    assert names[0] == "benchio write HDF5 shared file"
    assert "benchio write HDF5 shared file cache keep" in names
    # A case without a parameter that the others have would get the name of the usual one: both are named in full.
    absent = {name: value for name, value in usual.items() if name != "cache"}
    first, *_, last = short_case_names([*cases, absent])
    assert first != last


def responses_of(cases: Sequence[dict[str, Scalar]], changed: Sequence[bool]) -> list[SeriesResponse]:
    """Changed series lost half of their performance (ln -0.7), the others nothing."""
    return [
        SeriesResponse(case, is_changed, -0.7 * is_changed) for case, is_changed in zip(cases, changed, strict=True)
    ]


@pytest.mark.parametrize(("names", "most_listed"), [(1, 1), (2, 2), (4, 2)])
def test_long_list_of_free_texts_is_no_common_factor(names: int, most_listed: int) -> None:
    """`variant` is a parameter of an import that the vocabulary does not know: 24 texts, 3 series each."""
    cases: list[dict[str, Scalar]] = [
        {"benchmark": "ior", "api": "POSIX", "operation": operation, "variant": f"run of {number}"}
        for number in range(24)
        for operation in ("write", "read", "open")
    ]
    listed = {f"run of {number}" for number in (1, 4, 6, 9)[:names]}
    changed = [case["variant"] in listed for case in cases]
    explanation = explain_changes(responses_of(cases, changed))
    assert explanation.rule is not None
    assert max(len(condition.values) for condition in explanation.rule.conditions) == most_listed


def test_list_of_values_of_a_known_parameter_is_a_common_factor() -> None:
    """Interfaces are no free text: four of seven."""
    apis = ("POSIX", "MPIIO", "HDF5", "NETCDF4", "PNETCDF", "MMAP", "DFS")
    cases: list[dict[str, Scalar]] = [
        {"benchmark": "ior", "api": api, "operation": operation, "file": "per-process", "ranks": ranks}
        for api in apis
        for operation in ("write", "read")
        for ranks in (4, 16)
    ]
    changed = [case["api"] in ("POSIX", "HDF5", "PNETCDF", "DFS") for case in cases]
    explanation = explain_changes(responses_of(cases, changed))
    assert explanation.rule is not None
    assert (explanation.rule.precision, explanation.rule.recall) == (1.0, 1.0)
