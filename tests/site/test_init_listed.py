"""A new system in one command: `iowatch system init`, and ReFrame lists the cases of the new system."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from iowatch.checks import RunOrder
from tests.checks.orders import order_variables
from tests.site.test_init import MPI_LIST, SINFO

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
_CASE = re.compile(r"@new-one:(\S+)\+")
# A benchmark without a suite of that name is skipped with a warning of its own.
_WARNING = re.compile(r"WARNING(?!.*the following parameters are undefined: entry)")

pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("mpicc", "mpicc.openmpi", "mpicc.mpich")),
    reason="needs an MPI: without one a new system has no environment",
)


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A clone without any system but the template, and an environment with programs in front of PATH."""
    root, programs = tmp_path / "clone", tmp_path / "bin"
    for folder in ("systems", "reference"):
        (root / folder).mkdir(parents=True)
    for folder in ("benchmarks", "reframe_tests", "systems/_template"):
        (root / folder).symlink_to(ROOT / folder)
    programs.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("SCRATCH", "WORK", "IOWATCH_DB")},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONWARNINGS": "error",
        "RFM_COLORIZE": "no",
        "IOWATCH_ROOT": str(root),
        "IOWATCH_VAR": str(tmp_path / "var"),
        **order_variables(tmp_path / "order", RunOrder(suite="nightly")),
    }
    return root, environment


def _run(environment: dict[str, str], *words: str | Path) -> str:
    done = subprocess.run(
        list(map(str, words)), env=environment, cwd=environment["IOWATCH_ROOT"], capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _listed(machine: tuple[Path, dict[str, str]], *options: str) -> set[str]:
    """Partitions of the cases that ReFrame lists; ReFrame identifies the machine by its host name."""
    root, environment = machine
    _run(environment, BIN / "iowatch", "system", "init", "new-one", *options)
    _run(environment, BIN / "iowatch", "system", "show", "new-one")
    settings = root / "systems" / "new-one" / "reframe.py"
    listing = _run(environment, BIN / "reframe", "-C", settings, "-c", root / "reframe_tests", "-R", "--list=C")
    assert not _WARNING.search(listing)
    assert "selected system:   'new-one'" in listing
    assert re.search(r"Concretized \d*[1-9]\d* test case", listing), listing[-500:]
    return set(_CASE.findall(listing))


def test_new_local_system_has_cases(machine: tuple[Path, dict[str, str]]) -> None:
    assert _listed(machine, "--scheduler", "local") == {"default"}


@pytest.mark.slow
@pytest.mark.parametrize("accounts", ["slurmdbd", "none"])
def test_new_slurm_system_has_cases(machine: tuple[Path, dict[str, str]], tmp_path: Path, accounts: str) -> None:
    """Detected from `sinfo` and `scontrol`; partition names with blanks as Slurm allows them."""
    for name, body in {
        "sinfo": SINFO,
        "scontrol": f'echo "AccountingStorageType   = accounting_storage/{accounts}"; echo "MpiDefault = none"',
        "srun": MPI_LIST,
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    assert _listed(machine) == {"standard", "high-mem"}
    settings = (machine[0] / "systems" / "new-one" / "reframe.py").read_text()
    assert f'SCHEDULER = "{"slurm" if accounts == "slurmdbd" else "squeue"}"' in settings
    assert 'MPI_TYPES = {"openmpi": "pmix", "mpich": "pmi2"}' in settings
