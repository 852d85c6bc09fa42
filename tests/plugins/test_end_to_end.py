"""The examples of docs/plugins.md in a site that `iowatch init` wrote: benchmark, check, suite, metric, page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.plugins.examples import write_examples

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun; ci/setup names the package"),
]
Iowatch = Callable[..., subprocess.CompletedProcess[str]]
OUTPUT = "4+0 records in\n4+0 records out\n4194304 bytes (4.2 MB, 4.0 MiB) copied, 0.5 s, 8.4 MB/s\n"


@pytest.fixture(scope="module")
def iowatch(tmp_path_factory: pytest.TempPathFactory) -> Iowatch:
    """The command line in the repository of the site."""
    site = tmp_path_factory.mktemp("plugins") / "site"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("IOWATCH_")}

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / ".venv" / "bin" / "iowatch"), *words]
        place = site if site.exists() else site.parent
        done = subprocess.run(
            command, env=environment, cwd=place, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    run("init", str(site))
    write_examples(site)
    return run


@pytest.mark.slow
def test_examples_run_in_a_session_and_are_on_a_page(iowatch: Iowatch, tmp_path: Path) -> None:
    stacks = json.loads(iowatch("stack", "list", "--json").stdout)["stacks"]
    stack = next(found["name"] for found in stacks if found["status"] == "installed")
    verdict: dict[str, Any] = json.loads(iowatch("run", "--suite", "blocks", "--stack", stack, "--json").stdout)
    # Two block sizes, of each the bandwidth and the time per block, of each two starts.
    assert (verdict["expected"], verdict["received"]) == (4, 4)
    assert {line["run"] for line in verdict["headlines"]} == {"dd:block=64k", "dd:block=1m"}
    assert {line["samples"] for line in verdict["headlines"]} == {2}
    assert iowatch("dashboard", "build", "--output", str(tmp_path / "site")).stderr == ""
    assert (tmp_path / "site" / "blocks.html").read_text().count("time per block") == 2
    assert ">Blocks</a>" in (tmp_path / "site" / "index.html").read_text()


def test_example_parses_outputs(iowatch: Iowatch, tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text(OUTPUT)
    results = json.loads(iowatch("parse", "dd", str(tmp_path / "out.txt"), "--json").stdout)["results"]
    # 4 MiB in 0.5 s are 8 MiB/s; four blocks in 0.5 s.
    assert [(one["metric"], one["samples"]) for one in results] == [("bandwidth", [8.0]), ("block_time", [0.125])]
    (tmp_path / "bad.txt").write_text("dd: failed to open '/x': No space left on device\n")
    bad = json.loads(iowatch("parse", "dd", str(tmp_path / "bad.txt"), "--json", code=1).stdout)
    assert "dd reports an error" in bad["reason"]
