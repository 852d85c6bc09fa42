"""The page of a series: its comparison values, and all results of detection."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

import numpy as np
import pytest

from iowatch.core import format_number
from iowatch.store import History
from tests.output.dashboard import shapes
from tests.output.dashboard.browser import Browser


@pytest.fixture(scope="module")
def pages(shapes_site: Path) -> dict[str, str]:
    """The text of each series' page by its shape."""
    found = {}
    with History.open(str(shapes_site.parent / "history.db")) as history:
        for row in history.series():
            shape = str(row.case.parameters.get("mode", "reference"))
            found[shape] = (shapes_site / f"series/{row.id}.html").read_text(encoding="utf-8")
    return found


def plotted(page: str) -> dict[str, Any]:
    """The data of the browser's plot."""
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def test_reference_and_published_figure_are_drawn_and_listed(pages: dict[str, str]) -> None:
    """4944 with bounds of -53.1 %: reference/bandwidth/archer.yaml; 4944: [lawrence2017], table 2."""
    page = pages["reference"]
    lower, value, upper = plotted(page)["reference"]
    assert (round(lower), value, upper) == (round(4944 * (1 - 0.531351)), 4944, None)
    assert plotted(page)["limits"] == {"published": 4944}
    for kind in ("band", "published"):
        assert f'class="key {kind}"' in page, kind
    assert '<a href="../published.html#t-lawrence2017-2">Lawrence et al. 2017, Table 2</a>' in page
    assert "reference of 2017" in page


def session_start(number: int) -> int:
    """Start of a session, epoch seconds."""
    return shapes.START + number * shapes.DAY_S


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_plot_data_match_the_detection(pages: dict[str, str], shape: str) -> None:
    page, data = pages[shape], plotted(pages[shape])
    kinds = [level[4] for level in data["levels"]]
    if shape == "transient":
        ((first, last),) = data["transients"]
        assert abs(first - session_start(shapes.TRANSIENT_DAYS.start)) < shapes.DAY_S
        assert abs(last - session_start(shapes.TRANSIENT_DAYS.stop - 1)) < shapes.DAY_S
        assert 'class="key transient"' in page
        assert "6 observations at ×0.5" in page
    else:
        assert data["transients"] == []
        assert 'class="key transient"' not in page
    assert kinds == {"drift": ["drift"], "suspected": ["level", "suspected"]}.get(shape, ["level"])
    for kind in kinds:
        assert f'class="key {kind}"' in page
    assert ("no change detected" in page) is (shape == "reference")


def test_drift_is_drawn_over_its_observations(pages: dict[str, str]) -> None:
    """From 4944 to half of it over the whole series (`shapes.values`)."""
    ((first, last, begin, end, _),) = plotted(pages["drift"])["levels"]
    assert last - first > 0.9 * shapes.SESSIONS * shapes.DAY_S
    assert begin == pytest.approx(4944, rel=0.06)
    assert end == pytest.approx(4944 / 2, rel=0.06)


def test_suspected_change_starts_at_its_first_observation(pages: dict[str, str]) -> None:
    _, (first, _, value, _, kind) = plotted(pages["suspected"])["levels"]
    assert kind == "suspected"
    assert abs(first - session_start(shapes.SESSIONS - 2)) < shapes.DAY_S
    assert value == pytest.approx(0.85 * 4944, rel=0.06)


def test_every_sample_links_to_its_run(shapes_site: Path, pages: dict[str, str]) -> None:
    """120 sessions, of which the newest 30 have long pages."""
    data = plotted(pages["drift"])
    runs = np.frombuffer(base64.b64decode(data["run"]), "<u4")
    sessions = np.frombuffer(base64.b64decode(data["session"]), "<u4")
    assert len(runs) == shapes.SESSIONS
    for run, session in zip(runs.tolist(), sessions.tolist(), strict=True):
        (uuid,) = data["sessions"][str(session)]
        page = (shapes_site / f"session/{uuid}.html").read_text(encoding="utf-8")
        assert f'id="run-{run}"' in page


def test_short_page_of_an_old_session_has_its_headlines(shapes_site: Path) -> None:
    page = (shapes_site / "session/archer-003.html").read_text(encoding="utf-8")
    for shape in shapes.SHAPES:
        assert f"{format_number(float(shapes.values(shape)[3]))} MiB/s" in page
    assert "iowatch history show --json archer-003" in page
    assert "Older than" not in (shapes_site / "session/archer-119.html").read_text(encoding="utf-8")


def test_suspected_change_without_finding_is_on_the_status_page(pages: dict[str, str], shapes_site: Path) -> None:
    """One of four series is at 0.85 in two sessions (`shapes.values`): no finding, but not "nothing suspected"."""
    status_page = (shapes_site / "index.html").read_text(encoding="utf-8")
    assert "nothing suspected" not in status_page
    ((page, size),) = re.findall(
        r"from previous sessions, not confirmed:[^<]*<a href=\"(series/\d+\.html)\">[^<]*</a> (−[0-9]+ %)", status_page
    )
    assert (shapes_site / page).read_text(encoding="utf-8") == pages["suspected"]
    assert size in ("−15 %", "−16 %", "−14 %")
    overview = (shapes_site / "overview/archer.html").read_text(encoding="utf-8")
    assert overview.count('data-state="suspected"') == 1


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_normal_band_is_three_times_the_noise_around_the_reference(pages: dict[str, str], shape: str) -> None:
    """The noise of `shapes.values` is 2 % and the accepted level the reference of 4944, whatever the series does."""
    ((first, last, low, high),) = plotted(pages[shape])["normal"]
    assert (first, last) == pytest.approx((session_start(0), session_start(shapes.SESSIONS - 1)), abs=shapes.DAY_S)
    assert low * high == pytest.approx(4944**2)
    assert high / low == pytest.approx(np.exp(2 * 3 * 0.02), rel=0.06)
    assert re.search(
        r'class="key normal">normal band</span>: accepted level (± \d %|−\d % to \+\d %), 3 times', pages[shape]
    )


# Layers of the main panel by form and kind: number of points, their values; pixels of the axis from top to bottom.
DRAWN = """
const chart = document.getElementById('plot').chart, layers = {};
for (const {form, kind, points} of chart.drawn[0].layers) layers[`${form} ${kind}`] = points.filter(Boolean);
const box = (one) => { const {y, height} = one.getBBox(); return [y, y + height]; };
const path = (kind) => { const found = document.querySelector(`.surface path.${kind}`); return found && box(found); };
const panel = document.querySelector('.surface svg svg').viewBox.baseVal;
return [layers, path('reference'), path('published'), [panel.y, panel.y + panel.height]];
"""


@pytest.mark.browser
@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_browser_draws_the_detection(shapes_site: Path, pages: dict[str, str], browser: Browser, shape: str) -> None:
    """A ring around each observation of a transient, a line per level, the reference with its bounds in the panel."""
    (path,) = [path for path in (shapes_site / "series").glob("*.html") if path.read_text() == pages[shape]]
    browser.open(path)
    browser.wait("return document.documentElement.dataset.drawn === 'yes'")
    layers, reference, published, (top, bottom) = browser.run(DRAWN)
    data = plotted(pages[shape])
    assert len(layers["line headline"]) == shapes.SESSIONS
    # 120 sessions are 9 pixels apart: every sample is a dot.
    assert len(layers["dots sample"]) == 3 * shapes.SESSIONS
    assert len(layers.get("rings away", [])) == (len(shapes.TRANSIENT_DAYS) if shape == "transient" else 0)
    for kind in ("level", "drift", "suspected"):
        expected = [
            [at, value] for a, b, begin, end, k in data["levels"] if k == kind for at, value in ((a, begin), (b, end))
        ]
        assert layers.get(f"line {kind}", []) == expected
    assert len(layers["areas normal"]) == len(data["normal"])
    lower, value, _ = data["reference"]
    assert layers["rules reference"] == [[value]]
    assert layers["areas band"][0][1] == lower
    # Also above all samples, as of the drift's end, the reference is inside the panel.
    assert top < reference[0] <= reference[1] < bottom
    assert published == reference


def test_bandwidth_per_rank_and_harmonic_mean(franklin_site: Path, franklin_history: Path) -> None:
    """S3D writes with 512 ranks; times have no value per rank; other programs have no harmonic mean."""
    with History.open(str(franklin_history)) as history:
        for row in history.series():
            page = (franklin_site / f"series/{row.id}.html").read_text(encoding="utf-8")
            samples = history.samples(row.id)[-1][2]
            ranks = row.case.parameters["ranks"]
            shown = re.search(r"<strong>(\S+)</strong> MiB/s <span>per rank, of (\d+) ranks", page)
            if row.metric == "time":
                assert shown is None
            else:
                assert shown is not None
                assert (shown[1], int(shown[2])) == (format_number(max(samples) / int(ranks)), ranks)
            mean = re.search(r"<strong>(\S+)</strong> MiB/s <span>harmonic mean", page)
            assert (mean is not None) is (row.case.benchmark == "s3d")
            if mean is not None:
                assert mean[1].replace(",", "") == format_number(harmonic_mean(samples))
