"""The spool: a case is complete or absent, and cannot leave its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch import checks
from iowatch.checks import spool
from iowatch.core import InputError
from tests.builders import build_output, build_result, build_spooled_case


def case(name: str = "benchio:api=posix") -> checks.SpooledCase:
    output = build_output(build_result(1.5, 2.5, case={"ranks": 4}), tool="benchio")
    return build_spooled_case(name=name, stack_document={"name": "gnu"}, started_at=1000, wall_s=1.5, output=output)


def test_spooled_case_is_read_back(tmp_path: Path) -> None:
    stdout = tmp_path / "rfm.out"
    stdout.write_text("hello")
    place = checks.spool_case(tmp_path / "s", case(), {"stdout": [stdout], "stderr": [tmp_path / "absent"]})
    assert checks.finished_case_directories(tmp_path / "s") == [place]
    read_case = checks.read_spooled_case(place)
    assert read_case.files == {"stdout": ["rfm.out"]}
    assert (place / "rfm.out").read_text() == "hello"
    assert checks.spooled_output(read_case).results[0].samples == (1.5, 2.5)


def test_case_without_its_last_file_is_not_finished(tmp_path: Path) -> None:
    place = checks.spool_case(tmp_path, case(), {})
    (place / "case.json").rename(place / ".case.json.123")  # the state after a kill during writing
    assert checks.finished_case_directories(tmp_path) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", "\u202e", "x" * 5000, "<script>"])
def test_any_case_name_stays_in_the_spool(tmp_path: Path, name: str) -> None:
    place = checks.spool_case(tmp_path / "s", case(name), {})
    assert place.parent == tmp_path / "s" / "cases"
    assert checks.read_spooled_case(place).name == name


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": 99}', '{"format": 1, "x": 2}'])
def test_damaged_case_is_reported(tmp_path: Path, content: str) -> None:
    place = checks.spool_case(tmp_path, case(), {})
    (place / "case.json").write_text(content)
    with pytest.raises(InputError, match=r"case\.json"):
        checks.read_spooled_case(place)


def test_aborted_removal_leaves_no_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = tmp_path / "rfm.out"
    stdout.write_text("hello")
    places = [checks.spool_case(tmp_path, case(name), {"stdout": [stdout]}) for name in ("one", "two")]
    checks.remove_spooled_case(places[0])
    assert checks.finished_case_directories(tmp_path) == [places[1]]
    assert not places[0].exists()
    monkeypatch.setattr(spool.shutil, "rmtree", lambda *_, **__: None)  # the process is killed here
    checks.remove_spooled_case(places[1])
    assert checks.finished_case_directories(tmp_path) == []
