"""Samples and names of nodes come back exactly, whatever they are, and take the few bytes that are promised."""

from __future__ import annotations

import json
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iowatch.store.kinds import folded, unfolded
from iowatch.store.nodelist import fold, unfold
from iowatch.store.packing import as_floats, number_of_samples, pack, unpack, unpack_all

printed = st.builds(
    lambda whole, decimals: float(f"{whole / 10**decimals:.{decimals}f}"),
    st.integers(0, 10**9),
    st.integers(0, 8),
)
samples = st.lists(st.floats(allow_nan=False) | printed, min_size=1, max_size=40)
some = samples | st.lists(printed, min_size=1, max_size=40)


def exactly(values: object) -> bytes:
    """Bit by bit: 0.0 and -0.0 are equal, but not the same."""
    return np.asarray(values, dtype="<f8").tobytes()


@given(some)
def test_samples_come_back_exactly(values: list[float]) -> None:
    blob = pack(values)
    assert exactly(unpack(blob)) == as_floats(blob) == exactly(values)
    assert len(blob) <= 8 * len(values)


@given(st.lists(some, max_size=8))
def test_many_results_at_once_are_one_after_the_other(results: list[list[float]]) -> None:
    assert exactly(unpack_all([pack(values) for values in results])) == exactly([*chain(*results)])


def test_histories_of_before_have_floats_only() -> None:
    """Schemas 0001 to 0003 wrote eight bytes a sample, whatever it was."""
    values = (487.8, 2355.21, 2382.61)
    assert unpack(exactly(values)) == values
    assert exactly(unpack_all([exactly(values), pack(values)])) == exactly(values * 2)


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ((487.8, 2355.21, 2382.61), 2 + 3 + 3 * 4),  # hundredths; 16 bytes would be those of two floats
        ((1000.01,) * 10, 2 + 3 + 10),  # 100,001 hundredths in three bytes, one byte an offset
        (tuple(1000 + n / 10 for n in range(10)), 2 + 2 + 10),  # 10,000 tenths
        ((0.1 + 0.2, 1 / 3), 16),  # all digits of a float64 are needed
        ((-1.5, 2.5), 16),
        ((float("inf"), 1.0), 16),
        ((1e300, 1.0), 16),
        ((0.0,), 2 + 0 + 1),
    ],
)
def test_what_tools_print_takes_few_bytes(values: tuple[float, ...], size: int) -> None:
    assert len(pack(values)) == size
    assert unpack(pack(values)) == values


@given(some)
def test_a_blob_tells_how_many_samples_it_has(values: list[float]) -> None:
    blob = pack(values)
    assert number_of_samples(blob[:2], len(blob)) == len(values)


@given(st.lists(printed, min_size=1, max_size=40), st.data())
def test_a_cut_blob_is_not_taken_for_a_whole_one(values: list[float], data: st.DataObject) -> None:
    blob = pack(values)
    kept = blob[: data.draw(st.integers(0, len(blob) - 1))]
    assert number_of_samples(kept[:2], len(kept)) != len(values)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1", "n2", "n3", "n7"], "n[1-3,7]"),
        (["nid00012", "nid00013", "login", "nid00012"], "nid[00012-00013],login,nid00012"),
        (["a9", "a10", "b"], "a[9,10],b"),  # another width: another range
        (["n3", "n2", "n1"], "n[3,2,1]"),  # the order is kept
        (["node"], "node"),
        (["x1.cluster", "x2.cluster"], "x1.cluster,x2.cluster"),
    ],
)
def test_nodes_are_written_as_slurm_does(names: list[str], text: str) -> None:
    assert fold(names) == text
    assert list(unfold(text)) == names


def test_a_large_job_takes_one_line() -> None:
    assert fold([f"nid{n:06d}" for n in range(512)]) == "nid[000000-000511]"


names = st.lists(
    st.from_regex(r"[a-c,\[\]-]{0,2}[0-9]{0,3}[.x]?", fullmatch=True) | st.text(max_size=4), max_size=8
)


@given(names, st.sampled_from(["nodes", "hosts", "other"]))
def test_facts_with_nodes_come_back_exactly(given_names: list[str], name: str) -> None:
    """Also where names have commas, brackets or nothing in them: such lists stay lists."""
    facts = {name: given_names, "exit_code": 0}
    assert unfolded(json.loads(json.dumps(folded(facts)))) == facts


@pytest.mark.parametrize("value", [None, "n1", ["n1", 2], {"n1": 1}, [["n1"]]])
def test_only_lists_of_names_are_folded(value: object) -> None:
    assert folded({"nodes": value}) == {"nodes": value}
