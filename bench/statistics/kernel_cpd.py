"""Levels by ruptures' KernelCPD instead of the most probable path, followed by the detector's own stages.

    python bench/statistics/kernel_cpd.py series [METHOD…]
        scores on tests/data/changes.tar.xz: ours, KernelCPD, and the union of both
    python bench/statistics/kernel_cpd.py online [METHOD…] [--every 4]
        of a part of the series that are assessed at every prefix
    python bench/statistics/kernel_cpd.py staircases [METHOD…] [--series 4]
    python bench/statistics/kernel_cpd.py histories [METHOD…] --files FILE…
        public histories, as of staircases.py
    python bench/statistics/kernel_cpd.py time [METHOD…]

METHOD: ours, kernel, kernel:PENALTY, union or union:PENALTY. KernelCPD (Gaussian kernel, width by the median
heuristic) gets ln of the values; a change costs PENALTY x ln n / ln 120 [default: 5], and a level has at least
two observations. Its changes are the borders of the segments that transients, slopes, confidence and dates begin with,
with the noise that the detector estimates about them. The union has the borders of both. ruptures is no dependency of
iowatch: `pip install ruptures`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

# For `tests`, before the directory of this file, which holds `detect` and `staircases`.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import detect
import numpy as np
import ruptures  # type: ignore[import-not-found]
import staircases
from numpy.typing import NDArray

from iowatch.statistics import detect_many
from iowatch.statistics.detection import LEVELS, _date_steps
from iowatch.statistics.method import Detection, Detector, DetectorSettings, ObservedSeries
from iowatch.statistics.segments import (
    LevelPath,
    NoiseModel,
    SeriesFit,
    fit_noise,
    levels_along_path,
    segment_many,
    step_penalty,
)
from iowatch.statistics.steps import extract_drifts, make_detection, refine_segments

Floats = NDArray[np.float64]
PENALTY = 5.0
FEWEST = 2

Fits = list[tuple[LevelPath, NoiseModel]]
Segmentation = Callable[[Sequence[Floats], DetectorSettings], Fits]


def kernel_borders(logs: Floats, penalty: float) -> list[int]:
    """First observations of the levels, the first one included."""
    if len(logs) < 2 * FEWEST or np.ptp(logs) == 0:
        return [0]
    costs = penalty * math.log(len(logs)) / math.log(120)
    algorithm = ruptures.KernelCPD(kernel="rbf", min_size=FEWEST).fit(logs[:, None])
    ends: list[int] = algorithm.predict(pen=costs)
    return [0, *ends[:-1]]


def path_of(logs: Floats, borders: Sequence[int]) -> LevelPath:
    """Levels between borders: medians."""
    return [(first, float(np.median(logs[first:end]))) for first, end in pairwise([*borders, len(logs)])]


def noise_about(logs: Floats, path: LevelPath, settings: DetectorSettings) -> NoiseModel:
    """Noise of a series with these levels."""
    return fit_noise(logs, logs - levels_along_path(path, len(logs)), settings)


def by_kernel(series: Sequence[Floats], settings: DetectorSettings, penalty: float) -> Fits:
    """Paths and noise by KernelCPD."""
    fits: Fits = []
    for logs in series:
        path = path_of(logs, kernel_borders(logs, penalty))
        fits.append((path, noise_about(logs, path, settings)))
    return fits


def by_union(series: Sequence[Floats], settings: DetectorSettings, penalty: float) -> Fits:
    """Paths with the borders of both, and the noise of the most probable path."""
    fits: Fits = []
    for logs, (path, noise) in zip(series, segment_many(series, settings), strict=True):
        borders = {start for start, _ in path}
        # A border beside one of the path is the same change.
        for border in kernel_borders(logs, penalty):
            if not any(abs(border - other) <= FEWEST for other in borders):
                borders.add(border)
        fits.append((path_of(logs, sorted(borders)), noise))
    return fits


def detect_from(
    segmentation: Segmentation, series: Sequence[ObservedSeries], settings: DetectorSettings
) -> list[Detection]:
    """Detections of the stages after a segmentation, as in `iowatch.statistics.detection.detect_levels`."""
    detections: list[Detection] = []
    fits = segmentation([observed.logs for observed in series], settings)
    for observed, (path, noise) in zip(series, fits, strict=True):
        fit = SeriesFit(observed.logs, noise, settings, np.zeros(len(observed.logs), dtype=bool))
        price = step_penalty(len(observed.logs), settings)
        segments, transients = refine_segments(fit, fit.segments(path), price)
        segments, drifts = extract_drifts(fit, segments, price)
        detections.append(make_detection(observed, fit, _date_steps(fit, segments), transients, drifts))
    return detections


def detector_of(method: str) -> Detector:
    """The detector of a method by its name on the command line."""
    name, _, number = method.partition(":")
    penalty = float(number or PENALTY)
    if name == "ours":
        return LEVELS
    segmentations: dict[str, Segmentation] = {
        "kernel": partial(by_kernel, penalty=penalty),
        "union": partial(by_union, penalty=penalty),
    }
    return Detector(method, "bench", partial(detect_from, segmentations[name]))


def use(method: str) -> None:
    """Let the other scripts use a method."""
    detector = detector_of(method)
    detect.detect_many = partial(detect_many, detector=detector)  # type: ignore[assignment]
    staircases.detect_many = partial(detect_many, detector=detector)  # type: ignore[assignment]


def print_series(methods: Sequence[str]) -> None:
    """Scores of the whole series of the development set."""
    scorer = detect.load_scorer()
    cases = json.loads((detect.DATA / "cases_shown.json").read_text())
    truth = json.loads((detect.DATA / "truth_shown.json").read_text())
    print(f"{'method':14}" + " ".join(detect.OFFLINE))
    for method in methods:
        use(method)
        scores = scorer.score(truth, detect._detect(cases))
        print(f"{method:14}" + " ".join(f"{scores[name]:{form}}" for name, form in detect.OFFLINE.items()), flush=True)


def print_online(methods: Sequence[str], every: int) -> None:
    """Scores of a part of the series that are assessed at every prefix."""
    scorer = detect.load_scorer()
    truth = json.loads((detect.DATA / "truth_online_shown.json").read_text())
    part = {name: truth[name] for name in sorted(truth)[::every]}
    online = json.loads((detect.DATA / "online_shown.json").read_text())
    online["cases"] = [case for case in online["cases"] if case["id"] in part]
    expanded = scorer.expand(online, part)
    for method in methods:
        use(method)
        scores = scorer.online(part, detect._detect(expanded))
        names = ("delay_median_snr2", "never_snr2", "never", "online_fa_per_series_year")
        print(f"{method:14}" + " ".join(f"{name} {scores[name]:.3f}" for name in names), flush=True)


def print_staircases(methods: Sequence[str], series: int) -> None:
    """Staircases of six noises and more of which both steps are found, and false changes of controls."""
    for method in methods:
        use(method)
        for length in (5, 6, 8, 13):
            row = []
            for shape in staircases.SHAPES:
                row += [staircases.found_staircases(shape, length, size, series) for size in staircases.SIZES[1:]]
            print(f"{method:14} {length:2} observations: {' '.join(row)}", flush=True)
        rng = np.random.default_rng(68)
        for name, draw in staircases.CONTROLS.items():
            drawn, dates = [], []
            for size in staircases.SIZES:
                for _ in range(3 * series):
                    logs, date = draw(rng, size)
                    drawn.append(0.03 * logs)
                    dates.append(date)
            false = staircases.per_hundred(staircases.detected_steps(drawn), dates)
            print(f"{method:14} {name}: {false:.1f} false changes per 100 series", flush=True)


def print_time(methods: Sequence[str]) -> None:
    """Processor time of series with three steps."""
    for method in methods:
        use(method)
        for series, nights in ((50, 365), (5, 3650)):
            began = time.process_time()
            detect.timing(series, nights)
            print(f"{method:14} {series} series x {nights}: {time.process_time() - began:.2f} s of processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["series", "online", "staircases", "histories", "time"])
    parser.add_argument("methods", nargs="*", default=["ours", "kernel", "union"])
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--series", type=int, default=4)
    parser.add_argument("--files", nargs="*", type=Path, default=[])
    options = parser.parse_args()
    if options.mode == "series":
        print_series(options.methods)
    elif options.mode == "online":
        print_online(options.methods, options.every)
    elif options.mode == "staircases":
        print_staircases(options.methods, options.series)
    elif options.mode == "histories":
        for method in options.methods:
            use(method)
            print(method)
            staircases.print_histories(options.files, False)
    else:
        print_time(options.methods)


if __name__ == "__main__":
    main()
