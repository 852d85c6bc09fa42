"""The examples of docs/plugins.md: files by name, written into the repository of a site."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import ROOT

_FILE = re.compile(r"`((?:plugins|suites)/[\w/.]+\.\w+)`[^`]*?:\n\n```\w+\n(.*?)```", re.DOTALL)
NAMES = ("plugins/dd.py", "plugins/reframe_tests/dd.py", "suites/dd/blocks.yaml", "plugins/blocks.py")
NAMES += ("plugins/templates/blocks.html", "plugins/memory_limit.py", "plugins/newest_week.py")
NAMES += ("plugins/logfile.py",)


def example_files() -> dict[str, str]:
    """Text by name of each example."""
    found = dict(_FILE.findall((ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")))
    assert tuple(found) == NAMES
    return found


def write_examples(site: Path) -> None:
    for name, text in example_files().items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
