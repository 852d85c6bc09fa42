"""A sample of the campaign of hostile names and files: every seventh name, all files."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults import hostile
from tests.output.dashboard.browser import Browser, unusable

SAMPLE = list(hostile.NAMES.values())[::7]


@pytest.mark.slow
def test_hostile_names_and_files_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No control, no hidden character, no formula, no script leaves iowatch; every file is one message."""
    assert len(hostile.NAMES) >= 40
    for name, value in (("IOWATCH_VAR", ""), ("IOWATCH_DB", ""), ("IOWATCH_ROOT", str(ROOT))):
        monkeypatch.setenv(name, value)  # restored after the test
    with ExitStack() as stack:
        browser = None if unusable() else stack.enter_context(Browser())
        found = hostile.campaign(SAMPLE, browser, tmp_path, 2)
    if browser is None:
        found.pop("browser")
    assert {way: faults for way, faults in found.items() if faults} == {}
