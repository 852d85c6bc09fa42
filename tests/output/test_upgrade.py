"""`iowatch upgrade` on the history of an older version (tests/data/PROVENANCE.md), in a site with plugins.

The history has a year of Edison, and sessions of `tiny` and of the site's own suite `blocks`, run by the version with
schema 0100 and detector levels-9.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from sqlalchemy import create_engine, text

from iowatch.core import InputError, plugins, settings
from iowatch.core.settings import RENAMED, Renamed
from iowatch.findings import Finding, detection_version, load_findings, update_findings
from iowatch.output.dashboard.build import build_site
from iowatch.output.upgrade import SECTIONS, UpgradeItem, check_upgrade, compare_findings
from iowatch.store import History, engine, maintenance
from tests.conftest import ROOT
from tests.plugins.examples import write_examples

Cli = Callable[..., Result]
pytestmark = pytest.mark.sqlite_file


@pytest.fixture(scope="session")
def old_content() -> bytes:
    return lzma.decompress((ROOT / "tests" / "data" / "history-0100.db.xz").read_bytes())


@pytest.fixture
def old(old_content: bytes, tmp_path: Path) -> Path:
    """The history of the older version, alone in a directory."""
    path = tmp_path / "history" / "iowatch.db"
    path.parent.mkdir()
    path.write_bytes(old_content)
    return path


@pytest.fixture
def small(old: Path) -> Path:
    """The same without the year of Edison, whose detection takes seconds."""
    with closing(sqlite3.connect(old)) as connection:
        edison = "(SELECT id FROM system WHERE name = 'edison')"
        runs = f"(SELECT id FROM run WHERE session_id IN (SELECT id FROM session WHERE system_id IN {edison}))"
        for table in ("result", "artefact"):
            connection.execute(f"DELETE FROM {table} WHERE run_id IN {runs}")
        series = f"(SELECT id FROM series WHERE system_id IN {edison})"
        connection.execute(f"DELETE FROM detection WHERE series_id IN {series}")
        connection.execute(f"DELETE FROM run WHERE id IN {runs}")
        for table in ("finding", "series", "session"):
            connection.execute(f"DELETE FROM {table} WHERE system_id IN {edison}")
        connection.execute("DELETE FROM system WHERE name = 'edison'")
        connection.commit()
    return old


@pytest.fixture
def site(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The repository of the site: its benchmark, suite, metric and page, and a file for cron."""
    place = tmp_path / "site"
    for folder in (place, place / "plugins", place / "ci"):
        folder.mkdir()
        folder.chmod(0o755)
    (place / "site.yaml").write_text("title: Ours\n")
    write_examples(place)
    monkeypatch.chdir(place)
    monkeypatch.delenv("IOWATCH_SITE", raising=False)
    plugins.forget_plugins()
    yield place
    plugins.forget_plugins()


def check(place: Path, old: Path | None = None) -> dict[str, list[UpgradeItem]]:
    report = check_upgrade(str(place), old, lambda _text: None)
    return {name: [item for item in report.items if item.section == name] for name in SECTIONS}


def revision(place: Path) -> str:
    with closing(sqlite3.connect(place)) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def needed(place: Path) -> dict[str, Finding]:
    with History.existing(str(place)) as history:
        return {one.id: one for one in load_findings(history, "edison") if one.needs_action}


def test_year_of_an_older_version_is_checked_and_then_upgraded(site: Path, old: Path, cli: Cli, tmp_path: Path) -> None:
    digest = hashlib.sha256(old.read_bytes()).hexdigest()
    checked = cli("upgrade", "--check", "--db", old, "--json")
    assert (hashlib.sha256(old.read_bytes()).hexdigest(), [*old.parent.iterdir()]) == (digest, [old])
    report: dict[str, Any] = json.loads(checked.stdout)
    assert checked.exit_code == report["needs_person"]
    (schema,) = report["schema"]
    assert (schema["found"], schema["migrations"][0][:5], schema["size_bytes"]) == ("0100", "0101:", old.stat().st_size)
    assert [(one["system"], one["found"], one["now"]) for one in report["detector"]] == [
        (name, ["levels-9/3"], detection_version(name)) for name in ("edison", "local")
    ]
    assert [one for one in report["suites"] if one["suite"] == "blocks"] == []
    assert report["refused"] == report["renamed"] == report["replaced"] == []

    # The upgrade itself must do what the report says.
    reported = {one["id"]: one["change"] for one in report["findings"]}
    copy = tmp_path / "opened.db"
    copy.write_bytes(old.read_bytes())
    before = needed(copy)  # opening it migrates it, and detects nothing
    with History.existing(str(old)) as history:
        for system in history.systems():
            update_findings(history, system, report=False)
    after = {name for name, one in needed(old).items() if one.missed_since is None}
    assert {name for name, one in before.items() if one.missed_since is None} - after == {
        name for name, change in reported.items() if change == "vanishes"
    }
    assert after - set(before) == {name for name, change in reported.items() if change == "appears"}


def test_suite_with_other_cases_ends_and_starts_series(site: Path, small: Path) -> None:
    assert check(small)["suites"] == []
    suite = site / "suites" / "dd" / "blocks.yaml"
    suite.write_text(suite.read_text().replace("[64k, 1m]", "[128k, 1m]").replace("total: 4m", "total: 8m"))
    found = {item.facts["change"]: item for item in check(small)["suites"]}
    assert {change: item.facts["rows"] for change, item in found.items()} == {
        "results end": ["dd:block=64k"],
        "cases start": ["dd:block=128k"],
        "command lines change": ["dd:block=1m"],  # 8 blocks, and no longer 4
    }
    assert [change for change, item in found.items() if item.needs_person] == ["results end", "command lines change"]
    suite.unlink()
    (removed,) = check(small)["suites"]
    assert removed.facts["rows"] == ["dd:block=64k", "dd:block=1m"]


def test_benchmark_without_a_metric_ends_its_results(site: Path, small: Path) -> None:
    plugin = site / "plugins" / "dd.py"
    plugin.write_text(
        plugin.read_text().replace('(("write", "bandwidth"), ("write", BLOCK_TIME.name))', '(("write", "bandwidth"),)')
    )
    (ended,) = check(small)["suites"]
    assert ended.facts["rows"] == ["dd:block=64k write block_time", "dd:block=1m write block_time"]


def test_renamed_names_are_found_where_they_are(site: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Renamed("environment", "SITE_OLD", "SITE_NEW", "9"), Renamed("site.yaml", "heading", "title", "9")]
    rows += [Renamed("system", "night.budget", "night.hours", "9"), Renamed("command", "--old", "--new", "9")]
    monkeypatch.setattr(settings, "RENAMED", (*RENAMED, *rows))
    (site / "site.yaml").write_text("title: Ours\nheading: x\n")
    (site / "systems" / "ours").mkdir(parents=True)
    (site / "systems" / "ours" / "system.yaml").write_text("name: ours\nnight:\n  budget: 3h\n")
    (site / "ci" / "iowatch.cron").write_text(
        "# once: ci/nightly --old\n17 2 * * * iowatch cd /srv && /srv/iowatch/ci/nightly --old 3 --older 4\n"
    )
    monkeypatch.setenv("SITE_OLD", "1")
    monkeypatch.setattr(settings, "site_settings", lambda: settings.SiteSettings())  # `heading` is refused elsewhere
    found = [(item.facts["where"].removeprefix(f"{site}/"), item.facts["new"]) for item in check(small)["renamed"]]
    assert found == [
        ("ci/iowatch.cron:2", "iowatch nightly"),
        ("environment", "SITE_NEW"),
        ("site.yaml:2:1", "title"),
        ("systems/ours/system.yaml:3:3", "night.hours"),
        ("ci/iowatch.cron:2", "--new"),
    ]


def test_files_that_this_version_cannot_read_are_listed(site: Path, small: Path) -> None:
    (site / "systems" / "ours").mkdir(parents=True)
    (site / "systems" / "ours" / "system.yaml").write_text("name: ours\ntitel: Ours\n")
    (site / "suites" / "ior").mkdir(parents=True)
    (site / "suites" / "ior" / "ours.yaml").write_text("format: 1\nsummary: x\nmatrix:\n  - {aip: posix}\n")
    (site / "plugins" / "wrong.py").write_text("1 / 0\n")
    found = check(small)["refused"]
    assert [re.sub(r".*/site/([\w/.]+).*", r"\1", item.text, flags=re.DOTALL) for item in found] == [
        "systems/ours/system.yaml",
        "suites/ior/ours.yaml",
        "plugins/wrong.py",
    ]
    assert all(item.needs_person for item in found)


def test_replaced_files_are_compared_with_the_old_installation(site: Path, small: Path, tmp_path: Path) -> None:
    name = "benchmarks/ior/suites/nightly.yaml"
    (site / "suites" / "ior").mkdir(parents=True)
    (site / "suites" / "ior" / "nightly.yaml").write_text((ROOT / name).read_text())
    (unknown,) = check(small)["replaced"]
    assert (unknown.facts["changed"], unknown.needs_person) == (None, False)
    environment = tmp_path / "old"
    package = environment / "lib" / "python3.11" / "site-packages" / "iowatch" / "data"
    (package / "systems").mkdir(parents=True)
    (package / name).parent.mkdir(parents=True)
    (new,) = check(small, environment)["replaced"]
    (package / name).write_text((ROOT / name).read_text())
    assert check(small, environment)["replaced"] == []
    (package / name).write_text("format: 1\n")
    (changed,) = check(small, environment)["replaced"]
    assert [item.facts["changed"] for item in (new, changed)] == ["is new in this version", "has changed"]
    assert changed.text == f"suites/ior/nightly.yaml replaces {name}, which has changed"


def test_findings_that_appear_vanish_and_change(old: Path) -> None:
    one = next(iter(needed(old).values()))
    other = replace(one, id="other")
    resolved = replace(one, state="resolved", resolution="not confirmed")
    missed = replace(one, missed_since=1)

    def changes(before: list[Finding], after: list[Finding]) -> list[tuple[str, str]]:
        return [(item.facts["id"], item.facts["change"]) for item in compare_findings(before, after)]

    assert changes([one], [one]) == []
    assert changes([resolved], [resolved]) == []
    assert changes([], [other]) == [("other", "appears")]
    assert changes([resolved], [one]) == [(one.id, "appears")]
    for after in ([], [resolved], [missed]):
        assert changes([one], after) == [(one.id, "vanishes")]
    assert changes([missed], [missed]) == []  # the old version had not detected it any more either
    (item,) = compare_findings([one], [replace(one, date="2017-01-01", members=one.members[:-1])])
    assert item.facts["details"] == [
        f"date {one.date} becomes 2017-01-01", f"1 of {len(one.members)} series leave, 0 join",
    ]  # fmt: skip


def test_history_of_a_server_is_copied_at_its_own_schema(small: Path, postgresql_url: str, tmp_path: Path) -> None:
    """A server with schema 0100: that of a new one without what the later revision added."""
    with History.existing(str(small)) as left, History.open(postgresql_url) as right:
        copied = maintenance.copy_history(left, right)
    server = create_engine(engine.database_url(postgresql_url))
    with server.begin() as connection:
        connection.execute(text("DROP TABLE run_covariates"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0100'"))
    snapshot = maintenance.snapshot_history(postgresql_url, tmp_path / "copy.db")
    with server.connect() as connection:
        assert engine.schema_revision(connection) == "0100"
    server.dispose()
    assert (snapshot.revision, len(snapshot.migrations)) == ("0100", 2)
    with History.existing(str(tmp_path / "copy.db")) as history, History.existing(str(small)) as source:
        found = maintenance.check_history(history)
        assert (found.sessions, found.runs, found.results) == (copied.sessions, copied.runs, copied.results)
        assert [fault for fault in found.faults if "artefact" not in fault] == []
        one = history.series()[0]
        (same,) = [
            row for row in source.series() if (row.case, row.stack, row.metric) == (one.case, one.stack, one.metric)
        ]
        assert history.points([one.id])[one.id].max.tolist() == source.points([same.id])[same.id].max.tolist()


def test_histories_of_other_schemas_are_refused_or_absent(site: Path, small: Path, cli: Cli) -> None:
    with closing(sqlite3.connect(small)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(InputError, match="schema version 9999"):
        check(small)
    refused = cli("upgrade", "--check", "--db", small)
    assert (refused.exit_code, "Use the newer iowatch" in refused.stderr) == (2, True)
    absent = cli("upgrade", "--check", "--db", small.with_name("absent.db"))
    assert (absent.exit_code, "there is no history" in absent.stdout) == (0, True)
    assert cli("upgrade", "--check", "--from", site).exit_code == 2


def test_upgraded_history_needs_nobody_and_is_on_the_page_of_the_site(
    site: Path, small: Path, cli: Cli, tmp_path: Path
) -> None:
    assert cli("upgrade", "--db", small).exit_code == 0
    assert revision(small) == engine.SCHEMA_HEAD
    done = cli("upgrade", "--check", "--db", small)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0].endswith(": nothing must be done.")
    assert f"schema {engine.SCHEMA_HEAD}" in done.stdout
    assert "levels-9" not in done.stdout
    with History.existing(str(small)) as history:
        build_site(history, tmp_path / "pages")
    assert (tmp_path / "pages" / "blocks.html").read_text().count("2 results") == 4
