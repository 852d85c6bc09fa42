"""`iowatch init`: the repository of a site, and what commands read and write in it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core.settings import KINDS, environment_settings, settings_model
from iowatch.core.yamlfile import YamlDocument
from iowatch.reference import events
from tests.conftest import ROOT

Cli = Callable[..., Result]


@pytest.fixture
def site(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new repository of a site as working directory."""
    for row in environment_settings():
        monkeypatch.delenv(row.variable, raising=False)
    place = tmp_path / "our-site"
    done = cli("init", place, "--title", 'Our "I/O"', "--timezone", "Europe/Berlin")
    assert done.exit_code == 0, done.output
    monkeypatch.chdir(place)
    return place


def test_new_site_has_all_folders_and_valid_settings(site: Path) -> None:
    stated = YamlDocument(site / "site.yaml").validated(settings_model())
    assert (stated.title, stated.timezone) == ('Our "I/O"', "Europe/Berlin")
    folders = {kind.site.partition("/*")[0] for kind in KINDS.values() if "/" in kind.site} - {"reference/published"}
    assert {folder for folder in folders if not (site / folder).is_dir()} == set()
    assert f"cd {site} && " in (site / "ci/iowatch.cron").read_text()


def test_every_setting_of_the_comments_is_valid(site: Path) -> None:
    """Uncommented, the examples of site.yaml are settings; of two alternatives the last one counts."""
    lines = [line for line in (site / "site.yaml").read_text().splitlines() if line]
    keys = {line.removeprefix("# ").partition(":")[0] for line in lines if line.removeprefix("# ")[0].islower()}
    assert {key for key in keys if " " not in key} >= set(settings_model().model_fields) - {"title", "timezone"}


def test_git_keeps_everything_but_what_runs_write(site: Path) -> None:
    (site / "var").mkdir()
    (site / "var/iowatch.db").touch()
    subprocess.run(["git", "init", "-q", "."], check=True)
    listed = subprocess.run(["git", "status", "--short", "-uall"], check=True, capture_output=True, text=True).stdout
    assert "site.yaml" in listed
    assert "events/.gitkeep" in listed
    assert "var/" not in listed


@pytest.mark.parametrize(
    ("existing", "fault"), [("site.yaml", "already"), ("other.txt", "not empty"), ("with blank", "blank in its path")]
)
def test_directory_that_is_in_use_is_refused(tmp_path: Path, cli: Cli, existing: str, fault: str) -> None:
    place = tmp_path / existing if " " in existing else tmp_path
    if " " not in existing:
        (tmp_path / existing).touch()
    done = cli("init", place)
    assert (done.exit_code, fault in done.stderr) == (2, True), done.output
    assert not (place / "ci").exists()


def test_commands_write_to_the_site_and_read_both(site: Path, cli: Cli) -> None:
    assert (
        cli("event", "add", "new disks", "--system", "franklin", "--kind", "hardware", "--date", "2009-05-01").exit_code
        == 0
    )
    assert (site / "events/franklin.yaml").is_file()
    titles = [event.title for event in events.load_events("franklin")]
    published = (ROOT / "reference/events/franklin.yaml").read_text()
    assert "new disks" in titles
    assert len(titles) > 1
    assert all(title in published for title in titles if title != "new disks")
    suite = ROOT / "benchmarks/benchio/suites/smoke.yaml"
    (site / "suites/benchio").mkdir()
    (site / "suites/benchio/smoke.yaml").write_bytes(suite.read_bytes())
    report = json.loads(cli("doctor", "--json").stdout)
    assert report["overridden"] == ["suites/benchio/smoke.yaml"]
    places = json.loads(cli("config", "--json").stdout)
    assert (places["site"], places["product"]) == (str(site), str(ROOT))


def test_stack_of_the_site_is_one_of_every_system(site: Path, cli: Cli) -> None:
    (site / "stacks/ours").mkdir()
    (site / "stacks/ours/modules.yaml").write_text("modules: [absent/1]\n")
    found = json.loads(cli("stack", "list", "--system", "local", "--json").stdout)["stacks"]
    assert "ours" in [stack["name"] for stack in found]
    assert "reference" in [stack["name"] for stack in found]


def test_nightly_gives_the_settings_of_the_site_to_its_script(
    site: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "site.yaml").write_text("keep_days: 400\nkeep_size: 50g\nvar: data\n")
    called: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr("os.execvpe", lambda file, words, environment: called.append((words, environment)))
    cli("nightly", "--system", "mycluster", "--no-jitter")
    ((words, environment),) = called
    assert words == ["bash", str(ROOT / "ci/nightly"), "--no-jitter", "--system", "mycluster"]
    given = [environment[f"IOWATCH_{name}"] for name in ("SITE", "VAR", "KEEP_DAYS", "KEEP_SIZE")]
    assert given == [str(site), str(site / "data"), "400", "50g"]


def test_files_for_schedulers_get_the_name_of_the_first_system(site: Path, cli: Cli) -> None:
    """Until then they have a placeholder, which is refused: `--system local` measured the disk of the login node."""
    named = [path for path in (site / "ci").iterdir() if "--system SYSTEM" in path.read_text()]
    assert {path.name for path in named} == {
        *("iowatch.cron", "iowatch.service", "scrontab", "gitlab-ci.yml", "github-workflow.yml"),
        *("iowatch-pulse.cron", "iowatch-pulse.service"),
    }
    assert not [path for path in (site / "ci").iterdir() if "--system local" in path.read_text()]
    refused = cli("run", "--system", "SYSTEM")
    assert (refused.exit_code, "'SYSTEM' is the placeholder of files for schedulers" in refused.stderr) == (2, True)
    words = ("--scheduler", "local", "--no-input", "--json")
    written = json.loads(cli("system", "init", "mycluster", *words).stdout)
    assert sorted(written["recipes"]) == sorted(str(path) for path in named)
    for path in named:
        options = "" if path.name.startswith("iowatch-pulse") else " --suite nightly"
        assert f"--system mycluster{options}" in path.read_text()
    # A second system changes nothing: whoever measures it writes a line of its own.
    assert json.loads(cli("system", "init", "other", *words).stdout)["recipes"] == []
    assert all("--system other" not in path.read_text() for path in named)
