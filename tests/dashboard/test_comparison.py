"""Pages of comparisons: differences stand first."""

from __future__ import annotations

import re
from pathlib import Path


def test_differences_come_first_and_sides_of_an_event_have_names(franklin_site: Path) -> None:
    """Seed 003: reads of MPI-IO shared files with unaligned transfers changed most, by about fifty."""
    texts = [path.read_text(encoding="utf-8") for path in (franklin_site / "comparison").glob("*.html")]
    (text,) = [one for one in texts if "before and after" in one]
    assert re.findall(r'<th scope="col" class="number">(before|after)</th>', text) == ["before", "after"]
    verdicts = re.findall(r'<td class="verdict">(.*?)</td>', text)
    different = ["state good" in one or "state bad" in one for one in verdicts]
    assert different == sorted(different, reverse=True)
    assert True in different
    assert False in different
    assert "1,000,000" in re.findall(r'<td class="text">([^<]*)', text)[0]
