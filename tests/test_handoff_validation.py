"""Outputs that show less than a suite requested, or something else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iowatch import handoff
from iowatch.benchmarks import suites
from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import Output, Result, Scalar


def case_of(benchmark: str, suite: str = "smoke") -> SuiteCase:
    return next(case for case in suites.load_suite(suite) if case.benchmark == benchmark)


def complete_output(case: SuiteCase, **others: Scalar) -> Output:
    """The output of a complete run: every repetition of every expected result, with the requested parameters."""
    shown = {**case.tool.shows(case.options), **others}
    samples = tuple(float(n + 1) for n in range(case.tool.samples(case.options)))
    results = tuple(Result(operation, metric, "x", samples, shown) for operation, metric in case.expects)
    return Output(case.benchmark, "1", "ok", None, results)


TOOLS = ("benchio", "ior", "mdtest", "h5bench")


@pytest.mark.parametrize("benchmark", TOOLS)
def test_complete_output_is_unchanged(benchmark: str) -> None:
    case = case_of(benchmark)
    output = complete_output(case)
    assert handoff.validate_output(case, output) is output
    assert handoff.missing_results(case, output) == []


@pytest.mark.parametrize("benchmark", TOOLS)
def test_fewer_repetitions_are_a_failure(benchmark: str) -> None:
    case = case_of(benchmark)
    output = complete_output(case)
    first, *others = output.results
    short = replace(output, results=(replace(first, samples=first.samples[1:]), *others))
    requested = case.tool.samples(case.options)
    reason = f"{first.operation} {first.metric}: {requested - 1} of {requested} repetitions"
    assert (handoff.validate_output(case, short).status, handoff.validate_output(case, short).reason) == (
        "failed",
        reason,
    )


@pytest.mark.parametrize(
    ("benchmark", "name"),
    [("benchio", "total_bytes"), ("ior", "total_bytes"), ("mdtest", "files"), ("h5bench", "total_bytes")],
)
def test_fewer_bytes_or_files_are_a_failure(benchmark: str, name: str) -> None:
    case = case_of(benchmark)
    requested = case.tool.shows(case.options)[name]
    validated = handoff.validate_output(case, complete_output(case, **{name: 512}))
    assert (validated.status, validated.reason) == (
        "failed",
        f"{name} is 512 in the output, the suite asks for {requested}",
    )


def test_missing_verification_is_a_failure() -> None:
    case = next(c for c in suites.load_suite("smoke") if c.options.get("verify") and c.benchmark == "ior")
    output = complete_output(case)
    unverified = tuple(replace(r, case={k: v for k, v in r.case.items() if k != "verify"}) for r in output.results)
    validated = handoff.validate_output(case, replace(output, results=unverified))
    assert validated.reason == "verify is missing from the output, the suite asks for True"


def test_reason_of_a_failed_run_is_kept() -> None:
    case = case_of("ior")
    failed = replace(complete_output(case), status="failed", reason="disk full", results=())
    assert handoff.validate_output(case, failed, ["striping"]) is failed
    assert handoff.missing_results(case, failed) == ["write bandwidth"]
    assert handoff.validate_output(case, complete_output(case), ["the striping could not be set: x"]).status == "failed"
