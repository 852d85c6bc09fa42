"""Score, speed and memory of the detector.

    python bench/statistics/detect.py                       the score table of tests/data/changes.tar.xz, timing, memory
    python bench/statistics/detect.py score-adapter IN OUT  a detector as score.py calls it

The table's other rows are those of the data set's README, measured with the same scorer.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np

from iowatch.statistics import detect_many

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.datasets import unpacked

DATA = unpacked("changes")

OFFLINE = {
    "precision": ".3f",
    "recall": ".3f",
    "f1": ".3f",
    "recall_detectable": ".3f",
    "fa_per_series_year": ".3f",
    "outlier_reported": ".1%",
    "temp_flagged": ".1%",
    "drift_reports_per_series": ".2f",
}

OTHERS = """\
skewed-noise segmentation (sketch)  .97  .81 .884  .94  .05   0 %   5 %   .37    5    1.8
ruptures KernelCPD rbf              .94  .77 .846  .88  .08   0 %  20 %  1.63    5    3.2
ruptures PELT L1                    .87  .71 .786  .83  .21   0 %  42 %  2.00    -      -
Otava, permutation test             .77  .70 .737  .81  .39   1 %  57 %  1.33    -      -
Otava p = 1e-5, min 5 %             .80  .57 .664  .67  .36   2 %  18 %   .83    9    3.2
asv step detection                  .89  .43 .575  .50  .00   5 %   0 %   .07   38     .3
Otava defaults                      .40  .67 .498  .78  1.6  10 %  32 %  2.70    3    9.5
moving-average crossings (TOKIO)    .32  .62 .419  .71  2.2   4 %  55 %  2.70   10     11
control regions (XDMoD)             .62  .29 .398  .34  .21   1 %  18 %   .40 never    .45
static -20 % (ReFrame)              .04  .75 .077  .78   33  84 %  92 %    21    -     28"""


def score_adapter(source: Path, target: Path) -> None:
    """Read cases and write detections in the formats that score.py describes."""
    cases = json.loads(source.read_text())["cases"]
    answers = detect_many([tuple(zip(*case["series"], strict=True)) for case in cases])
    document = {
        case["id"]: [{"index": c.index, "direction": c.direction, "magnitude": c.ratio} for c in answer.changes]
        for case, answer in zip(cases, answers, strict=True)
    }
    target.write_text(json.dumps(document))


def load_scorer() -> Any:
    """The scorer of the series with known changes, as a module."""
    spec = util.spec_from_file_location("changes_score", DATA / "score.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{DATA / 'score.py'} cannot be read")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _detect(cases: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        source, target = Path(place, "in.json"), Path(place, "out.json")
        source.write_text(json.dumps(cases))
        score_adapter(source, target)
        found: dict[str, Any] = json.loads(target.read_text())
        return found


def scores(split: str = "shown") -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores of the offline and of the online set."""
    scorer = load_scorer()

    def load(name: str) -> Any:
        return json.loads((DATA / f"{name}_{split}.json").read_text())

    offline = scorer.score(load("truth"), _detect(load("cases")))
    truth = load("truth_online")
    return offline, scorer.online(truth, _detect(scorer.expand(load("online"), truth)))


def print_scores() -> None:
    off, on = scores()
    row = [f"{off[name]:{form}}" for name, form in OFFLINE.items()]
    row += [str(on["delay_median_snr2"]), f"{on['online_fa_per_series_year']:.2f}"]
    print("method                             prec  rec   F1   det.  FA/y  outl. temp drift online FA/y")
    print(f"{'iowatch':34} " + " ".join(row))
    print(OTHERS)
    print(f"online: never found {on['never_snr2']:.1%} at SNR >= 2, {on['never']:.1%} of all")
    print(f"online: median delay over all {on['delay_median']} observations")


def timing(series: int, nights: int) -> None:
    """Seconds for many series of independent noise with three steps each."""
    rng = np.random.default_rng(7)
    times = 1.2e9 + 86400.0 * np.arange(nights)
    steps = np.repeat([0.0, 0.3, -0.2, 0.1], -(-nights // 4))[:nights]
    data = [(times, np.exp(7 + steps + 0.08 * rng.standard_t(3, nights))) for _ in range(series)]
    start = time.perf_counter()
    detect_many(data)
    taken = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{series} series x {nights} observations: {taken:.1f} s, peak memory of the process {peak:.2f} GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what")
    adapter = commands.add_parser("score-adapter")
    adapter.add_argument("source", type=Path)
    adapter.add_argument("target", type=Path)
    given = parser.parse_args()
    if given.what == "score-adapter":
        score_adapter(given.source, given.target)
        return
    timing(1000, 365)
    timing(1000, 3650)
    print_scores()


if __name__ == "__main__":
    main()
