"""Findings of real sessions, measured again in another clone: half by an exchanged library, half by a busy machine.

    python bench/reproduce_planted.py record --directory DIR --base STACK --slower STACK --equal STACK
    python bench/reproduce_planted.py reproduce --directory DIR

`record` needs three installed Spack stacks of the site, of which `slower` loses by a library and `equal` does not. Each
trial is a history of its own: eight sessions of one stack with the packages of `base`; then six with those of `slower`
(*planted*), or with those of `equal` while other processes use all processors (*noise*). Sessions are dated one day
apart afterwards. `reproduce` is for another clone, which has neither the stacks nor a network, but a build cache
(docs/gate.md): `unshare -n` and Spack's settings are the caller's. Both go on where they stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

STACK, BEFORE, AFTER, DAY_S = "exchanged", 8, 6, 86400
CASES = [
    f"benchio:api={api},access=collective,chunk=64x64x16,local=64x64x64,filter=deflate" for api in ("netcdf4", "hdf5")
]


def iowatch(*words: object, db: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"IOWATCH_DB": str(db)} if db else {})}
    return subprocess.run(
        ["iowatch", *map(str, words)], env=environment, check=False, capture_output=True, text=True
    )  # fmt: skip


def install(name: str) -> None:
    """Give the stack of all sessions the packages of another one, as an upgrade does."""
    site, var = Path(os.environ["IOWATCH_SITE"]), Path(os.environ["IOWATCH_VAR"])
    folder = site / "stacks" / STACK
    folder.mkdir(exist_ok=True)
    shutil.copy(site / "stacks" / name / "spack.yaml", folder)
    shutil.copy(var / "stacks" / "local" / name / "env" / "spack.lock", folder)
    done = iowatch("stack", "install", STACK)
    if done.returncode:
        raise SystemExit(done.stderr)


@contextmanager
def busy_machine() -> Iterator[None]:
    """Three processes per processor, each in a session of its own, as Linux shares processors among these."""
    words = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(words, start_new_session=True) for _ in range(3 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


def measure(place: Path, trials: range, sessions: int) -> None:
    """Sessions of each trial until its history has so many."""
    for trial in trials:
        db = place / f"{trial}.db"
        while len(read_sessions(db)) < sessions:
            case = CASES[trial % len(CASES)]
            done = iowatch("run", "--suite", "gate", "--stack", STACK, "--case", case, "--scratch", "/dev/shm", db=db)  # noqa: S108
            if done.returncode > 1:
                raise SystemExit(done.stderr)


def read_sessions(db: Path) -> list[tuple[int, int]]:
    """(id, start) of the sessions, oldest first."""
    if not db.exists():
        return []
    with closing(sqlite3.connect(db)) as connection:
        return connection.execute("SELECT id, started_at FROM session ORDER BY id").fetchall()


def spread_over_days(db: Path) -> None:
    """Date the sessions one day apart, the newest today."""
    rows = read_sessions(db)
    with closing(sqlite3.connect(db)) as connection, connection:
        for age, (number, started) in enumerate(reversed(rows)):
            moved = (int(time.time()) - age * DAY_S - started, number)
            connection.execute(
                "UPDATE result SET time = time + ? WHERE run_id IN (SELECT id FROM run WHERE session_id = ?)", moved
            )
            connection.execute("UPDATE run SET started_at = started_at + ? WHERE session_id = ?", moved)
            connection.execute(
                "UPDATE session SET started_at = started_at + ?1, ended_at = ended_at + ?1 WHERE id = ?2", moved
            )


def record(place: Path, count: int, base: str, slower: str, equal: str) -> None:
    install(base)
    measure(place, range(2 * count), BEFORE)
    install(slower)
    measure(place, range(count), BEFORE + AFTER)
    install(equal)
    with busy_machine():
        measure(place, range(count, 2 * count), BEFORE + AFTER)
    with (place / "findings.jsonl").open("w") as file:
        for trial in range(2 * count):
            db = place / f"{trial}.db"
            spread_over_days(db)
            iowatch("findings", "update", db=db)
            listed = json.loads(iowatch("findings", "list", "--json", db=db).stdout)["findings"]
            kind = "planted" if trial < count else "noise"
            rows = [{"id": one["id"], "size": one["size"], "direction": one["direction"]} for one in listed]
            print(line := json.dumps({"trial": trial, "kind": kind, "findings": rows}), flush=True)
            file.write(f"{line}\n")


def reproduce(place: Path) -> None:
    answers = place / "answers.jsonl"
    known = [json.loads(line) for line in answers.read_text().splitlines()] if answers.exists() else []
    done = {one["trial"] for one in known}
    for line in (place / "findings.jsonl").read_text().splitlines():
        trial: dict[str, Any] = json.loads(line)
        if trial["trial"] in done or not trial["findings"]:
            continue
        db = place / f"{trial['trial']}-here.db"
        shutil.copy(place / f"{trial['trial']}.db", db)
        started = time.monotonic()
        found = iowatch("reproduce", trial["findings"][0]["id"], "--scratch", "/dev/shm", "--json", db=db)  # noqa: S108
        document = json.loads(found.stdout) if found.stdout else {"answer": found.stderr[-400:]}
        names = ("answer", "change", "recorded_change", "pairs")
        row = {"trial": trial["trial"], "kind": trial["kind"], **{name: document.get(name) for name in names}}
        row["seconds"] = round(time.monotonic() - started, 1)
        print(text := json.dumps(row), flush=True)
        with answers.open("a") as file:
            file.write(f"{text}\n")
        known.append(row)
    for kind in ("planted", "noise"):
        print(kind, dict(Counter(one["answer"] for one in known if one["kind"] == kind)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=["record", "reproduce"])
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--count", type=int, default=10, help="trials of each kind")
    for name in ("base", "slower", "equal"):
        parser.add_argument(f"--{name}", help="a stack of the site")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    if given.step == "record":
        record(given.directory.absolute(), given.count, given.base, given.slower, given.equal)
    else:
        reproduce(given.directory.absolute())


if __name__ == "__main__":
    main()
