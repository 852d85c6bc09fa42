"""ReFrame itself generates, on every system, the cases of the committed list."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from iowatch.benchmarks import suites
from iowatch.benchmarks.registry import BENCHMARKS
from tests.site import cases


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> set[cases.Case]:
    place = tmp_path_factory.mktemp("cases")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IOWATCH_VAR", str(place / "var"))
        return cases.generated(place, cases.committed())


def test_every_system_generates_the_committed_cases(generated: set[cases.Case]) -> None:
    was, now = cases.GOLDEN.read_text(encoding="utf-8").splitlines(), cases.text(generated).splitlines()
    difference = "\n".join(difflib.unified_diff(was, now, "committed", "generated", n=1, lineterm=""))
    assert not difference, f"other cases than committed; where meant: python -m tests.site.cases\n{difference}"


def test_every_case_of_every_suite_is_in_the_list(generated: set[cases.Case]) -> None:
    """A case that no environment of any system could run would not be missed otherwise."""
    wanted = {(b.name, f"{case.suite}/{case.name}") for b in BENCHMARKS for case in suites.cases_of_benchmark(b.name)}
    assert {(benchmark, entry) for benchmark, entry, _ in generated} == wanted


def test_one_system_by_itself_generates_the_same(generated: set[cases.Case], var: Path) -> None:
    """The list comes from one ReFrame for all systems; here is one as people run it."""
    alone = cases.listed(cases.ROOT / "systems" / "archer" / "reframe.py", "archer")
    assert {(*case[:2], f"archer+{case[2]}") for case in alone} == {
        case for case in generated if case[2].startswith("archer+")
    }
