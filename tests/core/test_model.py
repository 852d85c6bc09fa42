"""Identity of cases, summaries."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iowatch.core import Case, InputError, summarise_samples

PARAMETERS = {"api": "MPIIO", "ranks": 4, "collective": True, "transfer_bytes": 1048576}


def test_key_does_not_depend_on_order_or_absent_parameters() -> None:
    turned = dict(reversed(PARAMETERS.items()))
    assert Case("ior", PARAMETERS).key == Case("ior", {**turned, "alignment_bytes": None}).key  # type: ignore[dict-item]


def test_whole_floats_and_integers_are_the_same_case() -> None:
    assert Case("ior", {"ranks": 4.0}) == Case("ior", {"ranks": 4})
    assert Case("ior", {"ranks": True}) != Case("ior", {"ranks": 1})


def test_key_is_the_same_in_another_process() -> None:
    """A history lives for years: the key must not depend on Python's hash seed."""
    code = f"from iowatch.core import Case; print(Case('ior', {PARAMETERS!r}).key)"
    other = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == Case("ior", PARAMETERS).key


def test_key_of_a_case_is_unchanged() -> None:
    """Guards against change only: a new key would split every series of every site."""
    assert Case("ior", PARAMETERS).canonical == (
        '{"benchmark":"ior","parameters":{"api":"MPIIO","collective":true,"ranks":4,"transfer_bytes":1048576}}'
    )
    assert Case("ior", PARAMETERS).key == "77932b59f21fdde5"


def test_parameters_that_json_cannot_represent_are_refused() -> None:
    with pytest.raises(InputError):
        _ = Case("ior", {"x": float("nan")}).key


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=50))
def test_summary_is_ordered(samples: list[float]) -> None:
    s = summarise_samples(samples)
    assert s.n == len(samples)
    assert s.min <= s.median <= s.max
    assert s.min <= s.mean * (1 + 1e-12)
    assert s.mean <= s.max * (1 + 1e-12)


@pytest.mark.parametrize("samples", [[], [float("inf")], [1.0, float("nan")]])
def test_empty_or_non_finite_samples_are_refused(samples: list[float]) -> None:
    with pytest.raises(InputError):
        summarise_samples(samples)
