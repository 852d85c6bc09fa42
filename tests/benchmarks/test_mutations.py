"""Damaged outputs: no exception, no number that the intact output lacks, never `ok` with other numbers.

Digits and units that are replaced by others must not give a number that is wrong by more than 1 % with status `ok`,
unless the tool prints it only once (`_confirmed`).

`IOWATCH_MUTATIONS=120000 pytest tests/benchmarks/test_mutations.py` runs more; `IOWATCH_SEED` changes them.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import BENCHMARKS, PARSER_ERROR, parse_output
from iowatch.core import Output, canonical_json
from tests.benchmarks.corpus import outputs
from tests.benchmarks.mutations import (
    MUTATIONS,
    OTHER_NUMBERS,
    UNDETECTABLE,
    Mutation,
    concatenate,
    interleave,
    label_lines,
    lose_block,
    noise,
    several_mutations,
    truncate_start,
)

COUNT = int(os.environ.get("IOWATCH_MUTATIONS", "12000"))
SEED = int(os.environ.get("IOWATCH_SEED", "1"))
CHUNKS = 8
LARGEST = 100_000

# Parameters that only the command line contains, and the mutations that can remove a whole option from it.
COMMAND_LINE_ONLY = {"fill", "collective_metadata", "alignment_bytes", "mode", "sync", "cache"}
COMMAND_LINE_ONLY |= {"write_bytes", "read_bytes"}  # mdtest: also with a digit less
TAKE_OPTIONS = (lose_block, noise)
# One warning, printed once, decides whether `-e` had an effect.
NO_FSYNC = b"fsync() not supported"
# Only the outermost label is removed.
LABELLED = re.compile(rb"^\[\d+\]|<std(?:out|err)>:|^ *\d+: ", re.MULTILINE)

Given = dict[str, Counter[float]]


def _given(output: Output) -> Given:
    """Samples of each operation, metric and case."""
    return {
        canonical_json({"case": dict(r.case), "metric": r.metric, "operation": r.operation}): Counter(r.samples)
        for r in output.results
    }


def _without_cases(given: Given, **more: None) -> Given:
    found: Given = {}
    for key, samples in given.items():
        name = canonical_json({**json.loads(key), "case": {}, **more})
        found[name] = found.get(name, Counter()) + samples
    return found


def _only_metrics(given: Given) -> Given:
    """Several mutations may remove both places that name a parameter, or join the name and the numbers of two rows."""
    return _without_cases(given, operation=None)


def _without_options(given: Given) -> Given:
    """A removed option of a command line cannot be detected if no other line names it."""
    found: Given = {}
    for key, samples in given.items():
        document = json.loads(key)
        document["case"] = {k: v for k, v in document["case"].items() if k not in COMMAND_LINE_ONLY}
        name = canonical_json(document)
        found[name] = found.get(name, Counter()) + samples
    return found


def _view(given: Given, views: Sequence[Callable[[Given], Given] | bool]) -> Given:
    for view in views:
        given = view(given) if callable(view) else given
    return given


def _within(found: Counter[float], allowed: Counter[float]) -> bool:
    """Whether all samples are among the allowed ones, to float precision."""
    return not found - allowed or all(
        any(math.isclose(value, other, rel_tol=1e-13) for other in allowed) for value in found - allowed
    )


@dataclass(frozen=True)
class Intact:
    """A valid output.

    Attributes:
        given: its results; printed: all its numbers, also those that its other numbers do not confirm.
    """

    tool: str
    path: Path
    data: bytes
    given: Given
    printed: Given


@pytest.fixture(scope="module")
def corpus() -> list[Intact]:
    found = []
    for tool, path in outputs():
        data = path.read_bytes()
        output = parse_output(tool, data, RunContext())
        if output.status == "ok" and len(data) < LARGEST:
            given = _given(output)
            fresh = parse_output(tool, data, RunContext(fresh=True))
            # A session does not accept every output that is read from elsewhere (IOR without its summary).
            printed = _given(fresh) if fresh.status == "ok" else given
            found.append(Intact(tool, path, data, given, printed))
    return found


def _open_ended(path: Path) -> bool:
    """Outputs that can lose whole parts undetectably.

    IOR's CSV contains neither the expected number of rows nor an end mark; the output of a script does not contain
    the number of tests (when the last test and its two summary lines are missing).
    """
    return path.suffix == ".csv" or path.parent.name.endswith("_csv") or path.parent.name.startswith("script")


def _begins_with_another_program(mutation: Mutation, intact: Intact) -> bool:
    """Whether what is left may begin with the second of two programs: an output of that one alone looks the same."""
    return mutation is truncate_start and intact.tool == "h5bench" and intact.path.name.endswith("write-read.txt")


def _is_phase(key: str) -> bool:
    return any(f"{phase}_time" in key for phase in ("open", "transfer", "sync", "close"))


def _printed_once(path: Path, key: str) -> bool:
    """The duration of a phase is printed once; with one digit less it can still be a valid float."""
    return path.suffix == ".json" and _is_phase(key)


def _confirmed(tool: str, output: Output) -> Given:
    """All but the numbers that the tool prints once: phases, and statistics of more than three values (mdtest)."""
    iterations = output.facts.get("rate_summary", {}).get("iterations", 0)
    values = iterations * (int(output.results[0].case["ranks"]) if str(output.version).startswith("3.") else 1)
    many = tool == "mdtest" and values > 3
    return {key: samples for key, samples in _given(output).items() if not (_is_phase(key) or many)}


def _wrong_numbers(output: Output, intact: Intact) -> list[tuple[str, float]]:
    """Samples that differ by more than 1 % from all of the same operation and metric of the intact output."""
    printed = _without_cases(intact.printed)
    return [
        (name, value)
        for name, samples in _without_cases(_confirmed(intact.tool, output)).items()
        for value in samples
        if not any(math.isclose(value, other, rel_tol=0.01) for other in printed.get(name, ()))
    ]


def _check_exactly(mutation: Mutation, intact: Intact, other: Intact, output: Output, where: str) -> None:
    """Assert that the output has only numbers of the intact one, and `ok` only with all of them."""
    views = [
        mutation is several_mutations and _only_metrics,
        intact.tool == "mdtest" and _without_options,
        intact.tool == "ior" and (mutation in TAKE_OPTIONS or NO_FSYNC in intact.data) and _without_options,
    ]
    found, given, printed, others = (
        _view(numbers, views) for numbers in (_given(output), intact.given, intact.printed, other.printed)
    )
    two_runs = mutation in (interleave, concatenate)
    for key, samples in found.items():
        if _printed_once(intact.path, key):
            continue
        allowed = printed.get(key, Counter()) + (others.get(key, Counter()) if two_runs else Counter())
        allowed = allowed + allowed if two_runs else allowed
        assert _within(samples, allowed), f"{where}\n{key}\n{samples - allowed}"
    may_lack_parts = _open_ended(intact.path) or _begins_with_another_program(mutation, intact)
    if output.status == "ok" and not two_runs and not may_lack_parts:
        assert found.keys() == given.keys(), where
        assert all(found[key].total() == given[key].total() for key in given), where


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damaged_outputs_yield_no_wrong_numbers(chunk: int, corpus: list[Intact]) -> None:
    rng = random.Random(SEED * 1000 + chunk)
    for turn in range(COUNT // CHUNKS):
        intact = rng.choice(corpus)
        other = rng.choice([entry for entry in corpus if entry.tool == intact.tool] if rng.random() < 0.7 else corpus)
        mutation = rng.choice(MUTATIONS)
        output = parse_output(intact.tool, mutation(intact.data, other.data, rng), RunContext())
        where = f"seed {SEED}, chunk {chunk}, turn {turn}: {mutation.__name__} of {intact.path}: {output.status}"
        assert not str(output.reason).startswith(PARSER_ERROR), f"{where}\n{output.reason}"
        if mutation is label_lines and not LABELLED.search(intact.data):
            assert (output.status, _given(output)) == ("ok", intact.given), f"{where}\n{output.reason}"
        elif mutation in OTHER_NUMBERS:
            assert output.status != "ok" or not (wrong := _wrong_numbers(output, intact)), f"{where}\n{wrong}"
        elif mutation not in (*UNDETECTABLE, label_lines):
            _check_exactly(mutation, intact, other, output, where)


def test_corpus_contains_every_tool(corpus: list[Intact]) -> None:
    assert {entry.tool for entry in corpus} == {*BENCHMARKS}


def test_truncated_outputs_are_not_ok(corpus: list[Intact]) -> None:
    """Truncate every output at every twentieth byte; `ok` only if all results are before that byte."""
    for intact in corpus[::6]:
        if _open_ended(intact.path) or len(intact.data) > 20_000:
            continue
        for end in range(0, len(intact.data), 20):
            output = parse_output(intact.tool, intact.data[:end], RunContext())
            if output.status == "ok":
                assert _given(output) == intact.given, f"{intact.path} cut at {end}"
