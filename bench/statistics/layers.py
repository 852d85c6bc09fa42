"""Which layer moved: how often thresholds name the right layer in simulated sessions.

    python bench/statistics/layers.py [SESSIONS]

A session has one fault or improvement, lacks 5 to 50 % of the kinds of series, and has noise that its series share in
part. `layers_planted.py` plants faults in real sessions.
"""

from __future__ import annotations

import math
import sys
from collections import Counter

import numpy as np

from iowatch.benchmarks.benchmark import API_LAYERS, CPU, LAYERS, METADATA, NETWORK
from iowatch.core import Layer
from iowatch.statistics import layers as inference
from iowatch.statistics.layers import LayerSeries, infer_layer

THRESHOLDS = (0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
# Name, layers, seconds per MiB or per operation, MiB per operation, directions; 5 % to 50 % of the kinds are missing.
KINDS = (
    *(("processor", (CPU,), 0.5, 0.0, (None, None)), ("memory", (CPU,), 2e-5, 0.1, (None,))),
    *(("message", (CPU, NETWORK), 1e-4, 0.0, (None, None)), ("messages", (CPU, NETWORK), 1e-3, 2.0, (None, None))),
    ("metadata", (CPU, NETWORK, METADATA), 1e-4, 0.0, (None, None, None, None)),
    *((api, path, 3e-3, 4.0, ("write", "read")) for api, path in API_LAYERS.items() if api not in ("NULL", "MPI")),
)


def simulate_series(rng: np.random.Generator) -> tuple[list[LayerSeries], Layer]:
    """Series of one session with one fault or improvement, and its layer."""
    layer = LAYERS[int(rng.integers(len(LAYERS)))]
    missing = rng.uniform(0.05, 0.5)
    direction = rng.choice(["write", "read", ""], p=[0.3, 0.2, 0.5]) if layer.has_directions else ""
    slower, shift, noises = rng.uniform(0.15, 3), rng.normal(0, 0.05), rng.uniform(0.02, 0.15)
    sign, notice, spread = rng.choice([-1, 1], p=[0.8, 0.2]), rng.uniform(0.6, 1), rng.uniform(0.1, 0.8)
    common = rng.uniform(0, 0.8)  # share of the noise that the session has in common
    disturbance = rng.standard_t(4)
    per_work = {"share": slower, "bytes": slower * 3e-3, "operations": slower * 1e-4}[layer.work]
    found = []
    for name, path, seconds, mib, directions in KINDS:
        if rng.random() < missing:
            continue
        # Series of another layer make more or fewer of the calls that are slow.
        calls = 1.0 if path[-1] == layer or rng.random() < 0.5 else math.exp(rng.normal(0, 1.5))
        several = 1 if name in ("processor", "memory", "raw") else int(rng.integers(1, 4))
        for one in [d for d in directions for _ in range(several)]:
            usual = seconds * math.exp(rng.normal(0, 0.6))
            concerned = layer in path and (not direction or one == direction)
            noticed = rng.random() < (layer.controls_notice if path[-1] == layer else notice)
            added = per_work * calls * math.exp(rng.normal(0, spread)) if concerned and noticed else 0.0
            if layer.work == "bytes" and not mib:  # messages: any amount
                added = usual * rng.uniform(0, 3) * bool(added)
            change = {"share": 1 + added, "bytes": 1 + added / usual, "operations": 1 + added / (usual * (mib or 1))}[
                layer.work
            ]
            if rng.random() < 0.02:
                change *= math.exp(rng.normal(0, 0.4))
            noise = max(noises * math.exp(rng.normal(0, 0.5)), 0.01)
            measured = (
                sign * math.log(change)
                + shift
                + noise * (common * disturbance + math.sqrt(1 - common**2) * rng.standard_t(4))
            )
            before = usual if sign < 0 else usual * change
            stated = noise * math.exp(rng.normal(0, 0.25))  # estimated from some observations
            found.append(LayerSeries(tuple(x.name for x in path), measured, stated, before, mib, one))
    return found, layer


def simulate(sessions: int = 2000, seed: int = 23) -> None:
    """Print how often each threshold names the right layer, a wrong one, or none."""
    rng = np.random.default_rng(seed)
    answers = []
    for _ in range(sessions):
        series, layer = simulate_series(rng)
        if not any(layer.name in one.path for one in series):
            continue
        found = infer_layer(series, LAYERS)
        controlled = layer.name in found.measured
        best = found.ranked[0]
        answers.append((layer.name, best.layer, best.probability, controlled))
    print(f"{len(answers)} simulated sessions; with control series of the layer {sum(a[3] for a in answers)}")
    print("threshold   right  wrong  cannot tell   (with control series: right  wrong  cannot tell)")
    for least in THRESHOLDS:
        rows = []
        for chosen in (answers, [a for a in answers if a[3]]):
            right = sum(a[0] == a[1] and a[2] >= least for a in chosen) / len(chosen)
            wrong = sum(a[0] != a[1] and a[2] >= least for a in chosen) / len(chosen)
            rows.append(f"{right:6.3f} {wrong:6.3f} {1 - right - wrong:6.3f}")
        print(f"{least:9}   {rows[0]}        {rows[1]}")
    wrong = Counter((a[0], a[1]) for a in answers if a[0] != a[1] and a[2] >= inference.NAMED)
    for (truth, named), count in wrong.most_common(8):
        print(f"  {truth} taken for {named}: {count}")


if __name__ == "__main__":
    simulate(int(sys.argv[1]) if sys.argv[1:] else 2000)
