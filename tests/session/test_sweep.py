"""`iowatch history prune --days` removes ReFrame's files of old sessions."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result


@pytest.mark.usefixtures("history")
def test_prune_removes_only_logs_of_old_closed_sessions(var: Path, cli: Callable[..., Result]) -> None:
    old, new, running = (var / "runs" / name for name in ("old", "new", "going-on"))
    for place in (old, new, running):
        place.mkdir(parents=True)
        (place / "reframe.log").write_text("said")
    for place, days in ((old, 100), (new, 10)):
        (place / "ended").touch()
        os.utime(place / "ended", (time.time() - days * 86400,) * 2)
    assert json.loads(cli("history", "prune", "--days", 30, "--dry-run", "--json").stdout)["sessions"] == ["old"]
    assert cli("history", "prune", "--days", 30).exit_code == 0
    assert [place.exists() for place in (old, new, running)] == [False, True, True]
