"""The example of docs/plugins.md: an extension of a site changes the jobs of the checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iowatch.checks import EXTENSIONS, JobScript, RunOrder
from iowatch.checks.job import compose_job
from iowatch.core import plugins
from tests.builders import build_checked_run
from tests.plugins.examples import example_files


@pytest.fixture
def site(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The repository of a site with the extension."""
    place = tmp_path / "site"
    (place / "plugins").mkdir(parents=True)
    (place / "site.yaml").write_text("title: Ours\n")
    (place / "plugins" / "memory_limit.py").write_text(example_files()["plugins/memory_limit.py"])
    for folder in (place, place / "plugins"):
        folder.chmod(0o755)  # whatever the umask of the test is
    monkeypatch.setenv("IOWATCH_SITE", str(place))
    plugins.forget_plugins()
    yield place
    plugins.forget_plugins()


def test_extension_of_a_site_is_switched_on_by_an_order(site: Path) -> None:
    settings = {"bytes": 2**30}
    run = build_checked_run(order=RunOrder(session="s1", extensions={"memory_limit": settings}))
    words = compose_job(run, JobScript()).command
    assert list(words[3:6]) == ["-p", "MemoryMax=1073741824", "ior"]
    assert EXTENSIONS["memory_limit"].facts(run, settings) == {"memory_limit_bytes": 2**30}
    plugin = EXTENSIONS.plugin_of("memory_limit")
    assert plugin is not None
    assert plugin.path == site / "plugins" / "memory_limit.py"
