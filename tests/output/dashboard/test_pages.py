"""Contents of the pages, without a browser: the Franklin finding, hostile names, links, machine-readable files."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag
from xml.etree import ElementTree

import pytest

from iowatch.core import Scalar
from iowatch.output.dashboard.build import BuildOptions, build_site, format_samples
from iowatch.output.dashboard.data import collect_catalogue
from iowatch.output.dashboard.pages.session import to_readable_unit
from iowatch.store import History
from tests.builders import build_result, build_run, build_session, store_session
from tests.output.dashboard import hostile
from tests.output.dashboard.chosen_pages import pages_named

ATOM = "{http://www.w3.org/2005/Atom}"


class Page(HTMLParser):
    """Links, ids, elements and text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.scripts: list[dict[str, str | None]] = []
        self.handlers: list[str] = []
        self.words: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.links += [value for name, value in attrs if name in ("href", "src") and value]
        self.handlers += [name for name in found if name.startswith("on") or name == "style"]
        if found.get("id"):
            self.ids.add(str(found["id"]))
        if tag == "script":
            self.scripts.append(found)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def pages(site: Path) -> list[Page]:
    """All pages of a site except PyDarshan's reports."""
    return [Page(path) for path in sorted(site.rglob("*.html")) if "darshan" not in path.parts]


@pytest.fixture(params=["franklin_site", "hostile_site"])
def site(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def test_every_link_has_a_target_in_the_site(site: Path) -> None:
    known = {page.path.resolve(): page for page in pages(site)}
    for page in known.values():
        for link in page.links:
            assert not re.match(r"[a-z]+:", link, re.IGNORECASE), f"{page.path}: {link}"
            name, fragment = urldefrag(link)
            target = (page.path.parent / unquote(name)).resolve() if name else page.path.resolve()
            assert target.is_file(), f"{page.path}: {link}"
            assert target.is_relative_to(site.resolve())
            # `#outcome=below` is a state of the page, no anchor.
            if fragment and "=" not in fragment and target in known:
                assert fragment in known[target].ids, f"{page.path}: {link}"


def test_no_page_has_inline_code_or_style(site: Path) -> None:
    for page in pages(site):
        assert page.handlers == [], page.path
        assert all(s.get("src") or s.get("type") == "application/json" for s in page.scripts), page.path
        assert "style-src 'self'; script-src 'self'" in page.path.read_text(encoding="utf-8")


def test_data_in_pages_is_json(site: Path) -> None:
    found = list((site / "series").glob("*.html"))
    assert found
    for path in found:
        text = path.read_text(encoding="utf-8")
        data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
        assert data is not None
        assert json.loads(data[1])["unit"] in ("MiB/s", "s")


def test_status_page_shows_the_franklin_finding(franklin_site: Path) -> None:
    """[antypas2009]: date, size, common factor, control group, events of that day."""
    text = " ".join(" ".join(Page(franklin_site / "index.html").words).split())
    for words in ("17 Mar 2009", "MPI-IO shared file", "unaligned reads", "×51", "POSIX file per process: 5 of 6"):
        assert words in text
    assert "maintenance" in text
    assert "reconstructed from published figures" in text
    assert len((franklin_site / "index.html").read_bytes()) < 300_000
    assert "chart.js" not in (franklin_site / "index.html").read_text()


def test_finding_page_has_the_information_for_a_review(franklin_site: Path) -> None:
    text = " ".join(" ".join(Page(franklin_site / "finding/franklin-20090317-up.html").words).split())
    for words in (
        "precision 86 %",
        "asynchronous journal commit",
        "2.1UP01",
        "Stayed the same",
        "iowatch review accept",
    ):
        assert words in text
    assert text.count("Mar 2009") >= 7  # the small multiples share their axis
    assert "made for a demonstration" in text


def test_series_page_has_every_sample(franklin_site: Path, franklin_history: Path) -> None:
    import base64

    import numpy as np

    from iowatch.store import History

    with History.open(str(franklin_history)) as history:
        for row in history.series():
            text = (franklin_site / f"series/{row.id}.html").read_text(encoding="utf-8")
            data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
            stored = np.concatenate([values for _, _, values in history.samples(row.id)])
            shown = np.frombuffer(base64.b64decode(data["samples"]), "<f4")
            np.testing.assert_allclose(shown, stored, rtol=1e-6)


def test_coverage_counts_missing_results(franklin_site: Path, franklin_history: Path) -> None:
    from iowatch.store import History

    with History.open(str(franklin_history)) as history:
        newest = history.sessions("franklin", limit=1)[0]
        expected, received = history.expected(newest.uuid), set(history.received(newest.uuid))
    got = sum(item in received for item in expected)
    words = " ".join(" ".join(Page(franklin_site / "coverage/franklin.html").words).split())
    lacking = len(expected) - got
    state = f"{lacking} of {len(expected)} missing" if lacking else "complete"
    assert f"2009-04-30 22:00 franklin {state} {len(expected)} {got} 0" in words


def test_published_tables_have_curves(franklin_site: Path) -> None:
    """Tables 1 to 20 of [lawrence2017] have measurements; 15 of them over writers, all drawn."""
    text = (franklin_site / "published.html").read_text()
    for table in range(1, 21):
        assert f'id="t-lawrence2017-{table}"' in text, table


def test_findings_json_and_feed_have_the_same_findings(franklin_site: Path) -> None:
    document = json.loads((franklin_site / "findings.json").read_text())
    feed = ElementTree.parse(franklin_site / "feed.xml").getroot()
    entries = feed.findall(f"{ATOM}entry")
    assert [f["id"] for f in document["findings"]] == ["franklin-20090317-up"]
    assert len(entries) == 1
    link = entries[0].find(f"{ATOM}link")
    assert link is not None
    assert link.get("href") == document["findings"][0]["page"]
    for name in ("id", "title", "updated"):
        assert feed.findtext(f"{ATOM}{name}")
        assert entries[0].findtext(f"{ATOM}{name}")


def test_hostile_names_are_escaped(hostile_site: Path) -> None:
    for page in pages(hostile_site):
        text = page.path.read_text(encoding="utf-8")
        assert "<script>window" not in text, page.path
        assert "<img src=x" not in text, page.path
        assert "<svg onload" not in text, page.path
    assert hostile.SCRIPT in "".join(Page(hostile_site / "index.html").words)
    ElementTree.parse(hostile_site / "feed.xml")


def test_names_cannot_reverse_the_text_next_to_them(hostile_site: Path) -> None:
    """After U+202E, `0 of 2 expected results came` read `emac stluser detcepxe 2 fo 0` on the first page."""
    turning = {chr(n) for n in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
    attacked = 0
    for page in pages(hostile_site):
        text = page.path.read_text(encoding="utf-8")
        assert not turning & set(html.unescape(text)), page.path
        attacked += r"\u202e" in text
    assert attacked > 5


def test_truncated_names_are_shown_in_full_elsewhere(hostile_site: Path) -> None:
    """A name of 4 KB is truncated in headings; the full name is in the parameters of a series and below a run."""
    whole = hostile.ATTACKS[-1]
    for kind in ("series", "session"):
        found = [html.unescape(path.read_text(encoding="utf-8")) for path in (hostile_site / kind).glob("*.html")]
        long = [text for text in found if "long x<yx<y" in text]
        assert long
        assert all(f'class="long">{whole}</' in text for text in long), kind


def test_hostile_names_create_no_files_outside_the_site(hostile_site: Path) -> None:
    inside = hostile_site.resolve().parent.parent
    assert not Path("/tmp/hostile-escape").exists()
    assert {path.name for path in inside.iterdir()} <= {
        "history.db",
        "history.db-shm",
        "history.db-wal",
        "site",
        ".site.versions",
        "var",
        "output.txt",
    }
    for path in hostile_site.rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", path.name)


def test_site_of_an_empty_history_is_built(tmp_path: Path) -> None:
    with History.open(str(tmp_path / "empty.db")) as history:
        build_site(history, tmp_path / "site")
    assert "No results yet" in (tmp_path / "site/index.html").read_text()
    assert json.loads((tmp_path / "site/findings.json").read_text())["findings"] == []


def test_times_are_shown_in_the_zone_with_utc_on_hover(franklin_history: Path, tmp_path: Path) -> None:
    with History.open(str(franklin_history)) as history:
        build_site(history, tmp_path / "site", BuildOptions("America/Los_Angeles"), pages=pages_named("index.html"))
    # 30 April 2009, 22:00 UTC is 15:00 in Oakland (daylight saving time).
    hover = "2009-04-30 15:00 America/Los_Angeles, 2009-04-30T22:00:00Z (UTC)"
    assert f'title="{hover}">2009-04-30 15:00' in (tmp_path / "site/index.html").read_text()


def test_ab_runs_are_shown_but_not_monitored(history: History, tmp_path: Path) -> None:
    """They end with the comparison: as monitored series they would always be overdue."""
    case: dict[str, Scalar] = {"api": "POSIX", "ranks": 4}
    for number, added in enumerate(({}, {"ab_run": True})):
        uuid, begin = f"session-{number}", 1_700_000_000 + number * 86400
        result = build_result(100.0, case={**case, **added})
        record = build_run(result, name="ior:x", started_at=begin)
        store_session(history, build_session(uuid, suite="smoke", started_at=begin), [record], duration_s=60)
    series = collect_catalogue(history).machines[0].series
    assert {one.row.case.parameters.get("ab_run"): one.headline for one in series} == {None: True, True: False}
    build_site(history, tmp_path / "site", pages=pages_named("series"))
    assert len(list((tmp_path / "site" / "series").glob("*.html"))) == 2


@pytest.mark.parametrize(
    ("unit", "samples", "shown"),
    [
        ("s", (0.07963, 0.00009622), ("ms", (79.63, 0.09622))),
        ("s", (0.0000113, 0.000006996), ("µs", (11.3, 6.996))),
        ("s", (1.25, 0.07), ("s", (1.25, 0.07))),
        ("MiB/s", (0.01, 0.02), ("MiB/s", (0.01, 0.02))),
        ("1", (3.0, 4.0), ("", (3.0, 4.0))),
    ],
)
def test_short_times_are_shown_in_readable_units(
    unit: str, samples: tuple[float, ...], shown: tuple[str, tuple[float, ...]]
) -> None:
    """Open and close times of a real run of benchio were shown as 0.00009622 s."""
    found = to_readable_unit(unit, samples)
    assert found.unit == shown[0]
    assert found.samples == pytest.approx(shown[1])
    assert found.summary.max == pytest.approx(max(shown[1]))


@pytest.mark.parametrize("many", [1, 20, 21, 500, 501, 100_000])
def test_more_than_twenty_samples_are_collapsed_and_omissions_are_stated(many: int) -> None:
    text = format_samples([100.0 + n % 800 for n in range(many)])
    numbers = re.findall(r"\b\d{3}\b", re.sub(r"<summary>.*?</summary>|<code>.*", "", text).partition(" … of")[0])
    assert len(numbers) == min(many, 500)
    assert (f"<summary>{many - 20:,} more</summary>" in text) == (many > 20)
    assert (f"… of {many:,}" in text) == (many > 500)


def test_series_page_names_the_nodes_of_the_newest_sessions(history: History, tmp_path: Path) -> None:
    for number in range(4):
        uuid, begin = f"session-{number}", 1_700_000_000 + number * 86400
        result = build_result(100.0, case={"api": "POSIX", "nodes": 2})
        facts = {"nodes": [f"nid{n:05d}" for n in (number, number + 1)]} if number != 2 else {}
        record = build_run(result, name="ior:x", started_at=begin, facts=facts)
        store_session(history, build_session(uuid, started_at=begin), [record], duration_s=60)
    build_site(history, tmp_path / "site", BuildOptions(sessions=3), pages=pages_named("series"))
    text = (tmp_path / "site/series/1.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert data["hosts"] == ["nid[00001-00002]", None, "nid[00003-00004]"]
    assert re.findall(r"<td>(nid[^<]*|–)</td>", text) == ["nid[00003-00004]", "–", "nid[00001-00002]", "–"]
