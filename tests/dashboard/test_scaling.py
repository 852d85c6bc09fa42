"""The page of scaling: published curves, and results of the same system over those that say the same."""

from __future__ import annotations

import html
import re

import pytest

from iowatch.dashboard.build import build
from iowatch.model import Output, Result
from iowatch.store import History, RunRecord, SessionRecord, StackRecord

START = 1_700_000_000
SPEEDS = {"write": 10.0, "read": 1000.0}


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Text of each figure of a site whose ARCHER ran MPI-IO and NetCDF with 4 and 16 writers, by its title."""
    folder = tmp_path_factory.mktemp("scaling")
    runs = [
        _run(ranks, api, START + ranks + shift)
        for ranks in (4, 16)
        for shift, api in enumerate(("MPIIO", "NETCDF4"))
    ]
    with History.open(str(folder / "history.db")) as history:
        history.begin_session(SessionRecord("one", "archer", "nightly", "run", START), [])
        history.record_runs("one", runs)
        history.end_session("one", "ok", START + 60)
        build(history, folder / "site")
    text = (folder / "site/scaling.html").read_text(encoding="utf-8")
    sections = re.findall(r"<section.*?</section>", text, re.DOTALL)
    return {html.unescape(t[1]): s for s in sections if (t := re.search("<h3>(.*?)</h3>", s))}


def _run(ranks: int, api: str, time: int) -> RunRecord:
    case = {"api": api, "file": "shared", "ranks": ranks}
    results = tuple(Result(op, "bandwidth", "MiB/s", (v * ranks,), case) for op, v in SPEEDS.items())
    output = Output("benchio", "1", "ok", None, results)
    return RunRecord(f"{api}{ranks}", "default", StackRecord("gnu"), f"{api}{ranks}", time, output)


def test_own_curves_lie_over_published_ones_that_say_the_same(figures: dict[str, str]) -> None:
    """Source 000 prints writes: tables 1 to 6 of MPI-IO, 7 to 10 of NetCDF; the site reads, too."""
    own = {
        title: set(re.findall(r"this site: (\w+ \w+) shared", figure))
        for title, figure in figures.items()
        if title.startswith("archer: ") and "own results" not in title
    }
    mpiio = [found for title, found in own.items() if "MPI-IO" in title and "NetCDF" not in title and found]
    netcdf = [found for title, found in own.items() if "NetCDF" in title and found]
    assert mpiio
    assert netcdf
    assert all(found == {"MPIIO write"} for found in mpiio)
    assert all(found == {"NETCDF4 write"} for found in netcdf)
