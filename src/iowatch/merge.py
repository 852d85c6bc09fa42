"""Several starts of one program as one output: each start gives one sample more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from iowatch.errors import InputError
from iowatch.model import Output, Result, canonical_json


def merge(outputs: Sequence[Output]) -> Output:
    """One output with the samples of all, in order; it is ok only where all are, and keeps the first reason.

    Raises:
        InputError: there are none.
    """
    if not outputs:
        raise InputError("no output to read: the program was not started")
    bad = next((output for output in outputs if output.status != "ok"), None)
    decisive = bad or outputs[0]
    return replace(decisive, results=_results(outputs), facts=outputs[0].facts)


def _results(outputs: Sequence[Output]) -> tuple[Result, ...]:
    merged: dict[tuple[str, str, str], Result] = {}
    for result in (result for output in outputs for result in output.results):
        key = (result.operation, result.metric, canonical_json(result.case))
        earlier = merged.get(key)
        samples = (earlier.samples if earlier else ()) + result.samples
        merged[key] = replace(result, samples=samples)
    return tuple(merged.values())
