"""Settings and places: precedence, the nearest site.yaml, files of the site before those of the product."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iowatch.core import InputError, MachineError, UsageError, roots, settings
from iowatch.core.settings import environment_settings, settings_model
from tests.conftest import ROOT


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of a site as working directory, without variables of the environment."""
    for row in environment_settings():
        monkeypatch.delenv(row.variable, raising=False)
    place = tmp_path / "site"
    place.mkdir()
    (place / "site.yaml").write_text("title: Our I/O\n")
    monkeypatch.chdir(place)
    return place


def _origin(name: str) -> tuple[object, str]:
    found = next(row for row in settings.effective_settings() if row.name == name)
    return found.value, found.origin


def test_environment_precedes_file_precedes_default(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _origin("keep_days") == (None, "default")
    (site / "site.yaml").write_text("title: Our I/O\nkeep_days: 400\n")
    assert _origin("keep_days") == (400, f"{site}/site.yaml:2:1")
    monkeypatch.setenv("IOWATCH_KEEP_DAYS", "30")
    assert _origin("keep_days") == (30, "IOWATCH_KEEP_DAYS")
    monkeypatch.setenv("IOWATCH_KEEP_DAYS", "")  # set but empty is not set
    assert _origin("keep_days") == (400, f"{site}/site.yaml:2:1")


def test_every_field_has_a_description_and_every_variable_a_field_or_one() -> None:
    assert all(field.description for field in settings_model().model_fields.values())
    assert all(row.description or row.field in settings_model().model_fields for row in environment_settings())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("tittle: x\n", r"site.yaml:1:1: .*'tittle'.*'title'"),
        ("keep_days: soon\n", r"site.yaml:1:\d+: .*keep_days"),
        ("darshan_privacy: hashed\n", r"site.yaml:1:\d+: .*'keep', 'hash' or 'drop'"),
        ("thresholds: {suspected_probability: 1.5}\n", r"site.yaml:1:\d+: .*suspected_probability"),
        # No probability after one to three sessions reaches it (_SUREST of statistics/panel.py is 0.92).
        ("thresholds: {suspected_probability: 1.0}\n", r"site.yaml:1:\d+: .*suspected_probability"),
    ],
)
def test_invalid_file_is_refused_with_its_line(site: Path, text: str, fault: str) -> None:
    (site / "site.yaml").write_text(text)
    with pytest.raises(InputError) as raised:
        settings.site_settings()
    assert re.search(fault, str(raised.value)), raised.value


def test_invalid_variable_is_refused_with_its_name(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOWATCH_KEEP_DAYS", "-1")
    with pytest.raises(UsageError, match="IOWATCH_KEEP_DAYS is '-1'"):
        settings.site_settings()


def test_password_of_the_database_is_not_shown(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOWATCH_DB", "postgresql://me:secret@db/iowatch")
    assert _origin("database") == ("postgresql://me:***@db/iowatch", "IOWATCH_DB")


def test_paths_of_the_file_start_at_its_directory(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "site.yaml").write_text("var: data\ndatabase: ../history.db\n")
    (site / "systems").mkdir()
    monkeypatch.chdir(site / "systems")
    assert settings.site_root() == site
    assert settings.var_directory() == site / "data"
    assert Path(settings.database_place()) == site / "../history.db"


def test_site_is_the_variable_then_the_nearest_file_then_the_clone(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = site / "inner"
    inner.mkdir()
    (inner / "site.yaml").touch()
    monkeypatch.chdir(inner)
    assert settings.site_root() == inner
    monkeypatch.setenv("IOWATCH_SITE", str(site))
    assert settings.site_root() == site
    monkeypatch.setenv("IOWATCH_SITE", str(site / "absent"))
    with pytest.raises(UsageError, match="not a directory"):
        settings.site_root()
    monkeypatch.delenv("IOWATCH_SITE")
    monkeypatch.chdir(tmp_path)
    assert settings.site_root() == ROOT


def test_installed_product_without_a_site_keeps_files_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XDG Base Directory Specification: data of a user are in XDG_DATA_HOME, by default ~/.local/share."""
    for row in environment_settings():
        monkeypatch.delenv(row.variable, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(roots, "is_clone", lambda: False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert settings.var_directory() == tmp_path / "home/.local/share/iowatch/var"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert settings.site_root() == tmp_path / "data/iowatch"


def test_root_that_is_not_a_clone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOWATCH_ROOT", str(tmp_path))
    with pytest.raises(MachineError, match="IOWATCH_ROOT"):
        settings.product_root()


def test_file_of_the_site_replaces_that_of_the_product(site: Path) -> None:
    product = settings.list_files("suite")
    assert product[("benchio", "smoke")] == ROOT / "benchmarks/benchio/suites/smoke.yaml"
    for name in ("smoke", "ours"):
        (site / "suites/benchio").mkdir(parents=True, exist_ok=True)
        (site / f"suites/benchio/{name}.yaml").touch()
    found = settings.list_files("suite")
    assert found.keys() - product.keys() == {("benchio", "ours")}
    assert (
        found[("benchio", "smoke")]
        == site / "suites/benchio/smoke.yaml"
        == settings.find_file("suite", "benchio", "smoke")
    )
    assert settings.overridden_files() == [
        settings.OverriddenFile(found[("benchio", "smoke")], product[("benchio", "smoke")])
    ]


def test_what_people_write_goes_to_the_site(site: Path) -> None:
    assert settings.site_file("events", "franklin") == site / "events/franklin.yaml"
    assert settings.find_file("events", "franklin") == ROOT / "reference/events/franklin.yaml"
    assert settings.site_file("reviews", "a/b") == site / "reviews/a%2Fb.yaml"


def test_clone_keeps_its_layout(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert settings.site_file("events", "local") == ROOT / "reference/events/local.yaml"
    assert settings.overridden_files() == []


def test_site_that_others_can_write_is_not_used(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a `site.yaml` in /tmp: git refuses such a parent directory, too (safe.directory)."""
    site.chmod(0o1777)
    with pytest.raises(UsageError, match="is not used"):
        settings.var_directory()
    monkeypatch.setenv("IOWATCH_TRUSTED_SITE", str(site))
    assert settings.var_directory() == site / "var"
    monkeypatch.delenv("IOWATCH_TRUSTED_SITE")
    monkeypatch.setenv("IOWATCH_SITE", str(site))
    assert settings.var_directory() == site / "var"
