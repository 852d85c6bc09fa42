"""The container of ci/Containerfile. Set IOWATCH_TEST_IMAGE to an image of Debian 12 that podman has or can pull.

Podman runs without root, so the test needs an ordinary account; the build installs from the network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from iowatch.site import doctor
from tests.conftest import ROOT

RECIPE = ROOT / "ci" / "Containerfile"


def test_image_has_the_packages_that_doctor_names() -> None:
    installed = set(re.findall(r"[\w.+-]+", RECIPE.read_text().split("FROM $BASE\n")[1]))
    wanted = {package for row in doctor._requirements() for package in row.packages}
    assert wanted <= installed


def podman(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(["podman", *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(
    not os.environ.get("IOWATCH_TEST_IMAGE") or not shutil.which("podman") or os.getuid() == 0,
    reason="needs IOWATCH_TEST_IMAGE (Debian 12), podman, and an account that is not root",
)
def test_image_measures_and_serves_without_network_and_root(tmp_path: Path) -> None:
    base = f"BASE={os.environ['IOWATCH_TEST_IMAGE']}"
    podman("build", "--network", "host", "--build-arg", base, "-f", RECIPE, "-t", "iowatch-test", ROOT, cwd=tmp_path)
    site = tmp_path / "site"
    site.mkdir()
    user = ("--userns", "keep-id", "--user", str(os.getuid()), "-v", f"{site}:/site")
    podman("run", "--rm", *user, "--network", "none", "iowatch-test", "init", "/site", cwd=tmp_path)
    verdict = podman(
        "run", "--rm", *user, "--network", "none", "iowatch-test", "nightly", "--suite", "smoke", cwd=tmp_path
    )
    assert "smoke on local: OK – " in verdict
    assert podman("run", "--rm", "--network", "none", "--entrypoint", "id", "iowatch-test", "-u", cwd=tmp_path) != "0\n"
    server = podman("run", "-d", "--rm", *user, "--network", "host", "iowatch-test", cwd=tmp_path).strip()
    try:
        assert b"iowatch" in _first_answer("http://127.0.0.1:8000/")
    finally:
        podman("stop", "-t", "5", server, cwd=tmp_path)


def _first_answer(address: str) -> bytes:
    for _ in range(60):
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return bytes(answer.read())
        except OSError:
            time.sleep(1)
    raise AssertionError(f"no answer from {address}")
