"""Validation of a run: its outputs become one, which is failed if it is not what the suite asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import InputError, Output, Result, Scalar, canonical_json, missing_results


def merge_outputs(outputs: Sequence[Output]) -> Output:
    """Merge outputs: samples in order; `ok` only if all outputs are, otherwise with the first reason.

    Raises:
        InputError: no outputs.
    """
    if not outputs:
        raise InputError("no output to read: the program was not started")
    merged: dict[tuple[str, str, str], Result] = {}
    for output in outputs:
        for result in output.results:
            key = (result.operation, result.metric, canonical_json(result.case))
            earlier = merged[key].samples if key in merged else ()
            merged[key] = replace(result, samples=earlier + result.samples)
    decisive = next((output for output in outputs if output.status != "ok"), outputs[0])
    return replace(decisive, results=tuple(merged.values()), facts=outputs[0].facts)


def missing_case_results(case: SuiteCase, output: Output) -> list[str]:
    """Return the missing expected results, for example `write bandwidth`."""
    received = {(result.operation, result.metric) for result in output.results}
    return [f"{operation} {metric}" for operation, metric in missing_results(case.expects, received)]


def validate_output(case: SuiteCase, output: Output, failures: Iterable[str] = ()) -> Output:
    """Return the output, marked failed with the reason if it has fewer or other results than requested.

    Args:
        failures: problems outside the program that make this the result of another case.
    """
    if output.status != "ok":
        return output
    reasons = [*failures]
    requested = case.tool.samples(case.options)
    counts: Counter[tuple[str, str]] = Counter()
    for result in output.results:
        counts[result.operation, result.metric] += len(result.samples)
    for operation, metric in case.expects:
        count = counts[operation, metric]
        if count not in (0, requested):
            reasons.append(f"{operation} {metric}: {count} of {requested} repetitions")
    # Compare the parameters that the program prints with those of the suite.
    for name, expected in case.tool.shows(case.options).items():
        if name not in case.may_differ and (reason := _other_value(name, expected, output)):
            reasons.append(f"{reason}, the suite asks for {expected}")
    return replace(output, status="failed", reason="; ".join(reasons)) if reasons else output


def _other_value(name: str, expected: Scalar, output: Output) -> str | None:
    """Words about the first result that has another value of a case parameter than expected; None if none has."""
    for result in output.results:
        value = result.case.get(name)
        if value != expected:
            return f"{name} is missing from the output" if value is None else f"{name} is {value} in the output"
    return None


def add_parameters(output: Output, parameters: Mapping[str, Scalar]) -> Output:
    """Return the output with case parameters of the check that the program does not print."""
    results = tuple(replace(result, case={**result.case, **parameters}) for result in output.results)
    return replace(output, results=results)
