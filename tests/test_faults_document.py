"""docs/faults.md names tests that exist."""

from __future__ import annotations

import re

from tests.conftest import ROOT


def test_every_fault_has_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "faults.md").read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(re.findall(r"\d+", row)[0]) for row in rows] == list(range(1, 33))
    for row in rows:
        named = re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)(?:::(\w+))?`", row)
        assert named, row
        for path, function in named:
            assert f"def {function}" in (ROOT / path).read_text(), (path, function)
