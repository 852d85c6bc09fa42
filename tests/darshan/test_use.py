"""Use of traces: hints, results for the history, anonymised logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from iowatch.core import InputError, Output, Result, Scalar
from iowatch.darshan import (
    DarshanReader,
    Trace,
    add_overhead_result,
    add_trace_results,
    anonymise_trace,
    compare_bandwidths,
    derive_hints,
    read_trace,
    render_trace,
)
from iowatch.darshan.privacy import site_key
from iowatch.darshan.results import results_from_trace, shared_parameters, tracing_overhead
from tests.builders import build_output, build_result

MakeLog = Callable[..., Path]
KEY = b"a key of the tests"

BUSY = {"POSIX_WRITES": 100, "POSIX_BYTES_WRITTEN": 100 << 20, "POSIX_F_WRITE_TIME": 4.0,
        "POSIX_F_SLOWEST_RANK_TIME": 1.2}  # fmt: skip
HINT_CASES: list[tuple[str | None, str, Mapping[str, float], Mapping[str, float]]] = [
    (None, "/lus/a", {}, {}),
    ("unaligned", "/lus/a", {"POSIX_FILE_NOT_ALIGNED": 11}, {}),
    (None, "/lus/a", {"POSIX_FILE_NOT_ALIGNED": 10}, {}),
    (None, "/home/a", {"POSIX_FILE_NOT_ALIGNED": 90}, {}),  # no striped file system
    ("small_writes", "/lus/a", {"POSIX_WRITES": 2000, "POSIX_SIZE_WRITE_100_1K": 1000}, {}),
    (None, "/lus/a", {"POSIX_WRITES": 2000, "POSIX_SIZE_WRITE_100K_1M": 1000}, {}),
    ("close", "/lus/a", {"POSIX_F_WRITE_END_TIMESTAMP": 5.0, "POSIX_F_CLOSE_END_TIMESTAMP": 9.0}, {}),
    (None, "/lus/a", {"POSIX_F_WRITE_END_TIMESTAMP": 5.0, "POSIX_F_CLOSE_END_TIMESTAMP": 5.5}, {}),
    ("slow_rank", "/lus/a", {"POSIX_F_SLOWEST_RANK_TIME": 3.0}, {}),
    ("slow_rank", "/lus/a", {}, {"MPIIO_COLL_WRITES": 100, "MPIIO_F_WRITE_TIME": 4.0,
                                 "MPIIO_F_SLOWEST_RANK_TIME": 3.0}),
    # Four ranks: 25 s each are below the threshold of 30 s, 100 s are above.
    (None, "/lus/a", {"POSIX_F_META_TIME": 100.0, "POSIX_F_SLOWEST_RANK_TIME": 27.0}, {}),
    # The slowest rank takes 3.6 times as long as the mean one, and less than 0.1 s.
    (None, "/lus/a", {"POSIX_F_WRITE_TIME": 0.1, "POSIX_F_SLOWEST_RANK_TIME": 0.09}, {}),
    ("metadata", "/lus/a", {"POSIX_F_META_TIME": 400.0, "POSIX_F_SLOWEST_RANK_TIME": 110.0}, {}),
    ("read_back", "/lus/a", {"POSIX_BYTES_READ": 200 << 20}, {}),
    ("read_back", "/lus/a", {"POSIX_BYTES_READ": 50 << 20}, {"MPIIO_BYTES_WRITTEN": 100 << 20}),
    ("independent_writes", "/lus/a", {}, {"MPIIO_COLL_OPENS": 4, "MPIIO_INDEP_WRITES": 200,
                                          "MPIIO_COLL_WRITES": 4, "MPIIO_SIZE_WRITE_AGG_0_100": 190}),
    (None, "/lus/a", {}, {"MPIIO_COLL_OPENS": 4, "MPIIO_INDEP_WRITES": 7, "MPIIO_COLL_WRITES": 24,
                          "MPIIO_SIZE_WRITE_AGG_0_100": 7}),
]  # fmt: skip


@pytest.mark.parametrize(("key", "path", "posix", "mpiio"), HINT_CASES)
def test_hints_are_derived_from_counters(
    key: str | None,
    path: str,
    posix: Mapping[str, float],
    mpiio: Mapping[str, float],
    make_log: MakeLog,
    reader: DarshanReader,
) -> None:
    records = [(path, -1, mpiio)] if mpiio else []
    trace = read_trace(make_log(posix=[(path, -1, {**BUSY, **posix})], mpiio=records), reader)
    found = derive_hints(trace)
    assert [hint.key for hint in found] == ([key] if key else [])
    for hint in found:
        assert hint.counters
        assert hint.source
        assert hint.threshold
        for name, value in hint.counters.items():
            if name.isupper():
                assert trace.counter(name) == value


@pytest.mark.parametrize(
    ("path", "components", "striped"),
    [
        ("/lus/a", [(1 << 20, 1)], False),
        ("/lus/a", [(1 << 20, 4)], True),
        ("/lus/a", [(1 << 20, 1), (4 << 20, 8)], True),
        # The layout counts, not the file system that the mount table names.
        ("/home/a", [(1 << 20, 4)], True),
    ],
)
def test_alignment_hint_is_only_for_files_on_several_targets(
    path: str, components: list[tuple[int, int]], striped: bool, make_log: MakeLog, reader: DarshanReader
) -> None:
    posix = [(path, -1, {**BUSY, "POSIX_FILE_NOT_ALIGNED": 90})]
    trace = read_trace(make_log(posix=posix, lustre=[(path, components)]), reader)
    assert trace.status == "ok"
    (row,) = trace.files
    assert [
        (part["LUSTRE_COMP_STRIPE_SIZE"], part["LUSTRE_COMP_STRIPE_COUNT"], len(part["osts"]))
        for part in row["stripes"]["components"]
    ] == [(size, count, count) for size, count in components]
    assert [hint.key for hint in derive_hints(trace)] == (["unaligned"] if striped else [])


def test_unreadable_trace_gives_no_hints_or_results() -> None:
    trace = Trace("unreadable", "why")
    assert derive_hints(trace) == []
    assert results_from_trace(trace, {}) == ()


def test_zero_counts_and_shares_are_results_but_zero_times_are_not() -> None:
    """A count of zero is a valid result; a time or bandwidth of zero is not."""
    shares = dict.fromkeys(("small_write_share", "small_read_share", "unaligned_share", "metadata_time_share"), 0.0)
    performance = {"MPI-IO": {"imbalance": 0.0, "bandwidth_mib_per_s": 0.0}}
    trace = Trace(
        "ok",
        None,
        modules={"MPI-IO": {"MPIIO_INDEP_WRITES": 0, "MPIIO_COLL_WRITES": -1}, "POSIX": {"POSIX_READS": 0}},
        derived={**shares, "close_tail_s": 0.0, "performance": performance},
    )
    assert {(r.operation, r.metric, r.samples) for r in results_from_trace(trace, {})} == {
        ("write", "independent_count", (0.0,)),
        ("read", "posix_count", (0.0,)),
        ("write", "small_share", (0.0,)),
        ("read", "small_share", (0.0,)),
        ("run", "unaligned_share", (0.0,)),
        ("run", "metadata_time_share", (0.0,)),
    }


def output(*found: Result) -> Output:
    return build_output(*found)


def test_trace_results_are_added_to_benchmark_results(make_log: MakeLog, reader: DarshanReader) -> None:
    case = {"api": "MPIIO", "ranks": 4}
    own = [build_result(100.0, operation=op, case={**case, "order": op}) for op in ("write", "read")]
    log = make_log(posix=[("/a", -1, BUSY)], mpiio=[("/a", -1, {"MPIIO_COLL_WRITES": 24})])
    helper = make_log(posix=[("/b", 0, {"POSIX_WRITES": 1})], ranks=1)
    joined = add_trace_results(output(*own), [helper, log], reader)
    added = {(r.operation, r.metric): r for r in joined.results[2:]}
    assert joined.results[:2] == tuple(own)
    assert added["write", "collective_count"].samples == (24.0,)
    assert added["write", "collective_count"].case == case
    assert joined.facts["darshan"]["status"] == "ok"
    assert joined.facts["darshan"]["logs"] == [log.name]
    assert joined.facts["darshan"]["counts"]["MPIIO_COLL_WRITES"] == 24


@pytest.mark.parametrize(
    ("cases", "shared"),
    [
        ([], {}),
        ([{"api": "POSIX", "ranks": 4}], {"api": "POSIX", "ranks": 4}),
        ([{"ranks": 4, "sync": True}, {"ranks": 4, "sync": False}], {"ranks": 4}),
        # A parameter that some results lack is none of the run, wherever they are.
        ([{"ranks": 4, "sync": True}, {"ranks": 4}], {"ranks": 4}),
        ([{"ranks": 4}, {"ranks": 4, "cache": "drop"}], {"ranks": 4}),
        ([{"ranks": 4, "nodes": 1}, {"ranks": 4, "nodes": 1}, {"ranks": 4}], {"ranks": 4}),
    ],
)
def test_parameters_of_a_run_are_those_of_all_its_results(
    cases: list[dict[str, Scalar]], shared: dict[str, Scalar]
) -> None:
    assert shared_parameters(build_result(case=case) for case in cases) == shared


def test_every_log_of_a_run_gives_a_sample(make_log: MakeLog, reader: DarshanReader) -> None:
    logs = [make_log(mpiio=[("/a", -1, {"MPIIO_COLL_WRITES": n})]) for n in (24, 48)]
    own = build_result(100.0)
    joined = add_trace_results(output(own), logs, reader)
    counts = next(r for r in joined.results if (r.operation, r.metric) == ("write", "collective_count"))
    assert counts.samples == (24.0, 48.0)
    assert joined.facts["darshan"]["logs"] == [log.name for log in logs]


def test_counts_are_per_repetition(make_log: MakeLog, reader: DarshanReader) -> None:
    """As in [lawrence2017]: 24 collective and 7 independent writes, independent of the number of repetitions."""
    log = make_log(mpiio=[("/a", -1, {"MPIIO_COLL_WRITES": 240, "MPIIO_INDEP_WRITES": 70})])
    own = [Result("write", m, "MiB/s", tuple(range(1, 11)), {}) for m in ("bandwidth", "time")]
    joined = add_trace_results(output(*own), [log], reader)
    found = {(r.operation, r.metric): r.samples for r in joined.results}
    assert found["write", "collective_count"] == (24.0,)
    assert found["write", "independent_count"] == (7.0,)
    assert joined.facts["darshan"]["repetitions"] == {"write": 10}


@pytest.mark.parametrize(("timed", "writes", "reads"), [("write", 64, 64), ("read", 320, 64)])
def test_data_read_back_are_counted_per_repetition(
    make_log: MakeLog, reader: DarshanReader, timed: str, writes: int, reads: int
) -> None:
    """Of `ior -w -W -i 5`: 64 transfers per repetition, each written and read back; a read case is written once."""
    log = make_log(posix=[("/a", -1, {"POSIX_WRITES": 320, "POSIX_READS": 320})])
    joined = add_trace_results(output(build_result(*(1.0,) * 5, operation=timed)), [log], reader)
    found = {r.operation: r.samples for r in joined.results if r.metric == "posix_count"}
    assert found == {"write": (writes,), "read": (reads,)}


def test_overhead_is_one_ratio_per_complete_pair(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs"
    pairs.write_text("untraced 0 10.0 12.0\ntraced 0 12.0 14.5\ntraced 1 20 21\nuntraced 0 21 22\ntraced 0 30 33\n")
    joined = add_overhead_result(output(build_result(1.0, case={"ranks": 2})), pairs)
    found = joined.results[-1]
    assert (found.operation, found.metric, found.samples) == ("run", "overhead_ratio", (1.25,))
    assert found.case == {"ranks": 2}
    whole = "untraced 0 10.0 12.0\ntraced 0 12.0 15.0\n"
    pairs.write_text(f"untraced 0 10.%N 12.%N\ntraced 0 12.0 14.5\n{whole}traced 0 1")
    beside_damage = tracing_overhead(pairs)
    assert beside_damage is not None
    assert beside_damage.samples == (1.5,)
    pairs.write_text("")
    assert tracing_overhead(pairs) is None


def test_run_without_log_has_no_trace() -> None:
    joined = add_trace_results(output(), [])
    assert joined.results == ()
    assert joined.facts["darshan"] == {"status": "no trace", "reason": "the run left no Darshan log"}
    joined = add_trace_results(output(), [], stack={"features": ["hdf5"]})
    assert joined.facts["darshan"] == {"status": "no trace", "reason": "the stack has no darshan-runtime"}


def test_damaged_log_does_not_fail_the_run(tmp_path: Path, reader: DarshanReader) -> None:
    bad = tmp_path / "bad.darshan"
    bad.write_bytes(b"nothing")
    own = build_result(100.0)
    joined = add_trace_results(output(own), [bad], reader)
    assert joined.results == (own,)
    assert joined.facts["darshan"]["status"] == "unreadable"


def test_trace_status_is_that_of_the_worst_log(make_log: MakeLog, reader: DarshanReader) -> None:
    mpiio = [("/a", -1, {"MPIIO_COLL_WRITES": 24})]
    logs = [make_log(mpiio=mpiio), make_log(mpiio=mpiio, partial=["MPI-IO"]), make_log(mpiio=mpiio)]
    joined = add_trace_results(output(), logs, reader)
    assert joined.facts["darshan"]["status"] == "partial"
    assert "ran out of memory" in joined.facts["darshan"]["reason"]


def test_figures_of_incomplete_modules_are_not_results(make_log: MakeLog, reader: DarshanReader) -> None:
    mpiio = [("/a", -1, {"MPIIO_COLL_WRITES": 24})]
    trace = read_trace(make_log(posix=[("/a", -1, BUSY)], mpiio=mpiio, partial=["POSIX"]), reader)
    found = {(r.operation, r.metric) for r in results_from_trace(trace, {})}
    assert ("write", "collective_count") in found
    assert not {metric for _, metric in found} - {"collective_count", "independent_count"}


def test_darshan_bandwidth_is_compared_with_the_benchmark(make_log: MakeLog, reader: DarshanReader) -> None:
    trace = read_trace(make_log(posix=[("/a", -1, {**BUSY, "POSIX_F_SLOWEST_RANK_TIME": 2.0})]), reader)
    rows = [(row.operation, row.metric, row.samples) for row in results_from_trace(trace, {})]
    # 100 MiB in the slowest rank's 2 s, compared with 2 x 10 MiB in 0.5 s and 0.3 s.
    both = compare_bandwidths([*rows, ("write", "bandwidth", (20.0,)), ("read", "bandwidth", (10 / 0.3,))])
    assert both is not None
    assert (both.darshan, both.benchmark) == (pytest.approx(50), pytest.approx(25))
    assert (both.ratio, both.disagree) == (pytest.approx(2.0), False)
    assert both.text == "50 MiB/s by Darshan's estimate, 25 by the benchmark (x 2)"
    slow = compare_bandwidths([*rows, ("write", "bandwidth", (10.0,))])
    assert slow is not None
    assert slow.disagree
    assert slow.text.endswith("(x 5): most of the benchmark's time was not spent in I/O calls")
    fast = compare_bandwidths([*rows, ("write", "bandwidth", (200.0,))])
    assert fast is not None
    assert fast.text.endswith("(x 0.25): Darshan saw I/O that the benchmark did not time")
    assert compare_bandwidths(rows) is None
    assert compare_bandwidths([("write", "bandwidth", (10.0,))]) is None


def test_each_module_reports_its_slowest_rank(make_log: MakeLog, reader: DarshanReader) -> None:
    posix = {**BUSY, "POSIX_SLOWEST_RANK": 2, "POSIX_F_SLOWEST_RANK_TIME": 1.2}
    mpiio = {"MPIIO_COLL_WRITES": 4, "MPIIO_F_WRITE_TIME": 6.0, "MPIIO_SLOWEST_RANK": 3,
             "MPIIO_F_SLOWEST_RANK_TIME": 2.5}  # fmt: skip
    log = make_log(posix=[("/a", -1, posix), ("/b", 1, {"POSIX_F_META_TIME": 0.5})], mpiio=[("/a", -1, mpiio)])
    trace = read_trace(log, reader)
    assert trace.derived["slowest"] == {
        "POSIX": {"file": "/a", "rank": 2, "time_s": 1.2},
        "MPI-IO": {"file": "/a", "rank": 3, "time_s": 2.5},
    }
    assert "/a" not in str(anonymise_trace(trace, "hash", KEY).to_json())


def layout(stripe_count: int) -> dict[str, object]:
    """Stripes of a file as the LUSTRE module records them."""
    counters = {"LUSTRE_COMP_STRIPE_COUNT": stripe_count, "LUSTRE_COMP_STRIPE_SIZE": 1 << 20}
    return {"stripes": stripe_count, "components": [{**counters, "pool": "", "osts": list(range(stripe_count))}]}


@pytest.mark.parametrize(("stripe_count", "keys"), [(1, []), (8, ["unaligned"])])
def test_file_on_one_stripe_gives_no_alignment_hint(
    stripe_count: int, keys: list[str], make_log: MakeLog, reader: DarshanReader
) -> None:
    trace = read_trace(make_log(posix=[("/lus/a", -1, {**BUSY, "POSIX_FILE_NOT_ALIGNED": 50})]), reader)
    striped = replace(trace, files=[{**row, "stripes": layout(stripe_count)} for row in trace.files])
    assert [hint.key for hint in derive_hints(striped)] == keys
    assert f"lustre {stripe_count} x 1 MiB" in rendered(striped)


def rendered(trace: Trace) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        for part in render_trace(trace):
            console.print(part)
    return capture.get()


def test_path_hashes_depend_only_on_path_and_key(make_log: MakeLog, reader: DarshanReader) -> None:
    posix = [("/lus/a", -1, BUSY), ("<STDOUT>", 0, {"POSIX_WRITES": 1})]
    trace = read_trace(make_log(posix=posix), reader)
    first, again, other = (anonymise_trace(trace, "hash", key) for key in (KEY, KEY, b"another key"))
    paths = [[row["path"] for row in hidden.files] for hidden in (first, again, other)]
    assert paths[0] == paths[1]
    assert paths[0] != paths[2]
    assert "<STDOUT>" in paths[0]


def test_privacy_key_is_created_once_and_private(make_log: MakeLog, reader: DarshanReader, var: Path) -> None:
    trace = read_trace(make_log(posix=[("/lus/a", -1, BUSY)]), reader)
    assert anonymise_trace(trace, "hash").files == anonymise_trace(trace, "hash").files
    assert (var / "privacy.key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [None, b"another key"])
def test_lost_or_replaced_privacy_key_is_an_error(var: Path, content: bytes | None) -> None:
    """With another key every hash is another one: logs of before would be counted again, silently."""
    key = site_key()
    path = var / "privacy.key"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"privacy\.key, (is lost|was replaced)") as error:
        site_key()
    assert "privacy.sha256" in error.value.hint
    path.write_bytes(key)
    assert site_key() == key


def test_key_of_an_earlier_version_gets_its_digest(var: Path) -> None:
    var.mkdir()
    (var / "privacy.key").write_bytes(b"k" * 32)
    assert site_key() == b"k" * 32
    (var / "privacy.key").unlink()
    with pytest.raises(InputError, match="is lost"):
        site_key()


def test_spans_are_joined_over_small_gaps() -> None:
    import numpy as np

    from iowatch.darshan.summary import merge_spans

    starts, ends = np.array([5.0, 0.0, 1.0, 0.5]), np.array([6.0, 3.0, 2.0, 1.0])
    assert merge_spans(starts, ends, 0.1) == [(0.0, 3.0), (5.0, 6.0)]
    assert merge_spans(starts, ends, 2.5) == [(0.0, 6.0)]
