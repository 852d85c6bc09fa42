"""The checks under plain ReFrame: failures, hangs and invalid output are failed tests with a reason."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iowatch.benchmarks import suites
from iowatch.benchmarks.benchmark import RESIDENT_FILE
from iowatch.checks import ExtraWork, OrderedFileSystem, OrderedRun, RunOrder
from iowatch.checks.build import build_failure
from iowatch.checks.machine import clock_failure
from iowatch.checks.scratch import cache_not_dropped
from iowatch.core import RunKey
from iowatch.site import FileSystemIdentity, storage
from tests.checks.orders import order_variables
from tests.conftest import ROOT
from tests.datasets import unpacked
from tests.faults.places import small
from tests.reframe_server import run_reframe

REFRAME = ROOT / ".venv" / "bin" / "reframe"
pytestmark = pytest.mark.skipif(not REFRAME.exists(), reason="needs ReFrame in .venv (ci/setup --dev)")


# The summary file of IOR 4.0.0 of the smoke suite's first write on four ranks.
VALID = ROOT / "tests" / "data" / "ior-4.0.0-smoke.json"
# Printed by IOR when a session verifies the first read on four ranks of `nightly`.
VERIFIED_READ = ROOT / "tests" / "data" / "ior-4.0.0-verified-read.json"


# The output of an earlier run, with path, time and host of this one.
REPLAY = r"""while [ "$1" != -o ]; do shift; done
now=$(LC_ALL=C date '+%a %b %e %T %Y')
sed -e "s|/scratch/ior|$2|g" -e "s|... Nov 2[13] [0-9:]* 2026|$now|" -e "s|Linux vm|Linux $(uname -n)|" """


def replay(source: Path = VALID) -> str:
    """A program that prints a captured result file of IOR as its own."""
    return f"{REPLAY} {source} > ior.json"


def check(
    tool: str,
    case: str,
    program: str,
    tmp_path: Path,
    *options: str,
    suite: str = "smoke",
    order: RunOrder | None = None,
    **variables: str,
) -> tuple[int, dict[str, Any], list[Path]]:
    """Run one case with `program` instead of the benchmark: ReFrame's exit code, test case, spooled cases.

    Args:
        order: of the session, with other suite and spool [default: no session, but cases are spooled].
    """
    fake = tmp_path / "fake"
    fake.write_text(f"#!/bin/bash\n{program}\n")
    fake.chmod(0o755)
    session = tmp_path / "session"
    # Without a suite ReFrame makes a test of every case, which takes longer than the run of one.
    order = replace(order or RunOrder(spool=session), suite=suite)
    environment = {
        **os.environ,
        "IOWATCH_SCRATCH": str(tmp_path / "scratch"),
        "IOWATCH_VAR": str(tmp_path / "var"),
        **order_variables(tmp_path / "order", order),
        **variables,
    }
    words = ["-C", str(ROOT / "tests" / "reframe_fake.py"), "-c", str(ROOT / "reframe_tests" / f"{tool}.py")]
    words += ["-r", "-t", f"^{suite}$", "-n", f"entry={suite}/{case}", "-S", f"program={fake}"]
    words += ["--prefix", str(tmp_path / "rfm"), "--report-file", str(tmp_path / "report.json"), *options]
    done = run_reframe(words, tmp_path, environment)
    report = json.loads((tmp_path / "report.json").read_text())
    (testcase,) = report["runs"][0]["testcases"]
    return done.returncode, testcase, sorted(session.glob("cases/*/case.json"))


READ = ("ior", "op=read,api=posix,file=per-process")
WRITE = "op=write,api=posix,file=per-process$"


def test_valid_output_passes_with_every_repetition(tmp_path: Path) -> None:
    code, testcase, spooled = check("ior", WRITE, replay(), tmp_path)
    assert (code, testcase["result"]) == (0, "pass")
    output = json.loads(spooled[0].read_text())["output"]
    write = next(r for r in output["results"] if (r["operation"], r["metric"]) == ("write", "bandwidth"))
    printed = [row["bwMiB"] for row in json.loads(VALID.read_text())["tests"][0]["Results"]]
    assert write["samples"] == printed
    assert len(printed) == 5
    # The environment of the job, which findings compare between sessions, and what went on around the measurement.
    kept = json.loads(spooled[0].read_text())
    assert kept["facts"]["machine"]["kernel"] == platform.release()
    before, after = (kept["facts"]["covariates"][side] for side in ("before", "after"))
    assert before["time_s"] < kept["started_at"] + 1
    assert after["time_s"] - before["time_s"] > kept["wall_s"]
    assert {"load_1m", "fill", "memory_available_bytes"} <= before.keys() & after.keys()


def test_output_of_another_case_fails(tmp_path: Path) -> None:
    """A valid output of MPI-IO to one shared file, although POSIX with a file per process was requested."""
    case = unpacked("captured") / "ior/4.0.0/mpiio_shared_coll_np4"
    _, testcase, spooled = check("ior", WRITE, f"cat {case / 'stdout'}", tmp_path)
    assert "api is MPIIO in the output, the suite asks for POSIX" in testcase["fail_reason"]
    assert json.loads(spooled[0].read_text())["output"]["status"] == "failed"


def test_hint_that_is_not_in_force_fails_the_run(tmp_path: Path) -> None:
    """The job asks ROMIO for its hints; it prints the buffer of the case, but another number of aggregators."""
    output = unpacked("captured") / "ior/4.0.0/mpiio_shared_coll_np4" / "stdout"
    lines = r"key = cb_nodes  value = 1 \nkey = cb_buffer_size  value = 1048576 \n"
    program = f"[ $ROMIO_PRINT_HINTS = 1 ] && printf '{lines}'; cat {output}"
    name = "api=mpiio,hints=cb_nodes=4[+]cb_buffer_size=1m$"
    _, testcase, spooled = check("ior", name, program, tmp_path, suite="hints")
    assert "hint cb_nodes=4 is not in force: ROMIO has cb_nodes 1; " in testcase["fail_reason"]
    assert "cb_buffer_size" not in testcase["fail_reason"]
    kept = json.loads(spooled[0].read_text())
    assert {r["case"]["hints"] for r in kept["output"]["results"]} == {"cb_buffer_size=1048576+cb_nodes=4"}
    assert "ROMIO_PRINT_HINTS" not in kept["stack"].get("settings", {})


def test_errors_on_stdout_fail_a_valid_result_file(tmp_path: Path) -> None:
    """IOR reports wrong data on stdout, and returns the number of errors modulo 256."""
    program = f"{replay()}; echo 'WARNING: Incorrect data on write (256 errors found).'"
    _, testcase, _ = check("ior", WRITE, program, tmp_path)
    assert "data check errors" in testcase["fail_reason"]


def path_with_lfs(tmp_path: Path, script: str) -> str:
    """A PATH that starts with a directory with this `lfs` script."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "lfs").write_text(f"#!/bin/sh\n{script}\n")
    (place / "lfs").chmod(0o755)
    return f"{place}{os.pathsep}{os.environ['PATH']}"


def test_case_beyond_the_quota_is_not_started(tmp_path: Path) -> None:
    path = path_with_lfs(tmp_path, "[ $1 = quota ] && echo '/mnt/lustre 1024 0 2048 - 10 0 25 -'")
    code, testcase, _ = check("ior", WRITE, "touch $0.started", tmp_path, PATH=path)
    assert (code, testcase["result"], testcase["fail_phase"]) == (1, "fail", "run")
    assert "in your quota" in testcase["fail_reason"]
    assert not (tmp_path / "fake.started").exists()


def test_plain_reframe_removes_scratch_of_killed_runs(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    here = f"iowatch-reframe-{platform.node()}"
    for name in (f"{here}-{dead.pid}", f"{here}-{os.getpid()}", f"iowatch-reframe-elsewhere-{dead.pid}"):
        (tmp_path / "scratch" / name / "case").mkdir(parents=True)
    check("ior", WRITE, replay(), tmp_path)
    left = {path.name for path in (tmp_path / "scratch").iterdir()}
    assert left == {f"{here}-{os.getpid()}", f"iowatch-reframe-elsewhere-{dead.pid}"}


def test_job_on_another_file_system_ends_before_the_program(tmp_path: Path) -> None:
    """As if scratch were not mounted on the node of the job."""
    identities = {"": FileSystemIdentity(), "default": FileSystemIdentity(mount="/lustre", type="lustre")}
    file_systems = (OrderedFileSystem(None, tmp_path / "scratch", identities),)
    order = RunOrder(spool=tmp_path / "session", file_systems=file_systems)
    _, testcase, spooled = check("ior", WRITE, "touch $0.started", tmp_path, order=order)
    found = storage.find_identity(tmp_path)
    assert found is not None
    text = f"expected mount /lustre, type lustre; found mount, type, source: {found.mount} {found.type} {found.source}"
    assert text in testcase["fail_reason"]
    assert json.loads(spooled[0].read_text())["output"]["status"] == "failed"
    assert not (tmp_path / "fake.started").exists()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("node_local", ["false", "true"])
def test_case_on_another_file_system_writes_there_and_says_so(node_local: str, tmp_path: Path) -> None:
    """Plain ReFrame: the suite names a file system, system.yaml its directory, which this host or the job makes."""
    site, memory = tmp_path / "site", Path("/dev/shm", f"iowatch-test-{uuid.uuid4()}")
    described = f"""
name: fake
title: x
scratch: {tmp_path}/scratch
file_systems:
  - name: fast
    directory: {{path: {memory}, type: tmpfs}}
    limits: {{total_bytes: 1g, files: 100}}
    node_local: {node_local}
    technology: tmpfs
    source: a test
"""
    suite = (
        (ROOT / "benchmarks/ior/suites/smoke.yaml").read_text().replace("format: 1\n", "format: 1\nfile_systems: all\n")
    )
    for name, text in (("systems/fake/system.yaml", described), ("suites/ior/mine.yaml", suite), ("site.yaml", "")):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    name = f"{WRITE[:-1]},file_system=fast$"
    try:
        code, _, spooled = check("ior", name, replay(), tmp_path, suite="mine", IOWATCH_SITE=str(site))
        assert (code, list(memory.iterdir())) == (0, [])
    finally:
        shutil.rmtree(memory, ignore_errors=True)
    kept = json.loads(spooled[0].read_text())
    assert kept["name"] == f"ior:{name[:-1]}"
    assert {result["case"]["file_system"] for result in kept["output"]["results"]} == {"fast"}
    assert kept["facts"][storage.IDENTITY_FACT]["type"] == "tmpfs"
    assert kept["facts"][storage.FILE_SYSTEM_FACT] == "fast"
    assert f" -o {memory}/iowatch-reframe" in kept["facts"]["command"]


def test_scratch_unmounted_during_a_run_fails_it(tmp_path: Path) -> None:
    with small(tmp_path / "disk", "2400m") as disk:
        if disk is None:
            pytest.skip("needs the right to mount a tmpfs (root)")
        # Mounted again for the removal: without the directory the job could not look at it either.
        program = f"cp {VALID} ior.json; umount -l {disk}; mkdir {disk}/scratch"
        code, _, spooled = check("ior", WRITE, program, tmp_path, IOWATCH_SCRATCH=f"{disk}/scratch")
        spooled_case = json.loads(spooled[0].read_text())
        assert spooled_case["facts"][storage.IDENTITY_FACT]["type"] == "tmpfs"
        assert (code, spooled_case["output"]["status"]) == (1, "failed")
        assert re.search(f"found mount .*; expected mount {disk}, type tmpfs", spooled_case["output"]["reason"])
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], check=True)


def test_planted_session_directory_is_not_used(tmp_path: Path) -> None:
    """Another user of a shared scratch creates the directory of the session as a link to a victim's directory."""
    victim, scratch = tmp_path / "victim", tmp_path / "scratch"
    for place in (victim, scratch):
        place.mkdir()
    (scratch / "iowatch-planted").symlink_to(victim)
    order = RunOrder(session="planted", spool=tmp_path / "session")
    _, testcase, _ = check("ior", WRITE, "touch $0.started", tmp_path, order=order)
    assert "File exists" in testcase["fail_reason"]
    assert list(victim.iterdir()) == []
    assert not (tmp_path / "fake.started").exists()


def test_directories_of_a_session_are_private(tmp_path: Path) -> None:
    program = f"{replay()}; stat -c %a {tmp_path}/scratch/iowatch-* {tmp_path}/scratch/iowatch-*/* > $0.modes"
    assert check("ior", WRITE, program, tmp_path)[0] == 0
    assert (tmp_path / "fake.modes").read_text().split() == ["700", "700"]


STRIPED = "block=16m,op=write,api=mpiio,file=shared,transfer=1m,ranks=4,collective=False,stripe-count=4,stripe-size=4m"


ONE_STRIPED = "op: write, api: mpiio, file: shared, ranks: 4, block: 16m, repeat: 5, stripe-count: 4, stripe-size: 4m"


def shared_file_summary(tmp_path: Path) -> Path:
    """The summary of `VALID`, as if it were of MPI-IO to one shared file."""
    text = VALID.read_text().replace('"api": "POSIX"', '"api": "MPIIO"').replace("-a POSIX", "-a MPIIO")
    text = text.replace("file-per-process", "single-shared-file").replace(" -F ", " ")
    path = tmp_path / "shared.json"
    path.write_text(text.replace('"API": "POSIX"', '"API": "MPIIO"'))
    return path


@pytest.mark.parametrize("script", ["exit 0", "exit 1"])
def test_ineffective_striping_is_not_part_of_the_case(script: str, tmp_path: Path) -> None:
    """Selected by name: otherwise such a case is skipped without Lustre."""
    program = replay(shared_file_summary(tmp_path))
    variables = {"PATH": path_with_lfs(tmp_path, script), **own_root(tmp_path, ONE_STRIPED)}
    order = order_of_run(tmp_path, "single")
    code, testcase, spooled = check("ior", "single", program, tmp_path, suite="mine", order=order, **variables)
    assert (code, testcase["fail_reason"]) == (0, None)
    spooled_case = json.loads(spooled[0].read_text())
    striped = {name for name in spooled_case["output"]["results"][0]["case"] if name.startswith("stripe")}
    assert striped == ({"stripe_count", "stripe_bytes"} if script == "exit 0" else set())
    reason = spooled_case["facts"].get("striping", "")
    assert reason.startswith("not applicable on ") == (script == "exit 1")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("count", "targets", "reason"),
    [(4, 8, ""), (2, 8, "stripe_count is 2 in scratch"), (4, 3, "stripe_count is 3 in scratch, the suite asks for 4")],
)
def test_striping_that_is_not_achieved_fails_the_run(count: int, targets: int, reason: str, tmp_path: Path) -> None:
    """`lfs` as in the Lustre manual: a directory accepts more stripes than there are OSTs."""
    listed = "\n".join(f"{number}: work-OST{number:04x}_UUID ACTIVE" for number in range(targets))
    answers = f"getstripe) echo 'stripe_count:  {count} stripe_size:   4194304 pattern: 0';; osts) echo '{listed}';;"
    path = path_with_lfs(tmp_path, f"case $1 in {answers} esac")
    variables = {"PATH": path, **own_root(tmp_path, ONE_STRIPED)}
    program, order = replay(shared_file_summary(tmp_path)), order_of_run(tmp_path, "single")
    code, testcase, _ = check("ior", "single", program, tmp_path, suite="mine", order=order, **variables)
    assert (code, reason in (testcase["fail_reason"] or "")) == (int(bool(reason)), True)


@pytest.mark.skipif(shutil.which("fincore") is None, reason="needs fincore (Debian: apt-get install util-linux-extra)")
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_read_of_a_file_in_the_page_cache_is_recognised(place: str, tmp_path: Path) -> None:
    """On tmpfs nothing can be dropped; on a disk the same file is dropped before the read."""
    own = own_root(tmp_path, "op: read, ranks: 4, block: 4m, repeat: 1")
    program = """while [ $# -gt 0 ]; do [ "$1" = -o ] && file=$2; [ "$1" = -w ] && write=1; shift; done
[ -z "$write" ] || head -c 1M /dev/zero > "$file"; sync"""
    with small(tmp_path / "disk", "2400m") as disk:
        if disk is None:
            pytest.skip("needs the right to mount a tmpfs (root)")
        scratch = (disk if place == "memory" else tmp_path) / "scratch"
        check("ior", "single", program, tmp_path, suite="mine", IOWATCH_SCRATCH=str(scratch), **own)
    (resident,) = (tmp_path / "rfm").rglob(RESIDENT_FILE)
    assert resident.read_text().split() == ["1048576" if place == "memory" else "0", "1048576"]
    (case,) = suites.read_suite_file(tmp_path / "root/benchmarks/ior/suites/mine.yaml")
    (resident.parent / "iowatch.mount.before").unlink()
    assert cache_not_dropped(case, resident.parent) == ({"cache": "keep"} if place == "memory" else {})
    (tmp_path / "iowatch.mount.before").write_text("/tmp tmpfs tmpfs\n")
    assert cache_not_dropped(case, tmp_path) == {"cache": "keep"}, "without fincore the type decides"


@pytest.mark.parametrize(("off_s", "wrong"), [(0, False), (290, False), (-290, False), (310, True), (-310, True)])
def test_job_on_a_node_with_another_clock_fails(off_s: int, wrong: bool) -> None:
    reason = clock_failure(time.time(), time.time() + off_s)
    assert (reason is not None and "clock of the node is wrong" in reason) == wrong
    assert clock_failure(time.time(), None) is None


def test_case_that_differs_only_in_striping_is_skipped_without_lustre(tmp_path: Path) -> None:
    code, testcase, _ = check("ior", f"{STRIPED}$", "exit 1", tmp_path, suite="survey")
    assert (code, testcase["result"]) == (0, "skip")


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("tool", "case", "program", "reason"),
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
        (
            "ior",
            "op=read,api=posix",
            "exit 3",
            "file to read could not be written: `ior -a POSIX …` ended with exit code 3",
        ),
    ],
)
def test_invalid_output_fails_with_a_reason(tool: str, case: str, program: str, reason: str, tmp_path: Path) -> None:
    code, testcase, spooled = check(tool, case, program, tmp_path)
    assert (code, testcase["result"], testcase["fail_phase"]) == (1, "fail", "sanity")
    assert re.search(reason, testcase["fail_reason"]), testcase["fail_reason"]
    kept = json.loads(spooled[0].read_text())["output"]
    assert kept["status"] in ("failed", "incomplete")
    assert not list((tmp_path / "scratch").glob("*/*")), "scratch was not removed"


def test_paths_with_blanks_are_passed_to_every_start(tmp_path: Path) -> None:
    """Program and scratch directory have a blank; a read writes its file, then starts once per sample."""
    place = tmp_path / "a place"
    place.mkdir()
    program = 'printf "%s\\n" "$@" >> "${0%/*}/words"'
    # ReFrame itself cannot work in a directory with a blank.
    check("ior", "op=read,api=posix", program, place, "--prefix", str(tmp_path / "rfm"))
    words = (place / "words").read_text().splitlines()
    (case,) = (case for case in suites.load_suite("smoke") if (case.benchmark, case.name) == READ)
    files = [word for word in words if word.startswith(f"{place}/scratch/") and word.endswith("/ior")]
    assert len(files) == words.count("-o") == 1 + case.tool.runs(case.options)
    script = next((tmp_path / "rfm").rglob("rfm_job.sh")).read_text()
    assert script.count(f"for f in '{files[0]}'*;") == case.tool.runs(case.options)


def own_root(tmp_path: Path, options: str, limits: str = "{}") -> dict[str, str]:
    """A checkout with one suite, `mine`, of one case of IOR, and limits of the system `fake`."""
    root = tmp_path / "root"
    suite, system = root / "benchmarks/ior/suites/mine.yaml", root / "systems/fake/system.yaml"
    for path in (suite, system):
        path.parent.mkdir(parents=True)
    suite.write_text(f"format: 1\nsummary: x\nmatrix: [{{{options}}}]\n")
    system.write_text(f"name: fake\ntitle: x\nlimits: {limits}\n")
    return {"IOWATCH_ROOT": str(root)}


def test_case_beyond_the_byte_budget_is_not_started(tmp_path: Path) -> None:
    place = own_root(tmp_path, "op: write, ranks: 4, block: 16m, repeat: 3", "{total_bytes: 128m}")
    code, testcase, _ = check("ior", "single", "touch $0.started", tmp_path, suite="mine", **place)
    assert (code, testcase["result"]) == (1, "fail")
    assert "the system's byte budget is 128 MiB per session" in testcase["fail_reason"]
    assert not (tmp_path / "fake.started").exists()


def test_case_beyond_the_limits_of_the_system_is_skipped(tmp_path: Path) -> None:
    place = own_root(tmp_path, "op: write, ranks: 4", "{ranks: 2}")
    code, testcase, _ = check("ior", "single", "exit 1", tmp_path, suite="mine", **place)
    assert (code, testcase["result"]) == (0, "skip")


def test_every_task_on_several_nodes_drops_the_page_cache(tmp_path: Path) -> None:
    place = own_root(tmp_path, "op: read, ranks: 4, nodes: 2, repeat: 3")
    check("ior", "single", "true", tmp_path, suite="mine", **place)
    script = next((tmp_path / "rfm").rglob("rfm_job.sh")).read_text()
    assert len(re.findall(r"^ ?sh -c 'for f in .*oflag=nocache.*done' >> prepare.out", script, re.MULTILINE)) == 3


def test_hanging_benchmark_is_ended(tmp_path: Path) -> None:
    code, testcase, _ = check("ior", WRITE, "exec sleep 60", tmp_path, "-S", "time_limit=2s")
    assert (code, testcase["result"]) == (1, "fail")
    assert "timed out" in testcase["fail_reason"]


def test_result_file_of_an_earlier_run_fails(tmp_path: Path) -> None:
    """Complete and of the requested case, but of another time, another directory and another host."""
    _, testcase, spooled = check("ior", WRITE, f"cp {VALID} ior.json", tmp_path)
    assert "the output is of another run: it started at Sat Nov 21 19:44:22 2026" in testcase["fail_reason"]
    assert "the output is of files in /scratch" in testcase["fail_reason"]
    assert json.loads(spooled[0].read_text())["output"]["status"] == "failed"


def order_of_run(tmp_path: Path, name: str, *work: ExtraWork) -> RunOrder:
    """An order of one run of IOR, with extra work."""
    key = RunKey("default", "gnu", suites.run_name("ior", name))
    return RunOrder(spool=tmp_path / "session", runs=(OrderedRun(key, work),))


def order_with_work(tmp_path: Path, work: ExtraWork, case: str = WRITE, suite: str = "smoke") -> RunOrder:
    """An order of one case of a suite, with this extra work."""
    (name,) = (c.name for c in suites.load_suite(suite) if c.benchmark == "ior" and re.search(case, c.name))
    return order_of_run(tmp_path, name, work)


VERIFICATION = ExtraWork("verification", 1, 1.0, 10.0)


def test_data_are_verified_after_the_measurement(tmp_path: Path) -> None:
    """One further start that compares its data; it adds no sample, and wrong data fail the run."""
    program = f'case "$*" in *" -W "*) echo "WARNING: Incorrect data on write";; *) {replay()};; esac'
    order = order_with_work(tmp_path, VERIFICATION)
    _, testcase, spooled = check("ior", WRITE, program, tmp_path, order=order)
    kept = json.loads(spooled[0].read_text())
    assert kept["facts"]["extra_work"] == ["verification"]
    assert [len(r["samples"]) for r in kept["output"]["results"] if r["metric"] == "bandwidth"] == [5]
    assert "verification after the measurement: data check errors" in testcase["fail_reason"]


def test_verified_read_passes(tmp_path: Path) -> None:
    """IOR prints no cache policy: the verification has the parameters of the check, as the measurement has."""
    text = VERIFIED_READ.read_text().replace(" -G 1", "").replace(" -R", "")
    measured = tmp_path / "measured.json"
    measured.write_text(text.replace('"checkRead": 1', '"checkRead": 0').replace('Seed": 1', 'Seed": 0'))
    program = f'case "$*" in *" -w "*) ;; *" -R "*) {replay(VERIFIED_READ)};; *) {replay(measured)};; esac'
    case = "ranks=4,op=read,api=posix,file=per-process,transfer=1m,block=16m"  # in `smoke` the cache may differ
    order = order_with_work(tmp_path, VERIFICATION, case, "nightly")
    code, testcase, spooled = check("ior", case, program, tmp_path, suite="nightly", order=order)
    assert (code, testcase["fail_reason"]) == (0, None)
    assert json.loads(spooled[0].read_text())["facts"]["extra_work"] == ["verification"]


def test_extra_work_has_its_own_time(tmp_path: Path) -> None:
    check("ior", WRITE, "true", tmp_path, order=order_with_work(tmp_path, ExtraWork("overhead", 1, 1.0, 100.0)))
    (case,) = (c for c in suites.load_suite("smoke") if c.benchmark == "ior" and re.search(WRITE, c.name))
    report = (tmp_path / "report.json").read_text()
    seconds = case.time_limit_s + 100
    assert f'"time_limit": "{seconds}s"' in report or f'"time_limit": {seconds}' in report, report


def test_variables_of_plain_reframe_change_the_case(tmp_path: Path) -> None:
    """The record is of four ranks and five repetitions, as the suite asks: another case was asked for here."""
    options = ("-S", "num_tasks=2", "-S", "num_tasks_per_node=1", "-S", "case_options=repeat:3", "--keep-stage-files")
    code, testcase, _ = check("ior", WRITE, replay(), tmp_path, *options, order=RunOrder())
    assert (code, testcase["fail_phase"]) == (1, "sanity")
    assert "2 ranks were requested, IOR ran with 4" in testcase["fail_reason"]
    (script,) = (tmp_path / "rfm" / "stage").rglob("rfm_job.sh")
    assert " -i 3 " in script.read_text()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("words", "reason", "in_session"),
    [
        ("case_options=repeats:3", "ior has no option 'repeats'", False),
        ("case_options=ranks:no", "option 'ranks' of ior (MPI processes): expected a whole number", False),
        ("num_tasks=2", "a session runs cases as its suite says", True),
    ],
)
def test_variables_that_cannot_apply_are_refused(words: str, reason: str, in_session: bool, tmp_path: Path) -> None:
    order = RunOrder(spool=tmp_path / "session" if in_session else None)
    code, testcase, _ = check("ior", WRITE, replay(), tmp_path, "-S", words, order=order)
    assert (code, testcase["fail_phase"], reason in testcase["fail_reason"]) == (1, "setup", True), testcase


@pytest.mark.parametrize(
    ("stderr", "stdout", "cause"),
    [
        (
            "CMake Error at x:3 (project):\n  no compiler\nmore\n",
            "-- ok\n",
            "CMake Error at x:3 (project): no compiler",
        ),
        ("", "[50%] cc\nhdf5.h: No such file or directory\n", "hdf5.h: No such file or directory"),
        ("mpirun was killed\n", "", "mpirun was killed"),
        ("", "", "no output"),
    ],
)
def test_failed_build_of_benchio_names_cause_and_files(stderr: str, stdout: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "x.err").write_text(stderr)
    (tmp_path / "x.out").write_text(stdout)
    assert build_failure("benchio", tmp_path / "x.err", tmp_path / "x.out") == (
        f"benchio did not build or start: {cause} (whole output: {tmp_path}/x.err and x.out)"
    )
