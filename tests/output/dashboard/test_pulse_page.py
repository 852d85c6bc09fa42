"""The page of pulses: stalls as sentences, one picture per operation, damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from iowatch.output.dashboard.build import build_site
from iowatch.pulse.store import Stall, open_store, store_path
from iowatch.store import History
from tests.output.dashboard.chosen_pages import pages_named
from tests.pulse import simulated
from tests.pulse.simulated import BASE_MS, DAY_S, START_S

NOW_S = START_S + 9 * DAY_S


def page_of(history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("IOWATCH_NOW", str(NOW_S))
    monkeypatch.setenv("IOWATCH_CLOCK_OFFSET_S", "0")
    from iowatch.core import clock

    clock.set_clock()
    build_site(history, tmp_path / "site", pages=pages_named("pulse.html"))
    return (tmp_path / "site" / "pulse.html").read_text(encoding="utf-8")


def test_page_has_stalls_and_a_picture_per_operation(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store_path("local", "login", "scratch")
    simulated.fill_store(path, np.random.default_rng(1), 9)
    with open_store(path, create=True) as store:
        store.save_stall(Stall("stat", NOW_S - 7200, NOW_S - 7200, 1_200_000, 40_000_000, "completed"))
        ended_s = NOW_S - DAY_S
        ended = Stall(
            "open", ended_s - 3600, ended_s - 3600, None, 1_400_000_000, "unfinished", "", ended_s, "usual again"
        )
        store.save_stall(ended)
    page = page_of(history, tmp_path, monkeypatch)
    assert "local: scratch from login" in page
    assert "since 10 Mar 22:00 stat takes 40 ms instead of 1.2 ms" in page
    assert "1 ended in the last 30 days" in page
    assert "from 9 Mar 23:00 to 10 Mar 00:00 open does not end within 1.4 s (1 h 0 min)" in page
    assert page.count("<figure>") == len(BASE_MS)
    # 7 days of hours; the begin of one stall that is within them, for each of two operations.
    assert page.count('class="dot c5"') >= len(BASE_MS) * 7 * 20
    assert page.count('class="mark event"') == 2


def test_damaged_file_stops_no_other(history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated.fill_store(store_path("local", "login", "scratch"), np.random.default_rng(1), 2)
    store_path("local", "login", "damaged").write_bytes(b"not a database, but as long as one" * 100)
    page = page_of(history, tmp_path, monkeypatch)
    assert "is damaged" in page
    assert "local: scratch from login" in page


def test_page_without_pulses_names_the_command(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "iowatch pulse run --system NAME" in page_of(history, tmp_path, monkeypatch)
