"""Which layer moved: every expected value is the planted layer, on seeded noise of 5 %."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from iowatch.benchmarks.benchmark import (
    API_LAYERS,
    CPU,
    DISK,
    FILE_SYSTEM,
    HDF5,
    LAYERS,
    METADATA,
    MPI_IO,
    NETCDF,
    NETWORK,
)
from iowatch.benchmarks.mdtest import MDTEST
from iowatch.core import Layer
from iowatch.statistics.layers import LayerSeries, infer_layer

NOISE, SECONDS = 0.05, 0.003


def session(
    fault: Layer | None, amount: float = 0.7, *, seed: int = 1, gain: bool = False, noise: float = NOISE
) -> list[LayerSeries]:
    """One session with the controls of every layer; a fault costs `amount` of the time of 1 MiB of a POSIX write."""
    rng = np.random.default_rng(seed)
    kinds = [((CPU,), 1.0, 0.0, None)] * 2 + [((CPU, NETWORK), SECONDS, 2.0, None)] * 2
    kinds += [(MDTEST.layers({}), 1e-4, 0.0, None)] * 3
    for api, path in API_LAYERS.items():
        if api not in ("NULL", "MPI"):
            # Higher interfaces take longer, so that the same added time is a smaller ratio.
            kinds += [(path, SECONDS * (1 + 0.2 * len(path)), 4.0, way) for way in ("write", "read")]
    found = []
    for path, seconds, mib, way in kinds:
        added = {"share": amount * seconds, "bytes": amount * SECONDS, "operations": 5 * amount * 1e-4 / (mib or 1)}
        after = seconds + (added[fault.work] if fault in path and fault is not None else 0.0)
        before, after = (after, seconds) if gain else (seconds, after)
        change = math.log(before / after) + rng.normal(0, noise)
        found.append(LayerSeries(tuple(one.name for one in path), change, noise, before, mib, way))
    return found


@pytest.mark.parametrize("gain", [False, True])
@pytest.mark.parametrize("layer", LAYERS, ids=lambda one: one.name)
def test_fault_and_improvement_of_each_layer_are_named(layer: Layer, gain: bool) -> None:
    found = infer_layer(session(layer, gain=gain), LAYERS)
    assert (found.named, layer.name in found.moved) == (layer.name, True)


def test_exchange_of_both_sides_changes_nothing() -> None:
    for layer in (DISK, METADATA, HDF5):
        series = session(layer)
        swapped = [replace(s, log_gain=-s.log_gain, seconds=s.seconds * math.exp(-s.log_gain)) for s in series]
        here, there = (infer_layer(one, LAYERS).ranked for one in (series, swapped))
        assert [(one.layer, pytest.approx(one.probability)) for one in here] == [
            (one.layer, one.probability) for one in there
        ]


def test_more_evidence_never_makes_the_planted_layer_less_likely() -> None:
    likely = []
    for amount in (0.0, 0.1, 0.3, 0.9):
        found = [infer_layer(session(MPI_IO, amount, seed=seed), LAYERS).ranked for seed in range(3)]
        likely.append(np.mean([one.probability for each in found for one in each if one.layer == MPI_IO.name]))
    assert likely == sorted(likely)
    assert likely[0] < 0.1 < 0.9 < likely[-1]


@pytest.mark.parametrize("layer", [DISK, CPU, NETWORK], ids=lambda one: one.name)
def test_layer_is_named_whatever_the_amount_of_its_fault(layer: Layer) -> None:
    """Noise of 1 %, as on an idle machine: the evidence must not depend on how near a node of a sum the amount is."""
    for amount in np.geomspace(0.6, 4, 9).tolist():
        series = session(layer, amount, noise=0.01)
        found = infer_layer(series, LAYERS)
        assert found.named == layer.name, (amount, found.ranked[:3])


def test_nothing_is_named_where_nothing_moved() -> None:
    for seed in range(5):
        found = infer_layer(session(None, seed=seed), LAYERS)
        assert (found.named, found.candidates) == (None, ())


def test_layer_without_a_series_is_never_a_candidate() -> None:
    series = [one for one in session(HDF5) if NETCDF.name not in one.path]
    assert NETCDF.name not in {one.layer for one in infer_layer(series, LAYERS).ranked}


def test_without_controls_the_lower_layers_cannot_be_told_apart() -> None:
    """All series of MPI-IO moved, and there are no others: anything that they pass through may be slow."""
    series = [one for one in session(DISK) if one.path[-1] == MPI_IO.name]
    found = infer_layer(series, LAYERS)
    assert found.named is None
    assert {one.layer for one in found.candidates} >= {DISK.name, FILE_SYSTEM.name, MPI_IO.name}
    assert found.measured == (MPI_IO.name,)


def test_direction_of_the_transfers_is_stated() -> None:
    series = [
        replace(one, log_gain=-0.5) if one.direction == "write" and MPI_IO.name in one.path else one
        for one in session(None)
    ]
    found = infer_layer(series, LAYERS)
    assert (found.named, found.direction) == (MPI_IO.name, "write")


def test_one_series_that_all_contradict_is_not_a_layer() -> None:
    """One read of POSIX alone moved: a change of one case, which no layer explains."""
    series = session(None)
    moved = next(i for i, one in enumerate(series) if one.path[-1] == FILE_SYSTEM.name and one.direction == "read")
    series[moved] = replace(series[moved], log_gain=-1.0)
    assert infer_layer(series, LAYERS).named is None


# A real session of the suite `layers` (two ranks, Open MPI over TCP) with 1 ms in each close: layer that a series
# measures, direction, seconds per MiB or operation, MiB per operation, ratio, noise.
SLOW_CLOSE = (
    ("HDF5", "read", 6.03e-3, 4, 0.722, 0.016),
    ("HDF5", "write", 6.29e-3, 4, 0.732, 0.013),
    ("MPI-IO", "read", 5.92e-3, 4, 0.824, 0.013),
    ("MPI-IO", "write", 6.11e-3, 4, 0.800, 0.017),
    ("NetCDF", "read", 6.69e-3, 4, 0.618, 0.016),
    ("NetCDF", "write", 6.71e-3, 4, 0.728, 0.025),
    ("PnetCDF", "read", 6.35e-3, 4, 0.821, 0.022),
    ("PnetCDF", "write", 6.15e-3, 4, 0.798, 0.030),
    ("file system", "read", 5.58e-3, 4, 0.935, 0.008),
    ("file system", "write", 5.76e-3, 4, 0.956, 0.003),
    ("disk", "read", 5.59e-3, 16, 0.983, 0.007),
    ("disk", "write", 5.77e-3, 16, 0.972, 0.045),
    ("network", None, 1.05e-3, 1.9, 0.849, 0.001),
    ("network", None, 5.46e-6, 0, 0.987, 0.015),
    ("network", None, 2.04e-3, 1.9, 0.964, 0.008),
    ("network", None, 6.27e-6, 0, 0.983, 0.025),
    ("CPU or memory", None, 1.5e-1, 0, 1.138, 0.089),
    ("CPU or memory", None, 1.26e-5, math.nan, 1.002, 0.020),
    ("metadata server", "write", 7.50e-6, 0, 0.013, 0.019),
    ("metadata server", "read", 1.41e-6, 0, 0.003, 0.016),
    ("metadata server", None, 4.93e-6, 0, 0.295, 0.019),
    ("metadata server", None, 8.15e-7, 0, 0.726, 0.036),
)


def test_calls_that_some_interfaces_make_more_often_are_one_fault() -> None:
    paths = {path[-1].name: path for path in (*API_LAYERS.values(), MDTEST.layers({}))}
    series = [
        LayerSeries(tuple(one.name for one in paths[name]), math.log(ratio), noise, seconds, mib, direction)
        for name, direction, seconds, mib, ratio, noise in SLOW_CLOSE
    ]
    assert infer_layer(series, LAYERS).named == METADATA.name
