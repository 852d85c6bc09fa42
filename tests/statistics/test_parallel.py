"""Detection in worker processes: the same results, and no process remains."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from iowatch.statistics import detect_many
from iowatch.statistics.detection import detection_pool
from tests.statistics.series import stepped, times

WAITING = """
import sys, time
from iowatch.statistics.detection import detection_pool

if __name__ == "__main__":
    with detection_pool(1, processes=2) as ask:
        ask([([0.0], [1.0])], [None])()
        print("ready", flush=True)
        time.sleep(60)
"""


def test_worker_processes_give_the_same_detections() -> None:
    day_times = times(90)
    series = [(day_times, stepped(90, at=45, ratio=1.5, seed=seed)) for seed in range(6)]
    since = [None, None, None, None, None, day_times[60]]
    with detection_pool(6 * 90, processes=2) as submit:
        results = [submit(series[:3], since[:3]), submit(series[3:], since[3:])]
        found = [one for some in results for one in some()]
    assert found == detect_many(series, since=since)
    assert found[0].changes
    assert not found[5].changes


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "waiting.py"
    script.write_text(WAITING, encoding="utf-8")
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    workers = _children(parent.pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 30
    while any(_alive(pid) for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert workers
    assert not [pid for pid in workers if _alive(pid)]


def _children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _alive(pid: int) -> bool:
    """Whether the process runs; an orphan can be a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
