"""The cases that ReFrame generates for every system are those of the suites whose needs its environments meet.

One ReFrame process a system, with warnings as errors: IOWATCH_TEST_CASES=1.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from reframe.core.config import load_config

from iowatch import suites
from iowatch.systems import names
from iowatch.tools import TOOLS

ROOT = Path(__file__).resolve().parents[2]
_LINE = re.compile(r"^\s*- (?P<check>\w+)Check %entry=(?P<entry>.+?) /\w+ @[\w-]+:[\w-]+\+(?P<environment>\S+)")

pytestmark = pytest.mark.skipif(
    not os.environ.get("IOWATCH_TEST_CASES"), reason="a minute a system: IOWATCH_TEST_CASES=1"
)


def generated(name: str) -> set[tuple[str, str, str]]:
    """(benchmark, suite and case, environment) as ReFrame lists them."""
    reframe = Path(sys.executable).parent / "reframe"
    configuration = ROOT / "systems" / name / "reframe.py"
    words = [reframe, "-C", configuration, "--system", name, "-c", ROOT / "reframe_tests", "-R", "-lC"]
    environment = {**os.environ, "PYTHONWARNINGS": "error", "RFM_COLORIZE": "no"}
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout
    matches = filter(None, (_LINE.match(line) for line in done.stdout.splitlines()))
    return {(m["check"].lower(), m["entry"], m["environment"]) for m in matches}


def expected(name: str) -> set[tuple[str, str, str]]:
    """Every case of every suite, for every environment that has the features it needs."""
    site = load_config(str(ROOT / "systems" / name / "reframe.py"))
    site.select_subconfig(name)
    return {
        (case.benchmark, f"{case.suite}/{case.name}", environment["name"])
        for environment in site.get("environments")
        for benchmark in TOOLS
        for case in suites.of_benchmark(benchmark)
        if set(case.requires) <= set(environment.get("features", ()))
    }


@pytest.mark.parametrize("name", names())
def test_every_suite_generates_its_cases(name: str, var: Path) -> None:
    cases = expected(name)
    assert cases, "a system for which no suite has a case"
    assert generated(name) == cases
