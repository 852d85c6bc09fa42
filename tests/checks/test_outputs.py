"""What a finished run becomes: the parameters of its case and the striping of its directory, without ReFrame."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from iowatch.benchmarks.benchmark import RESIDENT_FILE
from iowatch.checks import RunOrder
from iowatch.checks.outputs import read_output
from iowatch.checks.run import FinishedJob
from iowatch.checks.scratch import scratch_base, striping_failure
from iowatch.core import settings
from tests.builders import build_checked_run
from tests.conftest import ROOT

# A read of IOR; it prints nothing about the page cache.
READ = ROOT / "tests" / "data" / "ior-4.0.0-verified-read.json"


@pytest.mark.parametrize(
    ("resident", "cache"), [("RESIDENT SIZE\n1048576 1048576\n", "keep"), ("RESIDENT SIZE\n0 1048576\n", "drop")]
)
def test_read_from_the_page_cache_is_another_case(resident: str, cache: str, tmp_path: Path) -> None:
    """Its bandwidth is that of the memory: it must not join the series of reads from the storage."""
    shutil.copy(READ, tmp_path / "start-0.ior.json")
    (tmp_path / "start-0.rc").write_text("0\n")
    for stream in ("rfm_job.out", "rfm_job.err"):
        (tmp_path / stream).touch()
    (tmp_path / RESIDENT_FILE).write_text(resident)
    run = build_checked_run(tmp_path, options={"op": "read", "repeat": 1})
    output = read_output(run, FinishedJob("1", (), tmp_path / "job.sh"))
    assert {result.case["cache"] for result in output.results} == {cache}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, None),
        ({"stripe-count": 4, "stripe-size": 2**20}, None),
        ({"stripe-count": 0, "stripe-size": 0}, None),
        ({"stripe-count": 0, "stripe-size": 2**22}, "stripe_bytes is 1048576 in scratch, the suite asks for 4194304"),
        ({"stripe-count": -1}, "stripe_count is 4 in scratch, the suite asks for -1"),
    ],
)
def test_default_striping_may_be_any(
    options: dict[str, int], reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count or size of 0 is the default of the file system (`man lfs-setstripe`); the directory has 4 of 1 MiB."""
    monkeypatch.setenv("PATH", str(tmp_path))  # without lfs
    (tmp_path / "iowatch.striped").touch()
    (tmp_path / "iowatch.machine").write_text("striping=stripe_count:  4 stripe_size:   1048576 pattern: 0\n")
    assert striping_failure(build_checked_run(tmp_path, options=options)) == reason


def test_layout_with_components_is_not_the_requested_striping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first component has what was requested; the rest of each file has not."""
    monkeypatch.setenv("PATH", str(tmp_path))  # without lfs
    (tmp_path / "iowatch.striped").touch()
    first = "lcme_id: N/A lcme_extent.e_start: 0 lcme_extent.e_end: 1048576 stripe_count: 4 stripe_size: 1048576"
    rest = "lcme_id: N/A lcme_extent.e_start: 1048576 lcme_extent.e_end: EOF stripe_count: 8 stripe_size: 4194304"
    (tmp_path / "iowatch.machine").write_text(f"striping={first} {rest}\n")
    reason = striping_failure(build_checked_run(tmp_path, options={"stripe-count": 4}))
    expected = "up to 1 MiB: 4 of 1 MiB, then 8 of 4 MiB"
    assert reason == f"the layout of scratch is not one striping, as the suite asks for: {expected}"


def test_directory_of_the_session_precedes_the_variable_and_this_the_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order in docs/settings.md; without all of them ReFrame's stage directory."""
    case = build_checked_run().case

    def base(order: RunOrder, partition_scratch: str | None) -> str:
        return str(scratch_base(order, case, "unknown", partition_scratch, tmp_path))

    monkeypatch.delenv(settings.SCRATCH_VARIABLE, raising=False)
    assert base(RunOrder(), None) == str(tmp_path)
    assert base(RunOrder(), "/partition") == "/partition"
    monkeypatch.setenv(settings.SCRATCH_VARIABLE, "/variable")
    assert base(RunOrder(), "/partition") == "/variable"
    assert base(RunOrder(scratch="/session"), "/partition") == "/session"
