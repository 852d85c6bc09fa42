"""Damaged outputs: no exception, no number that the intact output lacks, never `ok` with other numbers.

`IOWATCH_MUTATIONS=120000 pytest tests/benchmarks/test_mutations.py` runs more; `IOWATCH_SEED` changes them.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import PARSER_ERROR, parse_output
from iowatch.core import Output, canonical_json
from tests.benchmarks.corpus import outputs
from tests.benchmarks.mutations import (
    MUTATIONS,
    UNDETECTABLE,
    concatenate,
    interleave,
    lose_block,
    noise,
    several_mutations,
)

COUNT = int(os.environ.get("IOWATCH_MUTATIONS", "12000"))
SEED = int(os.environ.get("IOWATCH_SEED", "1"))
CHUNKS = 8
LARGEST = 100_000

# Parameters that only IOR's command line contains, and the mutations that can remove a whole option from it.
COMMAND_LINE_ONLY = {"fill", "collective_metadata", "alignment_bytes", "mode", "sync", "cache"}
TAKE_OPTIONS = (lose_block, noise)

Given = dict[str, Counter[float]]


def _given(output: Output) -> Given:
    """Samples of each operation, metric and case."""
    return {
        canonical_json({"case": dict(r.case), "metric": r.metric, "operation": r.operation}): Counter(r.samples)
        for r in output.results
    }


def _without_cases(given: Given) -> Given:
    """Only the numbers: several mutations at once may remove both places that name a parameter."""
    found: Given = {}
    for key, samples in given.items():
        name = str({**json.loads(key), "case": None})
        found[name] = found.get(name, Counter()) + samples
    return found


def _without_options(given: Given) -> Given:
    """A removed option of IOR's command line cannot be detected if no other line names it."""
    found: Given = {}
    for key, samples in given.items():
        document = json.loads(key)
        document["case"] = {k: v for k, v in document["case"].items() if k not in COMMAND_LINE_ONLY}
        name = canonical_json(document)
        found[name] = found.get(name, Counter()) + samples
    return found


def _within(found: Counter[float], allowed: Counter[float]) -> bool:
    """Whether all samples are among the allowed ones, to float precision."""
    return not found - allowed or all(
        any(math.isclose(value, other, rel_tol=1e-13) for other in allowed) for value in found - allowed
    )


@pytest.fixture(scope="module")
def corpus() -> list[tuple[str, Path, bytes, Given]]:
    """Valid outputs with their results."""
    found = []
    for tool, path in outputs():
        data = path.read_bytes()
        output = parse_output(tool, data, RunContext())
        if output.status == "ok" and len(data) < LARGEST:
            found.append((tool, path, data, _given(output)))
    return found


def _open_ended(path: Path) -> bool:
    """Outputs that can lose whole parts undetectably.

    IOR's CSV contains neither the expected number of rows nor an end mark; the output of a script does not contain
    the number of tests (when the last test and its two summary lines are missing).
    """
    return path.suffix == ".csv" or path.parent.name.endswith("_csv") or path.parent.name.startswith("script")


def _printed_once(path: Path, key: str) -> bool:
    """The duration of a phase is printed once; with one digit less it can still be a valid float."""
    return path.suffix == ".json" and any(f"{phase}_time" in key for phase in ("open", "transfer", "sync", "close"))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damaged_outputs_yield_no_wrong_numbers(chunk: int, corpus: list[tuple[str, Path, bytes, Given]]) -> None:
    rng = random.Random(SEED * 1000 + chunk)
    for turn in range(COUNT // CHUNKS):
        tool, path, data, given = rng.choice(corpus)
        same_tool = [entry for entry in corpus if entry[0] == tool]
        _, _, other, others = rng.choice(same_tool if rng.random() < 0.7 else corpus)
        mutation = rng.choice(MUTATIONS)
        damaged = mutation(data, other, rng)
        output = parse_output(tool, damaged, RunContext())
        where = f"seed {SEED}, chunk {chunk}, turn {turn}: {mutation.__name__} of {path}: {output.status}"
        assert not str(output.reason).startswith(PARSER_ERROR), f"{where}\n{output.reason}"
        if mutation in UNDETECTABLE:
            continue
        two_runs = mutation in (interleave, concatenate)
        found = _given(output)
        if mutation is several_mutations:
            found, given = _without_cases(found), _without_cases(given)
        if tool == "ior" and mutation in TAKE_OPTIONS:
            found, given = _without_options(found), _without_options(given)
        for key, samples in found.items():
            if _printed_once(path, key):
                continue
            allowed = given.get(key, Counter()) + (others.get(key, Counter()) if two_runs else Counter())
            allowed = allowed + allowed if two_runs else allowed
            assert _within(samples, allowed), f"{where}\n{key}\n{samples - allowed}"
        if output.status == "ok" and not two_runs and not _open_ended(path):
            assert found.keys() == given.keys(), where
            assert all(found[key].total() == given[key].total() for key in given), where


def test_corpus_contains_every_tool(corpus: list[tuple[str, Path, bytes, Given]]) -> None:
    assert {tool for tool, *_ in corpus} >= {"benchio", "ior", "mdtest"}


def test_truncated_outputs_are_not_ok(corpus: list[tuple[str, Path, bytes, Given]]) -> None:
    """Truncate every output at every twentieth byte; `ok` only if all results are before that byte."""
    for tool, path, data, given in corpus[::6]:
        if _open_ended(path) or len(data) > 20_000:
            continue
        for end in range(0, len(data), 20):
            output = parse_output(tool, data[:end], RunContext())
            if output.status == "ok":
                assert _given(output) == given, f"{path} cut at {end}"
