"""A shared store with an aggressor, live: do findings tell a slower store from a busy one?

    python bench/statistics/aggressor.py cost
        time of one snapshot of covariates on this machine
    python bench/statistics/aggressor.py measure BENCHIO FILE 0 33
        as root: replays 0 to 32 of benchio on a store, as JSON lines
    python bench/statistics/aggressor.py FILE...
        the same, one session per day, as `iowatch findings` sees them; tests/data/aggressor.jsonl.xz has replays
        109 to 125 and 200 to 209

The store is a loop device with ext4, limited by a control group (blkio of cgroup v1) to 10 MiB/s of writes; its image
is in the folder for temporary files (TMPDIR=/dev/shm keeps the machine's disk out of it). All that write are in that
group and share its limit: benchio; a neighbour that always writes, in small calls, because the group may exceed its
limit for 0.1 s after a pause; and in half of the 40 sessions of a replay, in random order, the aggressor. A session is
one run of benchio for each of six cases, of 1.5 to 2.5 seconds, with the covariates that checks record. Most replays
are that alone; in others the limit is 15 % lower from the 26th session on. Wanted: the slower store is found within
five sessions; the aggressor alone never is. A replay takes eight minutes. Measure one store at a time: processes that
wait for I/O are counted per machine.
"""

from __future__ import annotations

import json
import lzma
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# In the place of this folder, where files have names of packages.
sys.path[0] = str(Path(__file__).resolve().parents[2])

import numpy as np  # noqa: E402
from tests.slow_storage import ThrottledStore, throttled_store  # noqa: E402

from iowatch.benchmarks import registry  # noqa: E402
from iowatch.core import Output, Result  # noqa: E402
from iowatch.findings import update_findings  # noqa: E402
from iowatch.site import CovariateSettings, covariates  # noqa: E402
from iowatch.store import History, RunRecord, SessionRecord, StackRecord  # noqa: E402

SESSIONS, CHANGED_AT, FACTOR, WITHIN = 40, 25, 0.85, 5
LIMIT_BYTES_PER_S = 10 * 2**20
_DIRECT = ("--api", "posix", "--cache", "direct")
_SHARED = ("--transfer", "1m", "--file", "shared")
CASES = {
    "per-process 256k": (*_DIRECT, "--file", "per-process", "--transfer", "256k", "--block", "10m"),
    "per-process 1m": (*_DIRECT, "--file", "per-process", "--transfer", "1m", "--block", "12m"),
    "shared 128k": (*_DIRECT, "--file", "shared", "--transfer", "128k", "--block", "9m"),
    "shared 512k": (*_DIRECT, "--file", "shared", "--transfer", "512k", "--block", "12m"),
    "MPI-IO": ("--api", "mpiio", *_SHARED, "--sync=end", "--block", "12m"),
    "HDF5": ("--api", "hdf5", *_SHARED, "--sync=end", "--block", "12m"),
}
GROUP_NAME = "iowatch-aggressor"
# What detection has: the rates only, what the runs recorded, or whether the aggressor was active (the best case).
KINDS = ("no covariates", "covariates", "the truth as covariate")
DAY_S, START = 86400, 1_735_689_600


# Writes without pause, past the page cache, until it is killed: the group, the file, bytes per call.
_WRITER = """
import mmap, os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
data = mmap.mmap(-1, int(sys.argv[3]))
file = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
while True:
    for block in range(64):
        os.pwrite(file, data, block * len(data))
"""
_NEIGHBOUR_BYTES, _AGGRESSOR_BYTES = 2**15, 2**17


@contextmanager
def others(store: ThrottledStore, active: bool) -> Iterator[None]:
    """The neighbour, and the aggressor while it is active; they share the control group with benchio."""
    sizes = [_NEIGHBOUR_BYTES, *([_AGGRESSOR_BYTES] if active else [])]
    words = [sys.executable, "-c", _WRITER, str(store.tasks_file)]
    running = [subprocess.Popen([*words, str(store.directory / f"other-{size}"), str(size)]) for size in sizes]
    time.sleep(0.3)
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def measure_case(store: ThrottledStore, benchio: str, stage: Path, name: str) -> dict[str, Any]:
    """One run of benchio with covariates before and after it, as a check does."""
    options = ["--pattern", "disjoint", "--repeat", "1"]
    target, record = str(store.directory), stage / "record.json"
    words = [benchio, *options, *CASES[name], "--dir", target, "--json", str(record), "--quiet"]
    lines = [
        covariates.snapshot_command(target, "before"),
        f"(echo $BASHPID > {store.tasks_file}; exec {shlex.join(words)} > /dev/null)",
        covariates.snapshot_command(target, "after"),
    ]
    (stage / covariates.SCRIPT_NAME).write_text(covariates.snapshot_script(CovariateSettings()))
    subprocess.run(["bash", "-ec", "\n".join(lines)], cwd=stage, check=True)
    output = registry.parse_output_file("benchio", record, rc=0, ranks=1, fresh=True)
    return {
        "name": name,
        "case": output.results[0].case,
        "samples": output.results[0].samples,
        "facts": covariates.read_snapshots(stage, CovariateSettings()),
    }


def is_changed(replay: int) -> bool:
    """Whether the store gets slower in a replay: in a third of them."""
    return replay % 3 == 1


def measure(benchio: str, file: Path, first: int, end: int) -> None:
    """Add replays to a file, one session per line: those that are in it are not repeated."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which would leave the store mounted, and its writers
    known = first * SESSIONS + (sum(1 for _ in file.open()) if file.exists() else 0)
    with (
        tempfile.TemporaryDirectory() as name,
        throttled_store(Path(name), GROUP_NAME) as store,
        file.open("a") as lines,
    ):
        for number in range(known, end * SESSIONS):
            replay, session = divmod(number, SESSIONS)
            is_active = np.random.default_rng(replay).permutation(SESSIONS)[session] < SESSIONS // 2
            changed = is_changed(replay) and session >= CHANGED_AT
            store.limit(LIMIT_BYTES_PER_S * (FACTOR if changed else 1.0))
            with others(store, bool(is_active)):
                runs = [measure_case(store, benchio, Path(name), case) for case in CASES]
            line = {"replay": replay, "session": session, "aggressor": bool(is_active), "runs": runs}
            print(json.dumps(line), file=lines, flush=True)


def facts_of_run(session: Mapping[str, Any], run: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The facts of a run with one kind of covariates (`KINDS`)."""
    known = {"processes_blocked": int(session["aggressor"])}
    truth = {"covariates": {"before": known, "after": known}}
    return {"no covariates": {}, "covariates": run["facts"], "the truth as covariate": truth}[kind]


def record_session(history: History, session: Mapping[str, Any], kind: str) -> datetime:
    """Store a session as that of its day; return when it was."""
    moment = START + session["session"] * DAY_S
    uuid = f"session-{session['session']}"
    history.begin_session(SessionRecord(uuid, "store", "aggressor", "run", moment))
    history.record_runs(
        uuid,
        [
            RunRecord(
                run["name"],
                "node",
                StackRecord("one"),
                f"{uuid} {run['name']}",
                moment + position,
                Output("benchio", None, "ok", None, (_result(run),)),
                facts=facts_of_run(session, run, kind),
            )
            for position, run in enumerate(session["runs"])
        ],
    )
    history.end_session(uuid, "ok", moment + 60)
    return datetime.fromtimestamp(moment + 60, UTC)


def _result(run: Mapping[str, Any]) -> Result:
    return Result("write", "bandwidth", "MiB/s", tuple(run["samples"]), run["case"])


def first_findings(sessions: Sequence[Mapping[str, Any]], kind: str) -> dict[str, int]:
    """Number of the session after which a finding was first shown (in any state), reported (exit code 1), open."""
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name, History.open(f"{name}/history.db") as history:
        for session in sessions:
            now = record_session(history, session, kind)
            for finding in update_findings(history, "store", now):
                states = {"shown": True, "reported": finding.needs_action, "open": finding.state == "open"}
                for state in (state for state, is_so in states.items() if is_so):
                    found.setdefault(state, session["session"])
    return found


def _read(file: Path) -> str:
    return lzma.decompress(file.read_bytes()).decode() if file.suffix == ".xz" else file.read_text()


def report(files: Sequence[Path]) -> None:
    """Print how the store and the aggressor look, and what findings made of them."""
    replays: dict[int, list[dict[str, Any]]] = {}
    for line in (line for file in files for line in _read(file).splitlines()):
        replays.setdefault((session := json.loads(line))["replay"], []).append(session)
    whole = {n: sessions for n, sessions in replays.items() if len(sessions) == SESSIONS}
    for case, name in enumerate(CASES):
        rates = {
            active: [
                max(one["runs"][case]["samples"])
                for sessions in whole.values()
                for one in sessions[:CHANGED_AT]
                if one["aggressor"] == active
            ]
            for active in (False, True)
        }
        texts = (f"{np.median(values):.1f} MiB/s (scatter {np.std(np.log(values)):.3f})" for values in rates.values())
        print(f"{name}: alone {next(texts)}, with the aggressor {next(texts)}")
    for kind in KINDS:
        print(f"{kind}:")
        found = {number: first_findings(sessions, kind) for number, sessions in whole.items()}
        alone = [one for number, one in found.items() if not is_changed(number)]
        changed = [one for number, one in found.items() if is_changed(number)]
        for state in ("shown", "reported", "open"):
            false = sum(state in one for one in alone)
            early = sum(one.get(state, SESSIONS) < CHANGED_AT for one in changed)
            delays = sorted(one[state] - CHANGED_AT + 1 for one in changed if one.get(state, -1) >= CHANGED_AT)
            in_time = sum(delay <= WITHIN for delay in delays)
            print(
                f"  {state}: aggressor alone {false} of {len(alone)} replays; slower store {in_time} of "
                f"{len(changed)} within {WITHIN} sessions (after {delays}), before it {early}"
            )


def print_cost() -> None:
    """Print the time of a snapshot (a run has two), of which the job waits for every part."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / covariates.SCRIPT_NAME).write_text(covariates.snapshot_script(CovariateSettings()))
        command = covariates.snapshot_command(name, "before")
        lines = f"for i in {{1..21}}; do a=$EPOCHREALTIME; {command}; echo $a $EPOCHREALTIME; done"
        done = subprocess.run(["bash", "-c", lines], cwd=name, check=True, capture_output=True, text=True)
    times = np.array([[float(word) for word in line.split()] for line in done.stdout.splitlines()])
    low, middle, high = 1000 * np.quantile(times[:, 1] - times[:, 0], (0.05, 0.5, 0.95))
    load = Path("/proc/loadavg").read_text().split()[0]
    print(f"snapshot of covariates: {middle:.0f} ms ({low:.0f} to {high:.0f}), load average {load}")


def main() -> int:
    """Measure, report, or print the cost."""
    words = sys.argv[1:]
    if len(words) == 5 and words[0] == "measure":
        measure(words[1], Path(words[2]), int(words[3]), int(words[4]))
    elif words == ["cost"]:
        print_cost()
    elif words and words[0] != "measure":
        report([Path(word) for word in words])
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
