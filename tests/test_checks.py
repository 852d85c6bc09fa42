"""The checks under plain ReFrame: what fails, hangs or prints nonsense is a failed test with a reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from iowatch import suites
from tests.conftest import ROOT

REFRAME = ROOT / ".venv" / "bin" / "reframe"
pytestmark = pytest.mark.skipif(not REFRAME.exists(), reason="needs ReFrame in .venv (ci/setup --dev)")


def check(
    tool: str, case: str, program: str, tmp_path: Path, *options: str
) -> tuple[int, dict[str, Any], list[Path]]:
    """Run one case with `program` in the benchmark's place: ReFrame's exit code, test case, spooled cases."""
    fake = tmp_path / "fake"
    fake.write_text(f"#!/bin/bash\n{program}\n")
    fake.chmod(0o755)
    session = tmp_path / "session"
    environment = {
        **os.environ,
        "IOWATCH_SCRATCH": str(tmp_path / "scratch"),
        "IOWATCH_SESSION_DIR": str(session),
        "IOWATCH_VAR": str(tmp_path / "var"),
    }
    words = [
        str(REFRAME),
        "-C",
        str(ROOT / "tests" / "reframe_fake.py"),
        "-c",
        str(ROOT / "reframe_tests" / f"{tool}.py"),
    ]
    words += ["-r", "-t", "^smoke$", "-n", f"entry=smoke/{case}", "-S", f"program={fake}"]
    words += ["--prefix", str(tmp_path / "rfm"), "--report-file", str(tmp_path / "report.json"), *options]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120
    )
    report = json.loads((tmp_path / "report.json").read_text())
    (testcase,) = report["runs"][0]["testcases"]
    return done.returncode, testcase, sorted(session.glob("cases/*/case.json"))


READ = ("ior", "op=read,api=posix,file=per-process")
WRITE = "op=write,api=posix,file=per-process$"


def test_a_proper_output_passes_with_every_repetition(tmp_path: Path, shared: Path) -> None:
    case = shared / "data/captured/ior/4.0.0/mpiio_shared_coll_np4"
    code, testcase, spooled = check("ior", WRITE, f"cat {case / 'stdout'}", tmp_path)
    assert (code, testcase["result"]) == (0, "pass")
    output = json.loads(spooled[0].read_text())["output"]
    truth = json.loads((case / "truth.json").read_text())
    write = next(r for r in output["results"] if (r["operation"], r["metric"]) == ("write", "bandwidth"))
    assert len(write["samples"]) == len([row for row in truth["per_repetition"] if row["op"] == "write"])


@pytest.mark.parametrize(
    ("tool", "case", "program", "told"),
    [
        (
            "ior",
            WRITE,
            "echo 'ior ERROR: open64(x) failed, errno 28, No space left on device' >&2; exit 255",
            "exit code 255",
        ),
        ("ior", WRITE, "echo 'Max Write: 999999.00 MiB/sec (1048575.00 MB/sec)'", "incomplete"),
        ("h5bench", "op=write", "echo 'SYNC Raw write rate: 594472.000 TB/s'", "incomplete|failed"),
        ("mdtest", "directories=single", "echo 'SUMMARY rate: (of 1 iterations)'", "incomplete|failed"),
        ("ior", "op=read,api=posix", "exit 3", "was not started or did not end"),
    ],
)
def test_what_is_no_result_fails_with_a_reason(
    tool: str, case: str, program: str, told: str, tmp_path: Path
) -> None:
    code, testcase, spooled = check(tool, case, program, tmp_path)
    assert (code, testcase["result"], testcase["fail_phase"]) == (1, "fail", "sanity")
    assert re.search(told, testcase["fail_reason"]), testcase["fail_reason"]
    kept = json.loads(spooled[0].read_text())["output"]
    assert kept["status"] in ("failed", "incomplete")
    assert not list((tmp_path / "scratch").glob("*/*")), "scratch was not removed"


def test_places_with_blanks_reach_every_start_whole(tmp_path: Path) -> None:
    """Program and scratch directory have a blank; a read prepares its file, then starts once a sample."""
    place = tmp_path / "a place"
    place.mkdir()
    program = 'printf "%s\\n" "$@" >> "${0%/*}/words"'
    # ReFrame itself cannot work in a directory with a blank.
    check("ior", "op=read,api=posix", program, place, "--prefix", str(tmp_path / "rfm"))
    words = (place / "words").read_text().splitlines()
    (case,) = (case for case in suites.load("smoke") if (case.benchmark, case.name) == READ)
    files = [word for word in words if word.startswith(f"{place}/scratch/") and word.endswith("/ior")]
    assert len(files) == words.count("-o") == 1 + case.tool.runs(case.options)
    script = next((tmp_path / "rfm").rglob("rfm_job.sh")).read_text()
    assert script.count(f"for f in '{files[0]}'*;") == case.tool.runs(case.options)


def test_a_benchmark_that_hangs_is_ended(tmp_path: Path) -> None:
    code, testcase, _ = check("ior", WRITE, "exec sleep 60", tmp_path, "-S", "time_limit=2s")
    assert (code, testcase["result"]) == (1, "fail")
    assert "timed out" in testcase["fail_reason"]
