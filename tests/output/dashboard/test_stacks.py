"""The stacks page: every stack of every partition, with hashes, and its changes with dates."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from iowatch.output.dashboard.build import build_site
from iowatch.site.stack.records import StackPart
from iowatch.store import History, StackRecord
from tests.builders import build_result, build_run, build_session, build_stack
from tests.output.dashboard.chosen_pages import pages_named

DAY_S = 86400
START = 1_700_000_000  # 14 November 2023


def _stack(hdf5: str, digest: str) -> StackRecord:
    parts = (
        StackPart("hdf5", hdf5, hash=f"{digest * 8}", compiler="gcc@12"),
        StackPart("openmpi", "4.1.6", hash="m" * 32),
        StackPart("zlib", "1.3", hash=f"z{digest * 4}"),
    )
    return StackRecord("prod", build_stack(*parts, name="prod", system="x").to_json())


def _build_page(place: Path, sessions: Sequence[tuple[str, StackRecord]]) -> str:
    """The page of a history with one session a day, each on a partition with a stack."""
    with History.open(str(place / "history.db")) as history:
        for number, (partition, stack) in enumerate(sessions):
            begin = START + number * DAY_S
            history.begin_session(build_session(f"s{number}", system="x", started_at=begin), [])
            result = build_result(100.0, case={"api": "POSIX"})
            history.record_runs(
                f"s{number}", [build_run(result, name="ior", partition=partition, stack=stack, started_at=begin)]
            )
            history.end_session(f"s{number}", "ok", begin + 60)
        build_site(history, place / "site", pages=pages_named("stacks.html"))
    return html.unescape((place / "site/stacks.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`prod` on two partitions with different HDF5; on `gpu` its HDF5 changed with the third session."""
    sessions = [
        ("cpu", _stack("1.14.3", "aaaa")),
        ("gpu", _stack("1.10.8", "bbbb")),
        ("gpu", _stack("1.12.2", "cccc")),
        ("cpu", _stack("1.14.3", "aaaa")),
    ]
    return _build_page(tmp_path_factory.mktemp("stacks"), sessions)


def test_stack_that_was_taken_back_is_the_current_one(tmp_path: Path) -> None:
    """The newest session ran with the HDF5 of the first one again."""
    page = _build_page(tmp_path, [("gpu", _stack(hdf5, hdf5[-1] * 4)) for hdf5 in ("1.10.8", "1.12.2", "1.10.8")])
    assert re.search(r'<th scope="row">hdf5</th><td>1\.10\.8 <code class="soft" title="8{32}">', page)
    assert "<td>1.12.2 " not in page


def test_stacks_of_the_same_name_on_two_partitions_are_listed(page: str) -> None:
    assert re.findall(r"<tr><td>prod</td><td>(\w+)</td><td>(\w+)</td>", page) == [("cpu", "spack"), ("gpu", "spack")]
    assert re.findall(r'<th scope="col">(prod.*?)</th>', page) == ["prod on cpu", "prod on gpu"]
    assert re.search(r"hdf5 <strong[^>]*>≠</strong></th><td>1\.14\.3 .*?<td>1\.12\.2 ", page)


def test_hashes_are_shown_and_rebuilds_are_marked(page: str) -> None:
    assert f'<code class="soft" title="{"a" * 32}">/aaaaaaa</code><br><span class="soft">gcc@12</span>' in page
    assert re.search(r"zlib <strong[^>]*>≈</strong>", page)
    assert re.search(r'<th scope="row">openmpi</th>', page)


def test_stack_changes_are_listed_with_dates(page: str) -> None:
    changes = page.partition("<h3>")[2]
    text = " ".join(re.sub(r"<[^>]+>", "", changes.replace("<li>", " ")).split())
    assert text.startswith("prod on gpu changed on 16 Nov 2023 Last run before it on 15 Nov 2023; content ")
    assert "hdf5 version: 1.10.8 → 1.12.2" in text
    assert "Built anew with the same version: zlib" in text
    assert changes.count("<h3>") == 0
