"""`iowatch pulse`: exit codes, output, stalls from begin to end, notices, sessions at the same time."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from iowatch.core import clock
from iowatch.pulse import probe
from iowatch.pulse.probe import ProbeResult, Reading
from iowatch.pulse.store import open_store, store_path
from tests.pulse import simulated
from tests.pulse.simulated import BASE_MS, DAY_S, START_S
from tests.pulse.test_probe import replace_by_pipes

Cli = Callable[..., Result]
# Friday, 11:40, after 32 days of pulses.
NOW_S = START_S + 32 * DAY_S + 11 * 3600 + 40 * 60


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the time of iowatch's clock: epoch seconds."""
    monkeypatch.setenv("IOWATCH_CLOCK_OFFSET_S", "0")

    def set_time(time_s: float) -> None:
        monkeypatch.setenv(clock.NOW_VARIABLE, str(time_s))
        clock.set_clock()

    return set_time


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What each operation takes in ms, in place of a real probe; changed by tests."""
    times_ms = dict(BASE_MS)

    def probe_file_systems(directories: Sequence[Path], number: int) -> tuple[ProbeResult, ...]:
        readings = []
        for operation, time_ms in times_ms.items():
            readings.append(Reading(operation, round(1e6 * time_ms), (round(1e6 * time_ms),)))
        return tuple(ProbeResult(tuple(readings)) for _ in directories)

    monkeypatch.setattr(probe, "probe_file_systems", probe_file_systems)
    return times_ms


@pytest.fixture
def channel(var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a site's channel that writes one file per notice."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "site.yaml").write_text(
        "notify:\n  digest: never\n  channels:\n    - {name: files, kind: issue, directory: issues, send: [pulse]}\n"
    )
    monkeypatch.setenv("IOWATCH_SITE", str(site))
    return var / "issues"


def fill_past(days: int = 32) -> None:
    simulated.fill_store(store_path("local", "login", "scratch"), np.random.default_rng(4), days)


def run(cli: Cli, *options: str) -> Result:
    return cli("pulse", "run", "--system", "local", *options)


def test_first_pulse_makes_its_tree_and_is_fast(var: Path, cli: Cli) -> None:
    first = run(cli, "--json")
    assert first.exit_code == 0, first.stderr
    assert (var / "scratch" / "pulse" / "complete-1").exists()
    begin = time.monotonic()
    second = json.loads(run(cli, "--json").stdout)
    assert time.monotonic() - begin < 2
    assert second["wall_s"] < 2
    (file_system,) = second["file_systems"]
    assert (file_system["file_system"], file_system["reason"], file_system["stalls"]) == ("scratch", "", [])
    assert {reading["operation"] for reading in file_system["readings"]} == set(BASE_MS)
    shown = cli("pulse", "show")
    assert shown.exit_code == 0
    assert "scratch from login: newest pulse" in shown.stdout
    assert "unlink" in shown.stdout
    assert run(cli, "--quiet").output == ""


def test_slow_stat_is_reported_by_the_third_pulse_and_when_it_ends(
    cli: Cli, at: Callable[[float], None], answers: dict[str, float], channel: Path
) -> None:
    """A level that lookups have for an hour: one line and one notice at its begin, and one at its end."""
    fill_past()
    codes, outputs = [], []
    # As before; then an hour of slow lookups; then as before for two hours.
    for pulse in range(-3, 18):
        answers["stat"] = 40.0 if 0 <= pulse < 6 else 1.2
        at(NOW_S + 600 * pulse)
        result = run(cli, "--quiet")
        codes.append(result.exit_code)
        outputs.append(result.stdout.strip())
    assert codes == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0] + 10 * [0]
    news = [output for output in outputs if output]
    assert len(news) == 2
    # Lookups take 1.2 ms at night and 2 ms at noon.
    assert re.fullmatch(r"local scratch: since 11:40 stat takes 40 ms instead of (1\.9|2|2\.1) ms", news[0])
    assert outputs[5] == news[0]
    assert news[1].startswith("local scratch: from 11:40 to 12:40 stat takes 40 ms instead of ")
    # One file when it began, one when it had been over for an hour.
    titles = [
        path.read_text().splitlines()[0] for path in sorted(channel.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    ]
    assert len(titles) == 2
    assert "since 11:40 stat takes 40 ms instead of " in titles[0]
    assert "as usual again since 2026-04-03 12:40 UTC, after 1 h 0 min" in titles[1]
    shown = cli("pulse", "show", "--json")
    assert shown.exit_code == 0
    (file_system,) = json.loads(shown.stdout)["file_systems"]
    (stall,) = file_system["stalls"]
    assert (stall["operation"], stall["began"], stall["ended"]) == ("stat", NOW_S, NOW_S + 3600)


def test_show_reports_a_stall_that_lasts(
    cli: Cli, at: Callable[[float], None], answers: dict[str, float], var: Path
) -> None:
    fill_past()
    answers.update({operation: 50 * time_ms for operation, time_ms in BASE_MS.items()})
    for pulse in range(3):
        at(NOW_S + 600 * pulse)
        run(cli)
    shown = cli("pulse", "show", "--hours", "1")
    assert shown.exit_code == 1
    assert "since 11:40 read takes 450 ms instead of" in shown.stdout
    with open_store(store_path("local", "login", "scratch")) as store:
        # All operations are one event.
        assert {stall.event for stall in store.stalls()} == {NOW_S}
        assert len(store.stalls()) == len(BASE_MS)


def test_file_system_that_does_not_answer_is_a_stall_without_a_past(
    cli: Cli, at: Callable[[float], None], channel: Path, var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe.probe_file_systems, "__defaults__", (0.6,))
    at(NOW_S - 600)
    assert run(cli).exit_code == 0
    replace_by_pipes(var / "scratch" / "pulse")
    codes = []
    for pulse in range(4):
        at(NOW_S + 600 * pulse)
        codes.append(run(cli).exit_code)
    assert codes == [0, 0, 1, 1]
    (notice,) = channel.iterdir()
    assert "since 11:40 open does not end within" in notice.read_text()


def test_no_second_process_waits_for_a_file_system(cli: Cli, var: Path) -> None:
    assert run(cli).exit_code == 0
    with subprocess.Popen(["sleep", "60"]) as waiting:
        text = Path(f"/proc/{waiting.pid}/stat").read_text().rpartition(")")[2].split()
        left = probe.LeftProcess("open", os.uname().nodename, waiting.pid, int(text[19]))
        with open_store(store_path("local", "login", "scratch"), create=True) as store:
            store.set_left_process(left)
        begin = time.monotonic()
        (blocked,) = json.loads(run(cli, "--json").stdout)["file_systems"]
        assert time.monotonic() - begin < 1
        assert [(reading["operation"], reading["outcome"]) for reading in blocked["readings"]] == [
            ("open", "unfinished")
        ]
        waiting.kill()
    (measured,) = json.loads(run(cli, "--json").stdout)["file_systems"]
    assert len(measured["readings"]) == len(BASE_MS)


def test_pulses_during_a_session_are_kept_and_not_assessed(
    cli: Cli, at: Callable[[float], None], answers: dict[str, float], var: Path
) -> None:
    fill_past()
    answers["stat"] = 400.0
    (var / "lock").mkdir(parents=True)
    with (var / "lock" / "local.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        for pulse in range(4):
            at(NOW_S + 600 * pulse)
            result = run(cli)
            assert (result.exit_code, "not assessed: a session is running" in result.stderr) == (0, True)
    # After it the first two pulses are not enough.
    codes = []
    for pulse in range(4, 7):
        at(NOW_S + 600 * pulse)
        codes.append(run(cli).exit_code)
    assert codes == [0, 0, 1]


def test_tree_is_not_made_on_another_file_system(cli: Cli, var: Path) -> None:
    """Below an empty mount point it would be on the disk of the node."""
    assert run(cli).exit_code == 0
    with open_store(store_path("local", "login", "scratch"), create=True) as store:
        store.set_fact("file_system", "lustre on /scratch")
    (var / "scratch" / "pulse" / "complete-1").unlink()
    result = run(cli)
    assert result.exit_code == 3
    assert "is on another file system" in result.stderr
    assert "before lustre on /scratch" in result.stderr
    assert not (var / "scratch" / "pulse" / "complete-1").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--file-system", "absent"), "measures no file system 'absent'"), (("--client", "../x"), "cannot name a client")],
)
def test_wrong_use(cli: Cli, var: Path, options: tuple[str, ...], message: str) -> None:
    result = run(cli, *options)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_show_without_pulses_names_the_command(cli: Cli, var: Path) -> None:
    result = cli("pulse", "show", "--system", "local")
    assert (result.exit_code, "iowatch pulse run --system local" in result.stderr) == (2, True)
    assert cli("pulse", "show", "--system", "absent").exit_code == 2


def test_clients_have_their_own_series(cli: Cli, var: Path) -> None:
    run(cli)
    run(cli, "--client", "compute")
    shown = json.loads(cli("pulse", "show", "--json").stdout)["file_systems"]
    assert [(entry["file_system"], entry["client"]) for entry in shown] == [
        ("scratch", "compute"),
        ("scratch", "login"),
    ]


# Delays `fsync` of the program that it is loaded into, as a busy server does.
_SLOW_FSYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int fsync(int file) {
  usleep(150000);
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_delayed_writes_are_found_by_the_third_pulse_of_real_operations(
    cli: Cli, at: Callable[[float], None], var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is real but the past, in which writes took 6 ms: they take 150."""
    fill_past()
    at(NOW_S - 3600)
    run(cli)  # makes the tree
    (tmp_path / "slow.c").write_text(_SLOW_FSYNC)
    library = tmp_path / "slow.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "slow.c", "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    codes, walls = [], []
    for pulse in range(3):
        at(NOW_S + 600 * pulse)
        result = run(cli, "--json")
        codes.append(result.exit_code)
        report = json.loads(result.stdout)
        walls.append(report["wall_s"])
    assert codes == [0, 0, 1]
    assert max(walls) < 2
    (stall,) = report["file_systems"][0]["begun"]
    assert (stall["operation"], stall["began"]) == ("write", NOW_S)
    assert 150e6 < stall["level_ns"] < 400e6
