"""What is said of a comparison with the nights before an event, beside its decision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from iowatch.core import Scalar, reduce_node_times
from iowatch.findings.fitness import BaselinePeriod, Expectation, FitnessComparison
from iowatch.output.text.fitness import assessment_document, assessment_sentence, evidence_lines, format_expectation
from iowatch.statistics.fitness import FitnessSettings
from iowatch.store import History
from tests.builders import START_S, build_result, build_run, build_session, store_session

DAY_S = 86_400
NIGHTS = 40
CASES: list[dict[str, Scalar]] = [
    {"api": api, "file": file} for api in ("POSIX", "MPIIO") for file in ("shared", "per-process")
]
AFTER_S = START_S + NIGHTS * DAY_S


def times_of(slow_node: str) -> dict[str, object]:
    """The fact of a run on four nodes, of which one takes three times as long."""
    names = ["n1", "n2", "n3", "n4"]
    rng = np.random.default_rng(1)
    rows = [[float(rng.lognormal(0, 0.03)) * (3 if name == slow_node else 1) for name in names] for _ in range(5)]
    times = reduce_node_times(names, [2**20] * 4, rows)
    assert times is not None
    return {"node_times": {"write": times.to_json()}}


def compare(history: History, factor: float, *expectations: Expectation, noise: float = 0.02) -> FitnessComparison:
    """40 nights of four cases of IOR, then two runs of each; the shared ones at `factor` of their level."""
    rng = np.random.default_rng(3)
    for night in range(NIGHTS + 2):
        runs = []
        for number, case in enumerate(CASES):
            level = 1000.0 * (1 + number)
            if night >= NIGHTS and case["file"] == "shared":
                level *= factor
            value = float(level * np.exp(noise * rng.standard_normal()))
            moment = START_S + night * DAY_S + number
            facts = times_of("n3") if night >= NIGHTS and number else {}
            result = build_result(value, operation="write", case=case)
            runs.append(build_run(result, name=f"ior:{number}", started_at=moment, facts=facts))
        store_session(history, build_session(f"night-{night}", started_at=START_S + night * DAY_S), runs)
    planned = {run.key for run in history.runs("night-0")}
    comparison = FitnessComparison.load(
        history, "local", BaselinePeriod(None, AFTER_S), planned, FitnessSettings(), expectations
    )
    for night in (NIGHTS, NIGHTS + 1):
        for run in history.runs(f"night-{night}"):
            comparison.record_run(history.run_results(run.id))
    return comparison


def test_series_are_compared_in_the_unit_of_their_metric(history: History) -> None:
    assessment = compare(history, 0.5).assess()
    assert assessment.decision == "not fit"
    by_name = {series.name: series for series in assessment.series}
    shared = next(series for name, series in by_name.items() if "POSIX shared" in name)
    assert shared.before == pytest.approx(1000, rel=0.03)
    assert shared.after == pytest.approx(500, rel=0.05)
    assert (shared.unit, shared.repetitions, shared.nights) == ("MiB/s", 2, NIGHTS - 5)
    assert shared.gain is not None
    assert shared.interval[0] is not None
    assert shared.interval[0] < shared.gain
    # The nights after are none of the baseline.
    assert assessment.baseline == (START_S, AFTER_S - DAY_S + 3)


def test_slow_node_is_named_if_it_is_slow_in_most_of_its_runs(history: History) -> None:
    comparison = compare(history, 1.0)
    runs = [run for night in (NIGHTS, NIGHTS + 1) for run in history.runs(f"night-{night}")]
    (node,) = comparison.assess(runs).slow_nodes
    # Six of the eight runs recorded the times of their nodes.
    assert (node.node, node.slow_runs, node.runs) == ("n3", 6, 6)
    assert node.ratio == pytest.approx(3, rel=0.15)


def test_runs_that_are_not_planned_are_not_compared(history: History) -> None:
    compare(history, 1.0)
    planned = {run.key for run in history.runs("night-0") if run.name == "ior:0"}
    comparison = FitnessComparison.load(history, "local", BaselinePeriod(None, AFTER_S), planned, FitnessSettings())
    assert [run.run for run in comparison.runs] == ["ior:0"]
    assert set(comparison.information_by_run()) == planned


def test_period_limits_the_nights(history: History) -> None:
    compare(history, 1.0)
    planned = {run.key for run in history.runs("night-0")}
    period = BaselinePeriod(AFTER_S - 20 * DAY_S, AFTER_S)
    comparison = FitnessComparison.load(history, "local", period, planned, FitnessSettings())
    assert comparison.assess().nights == 20 - 5


def test_expectation_without_series_and_one_that_noise_hides(history: History) -> None:
    absent = Expectation("improvement", {"api": "HDF5"}, "improvement:api=HDF5")
    hidden = Expectation("improvement", {"api": "MPIIO"}, "improvement:api=MPIIO")
    assessment = compare(history, 1.05, absent, hidden, noise=0.3).assess()
    assert [result.state for result in assessment.expectations] == ["no series", "open"]
    assert "no measured series" in format_expectation(assessment.expectations[0])
    assert "cannot be distinguished from the noise of nights" in format_expectation(assessment.expectations[1])


def test_undecided_states_what_is_possible_and_what_could_be_found(history: History) -> None:
    assessment = compare(history, 1.0, noise=0.3).assess()
    sentence = assessment_sentence("local", assessment, "in 45 minutes")
    assert assessment.largest_possible_loss is not None
    percent = f"{100 * assessment.largest_possible_loss:.0f} %"
    assert sentence.startswith(
        f"Not decidable in 45 minutes whether local is as fast as before: a loss of {percent} in "
    )
    assert any(line.startswith("Detectable with these nights:") for line in evidence_lines(assessment))
    document = assessment_document(assessment)
    assert document["decision"] == "undecided"
    assert all(math.isfinite(end) for end in document["lower"]["interval"])


def test_system_without_a_history_is_undecided(history: History) -> None:
    comparison = FitnessComparison.load(history, "local", BaselinePeriod(None, AFTER_S), set(), FitnessSettings())
    assessment = comparison.assess()
    assert (assessment.decision, assessment.reason, assessment.series) == ("undecided", "no baseline", ())
    assert "no baseline, 0 nights before" in assessment_sentence("local", assessment, "in 45 minutes")
