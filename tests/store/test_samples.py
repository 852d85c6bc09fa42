"""Samples and facts of runs are read back exactly; node names are folded for display."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iowatch.store import History, ResultFilter, RunRecord, SessionFacts, StackRecord, bulk, fold_node_names
from iowatch.store.schema import decode_many_samples, decode_samples, encode_samples
from tests.builders import build_output, build_result, build_run, build_session

KINDS = ["sqlite", "postgresql"]
samples = st.lists(st.floats(allow_nan=False), min_size=1, max_size=40)


def exactly(values: object) -> bytes:
    """Bit by bit: 0.0 and -0.0 are equal, but have different bits."""
    return np.asarray(values, dtype="<f8").tobytes()


@given(samples)
def test_samples_are_decoded_exactly(values: list[float]) -> None:
    assert exactly(decode_samples(encode_samples(values))) == exactly(values)


@given(st.lists(samples, max_size=8))
def test_many_results_are_decoded_together(results: list[list[float]]) -> None:
    assert exactly(decode_many_samples([encode_samples(values) for values in results])) == exactly([*chain(*results)])


def run(fingerprint: str, values: tuple[float, ...], facts: dict[str, Any], started_at: int = 1000) -> RunRecord:
    output = build_output(build_result(*values), tool="benchio")
    return build_run(
        name="benchio:a",
        partition="compute",
        stack=StackRecord("gnu", {}),
        fingerprint=fingerprint,
        started_at=started_at,
        output=output,
        facts=facts,
    )


@pytest.fixture(params=KINDS)
def history_of_kind(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> Iterator[History]:
    with History.open(new_database(request.param)) as history:
        history.begin_session(build_session("s", started_at=1000))
        yield history


def test_every_query_returns_the_samples_exactly(history_of_kind: History) -> None:
    """Values of all magnitudes, with few digits and with all digits of a float64; results of several lengths."""
    history = history_of_kind
    results = [(0.1 + 0.2, 1 / 3), (487.8,), (5e-324, 1.7976931348623157e308, 2355.21), (-0.0, 1e-9)]
    for number, values in enumerate(results):
        history.record_runs("s", [run(f"f{number}", values, {}, 1000 + number)])
    (series,) = history.series()
    assert [exactly(v) for _, _, v in history.samples(series.id)] == [exactly(v) for v in results]
    assert [exactly(row.samples) for row in history.results(ResultFilter())] == [exactly(v) for v in results]
    with history.reading() as connection:
        (found,) = bulk.read_series_samples(connection, [series.id, series.id + 1])
    assert exactly(found.samples) == exactly([*chain(*results)])
    assert found.count.tolist() == [len(values) for values in results]
    assert exactly(found.max) == exactly([max(values) for values in results])
    chosen = found.only(np.array([False, True, False, True]))
    assert exactly(chosen.samples) == exactly([*results[1], *results[3]])
    assert chosen.time.tolist() == [1001, 1003]
    points = history.points([series.id, series.id + 1])
    assert (points[series.id].time.tolist(), points[series.id].count.tolist()) == ([*range(1000, 1004)], [2, 1, 3, 2])
    for name, summary in (("max", max), ("min", min), ("median", np.median), ("mean", np.mean)):
        assert getattr(points[series.id], name).tolist() == [summary(values) for values in results]
    assert len(points[series.id + 1].time) == 0


def test_points_of_one_second_are_in_the_order_of_their_runs(history_of_kind: History) -> None:
    """Of several series, and in the limits of a period."""
    for number in (3, 1, 2):
        history_of_kind.record_runs("s", [run(f"f{number}", (float(number),), {}, 1000)])
    history_of_kind.record_runs("s", [replace(run("g", (9.0,), {}, 900), partition="other")])
    series = {row.partition: row.id for row in history_of_kind.series()}
    points = history_of_kind.points(list(series.values()))
    assert points[series["compute"]].max.tolist() == [3, 1, 2]
    assert np.all(np.diff(points[series["compute"]].run_id) > 0)
    assert points[series["other"]].max.tolist() == [9]
    limited = history_of_kind.points(list(series.values()), since=950)
    assert [len(limited[series[name]].time) for name in ("compute", "other")] == [3, 0]


def test_sessions_are_selected_by_an_attribute(history_of_kind: History) -> None:
    history_of_kind.begin_session(build_session("t", started_at=2000, facts=SessionFacts(retest_since=2100)))
    history_of_kind.begin_session(build_session("u", started_at=3000, facts=SessionFacts(host="retest_since")))
    assert [one.uuid for one in history_of_kind.sessions("local", retested=True)] == ["t"]
    assert len(history_of_kind.sessions("local")) == 3


# PostgreSQL's JSON supports neither NUL nor single surrogates.
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
value = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["mpi", "filesystem", "command"]) | text, value, max_size=8))
def test_facts_are_read_back_exactly(history_of_kind: History, facts: dict[str, Any]) -> None:
    """Comparison as text distinguishes 1 from 1.0 and true."""
    history = history_of_kind
    history.record_runs("s", [run(f"f{len(history.runs('s'))}", (1.0,), facts)])
    newest = history.runs("s")[-1]
    assert (newest.name, newest.partition, newest.tool, newest.version) == ("benchio:a", "compute", "benchio", "4.0.0")
    assert json.dumps(newest.facts.document, sort_keys=True) == json.dumps(facts, sort_keys=True)
    assert history.run(newest.id) == newest


def test_pairs_sides_and_nodes_are_read_from_facts(history_of_kind: History) -> None:
    history = history_of_kind
    for number, nodes in enumerate((["n1", "n2"], [], None)):
        facts = {"pair": number, "side": "left", **({} if nodes is None else {"nodes": nodes})}
        history.record_runs("s", [run(f"f{number}", (1.0,), facts)])
    assert [(row.pair, row.side) for row in history.results(ResultFilter())] == [(n, "left") for n in range(3)]
    ids = [row.id for row in history.runs("s")]
    with history.reading() as connection:
        assert bulk.run_nodes(connection, ids) == {ids[0]: ("n1", "n2")}


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1", "n2", "n3", "n7"], "n[1-3,7]"),
        (["nid00012", "nid00013", "login", "nid00012"], "login,nid[00012-00013]"),
        (["n3", "n2", "n1"], "n[1-3]"),
        (["node"], "node"),
        (["x1.cluster", "x2.cluster"], "x[1-2].cluster"),
        ([f"nid{n:06d}" for n in range(512)], "nid[000000-000511]"),
        # Names that would be ambiguous in the notation are only joined.
        (["n[1-3]", "a"], "n[1-3],a"),
        (["n1!n2"], "n1!n2"),
        (["a&b", ""], "a&b,"),
        (["n1,n2"], "n1,n2"),
        (["n[1-"], "n[1-"),
        ([], ""),
    ],
)
def test_node_names_are_folded_in_slurm_notation(names: list[str], text: str) -> None:
    assert fold_node_names(names) == text
