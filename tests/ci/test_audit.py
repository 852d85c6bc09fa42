"""`ci/audit`: no vulnerability, vulnerabilities and a failed query have three different exit codes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("program", "code", "message"),
    [
        ("exit 0", 0, "no known vulnerability"),
        ("echo 'jinja2 3.0 CVE-2024-1 3.1'; echo 'Found 1 known vulnerability' >&2; exit 1", 1, "CVE-2024-1"),
        ("echo 'ERROR: x: Dependency not found and could not be audited' >&2; exit 1", 3, "NOTHING WAS CHECKED"),
    ],
)
def test_audit_exit_codes(tmp_path: Path, program: str, code: int, message: str) -> None:
    for folder in ("ci", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "ci" / "audit", tmp_path / "ci" / "audit")
    fake = tmp_path / ".venv" / "bin" / "pip-audit"
    # Without --strict the real pip-audit skips packages that it cannot check, and exits with 0.
    fake.write_text(f'#!/bin/sh\ncase "$*" in *--strict*) ;; *) exit 99 ;; esac\n{program}\n')
    fake.chmod(0o755)
    done = subprocess.run([tmp_path / "ci" / "audit"], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert message in done.stdout + done.stderr
