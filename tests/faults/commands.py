"""Kills of every command that writes: all files stay readable, and the repeated command completes its work."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import yaml

from iowatch.cli.main import _run_command
from iowatch.core import settings
from iowatch.demo.scenarios import DEMONSTRATIONS, replay_demonstration
from iowatch.store import History, maintenance
from tests.conftest import ROOT
from tests.faults import material
from tests.faults.kills import Work, forked

_FACTS = "name: demo\ntitle: A system whose commands are killed\n"
_NOTIFY = "digest: never\nchannels:\n  - {name: desk, kind: issue, directory: desk}\n"
_BY = "--by somebody"
# Words of each command; `{n}` is the number of the kill, `{place}` a directory for its files.
COMMANDS = {
    "event add": f"event add maintenance-{{n}} --system demo --date 2026-01-02 --kind upgrade {_BY}",
    "review note": f"review note {{finding}} --reason ticket-{{n}} {_BY}",
    "review accept": f"review accept {{finding}} --reason ticket-{{n}} {_BY}",
    "reference propose": f"reference propose --system demo --write {_BY}",
    "import": "import ior {output} --system demo --time 2026-05-01T00:00:00Z --stack stack-{n}",
    "history backup": "history backup {place}/backup-{n}.db",
    "history export": "history export --format csv --output {place}/export-{n}.csv",
    "history export parquet": "history export --format parquet --output {place}/export-{n}.parquet",
    "findings list": "findings list --system demo",
    "notify": "notify --system demo",
    "dashboard build": "dashboard build --output {place}/site",
    "history prune": "history prune --days 0",
}


class Command(Work):
    """One command, in a checkout of its own, with the history of `iowatch demo regress`."""

    def __init__(self, draw: Random, name: str) -> None:
        super().__init__(draw)
        self.name, self.number = name, 0
        base = settings.var_directory()
        self.root, self.place, self.output = base / "root", base / "files", base / "ior.out"
        self.place.mkdir(parents=True)
        _copy_checkout(self.root)
        os.environ["IOWATCH_ROOT"] = str(self.root)
        (base / "iowatch.db").write_bytes(_demonstration())
        with History.open() as history:
            self.finding = history.findings("demo")[0].id
            self.content = material.content(history)
        shutil.copy(ROOT / "tests/data/ior-4.0.0-smoke.json", self.output)

    def prepare(self) -> None:
        self.number += 1

    @property
    def words(self) -> list[str]:
        facts = {"n": self.number, "place": self.place, "finding": self.finding, "output": self.output}
        return [word.format(**facts) for word in COMMANDS[self.name].split()]

    def _run(self) -> None:
        """In a fork: exit code 1 is a finding."""
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        code = _run_command(self.words)
        if code not in (0, 1):
            raise SystemExit(code)

    def begin(self) -> int:
        return forked(self._run)

    def after(self) -> list[str]:
        found = [f"after the kill: {text}" for text in self._damaged()]
        again = os.waitstatus_to_exitcode(os.waitpid(self.begin(), 0)[1])
        if again and not self._refused_because_done():
            found.append(f"the repeated command ends with {again}")
        return found + [f"after the repeated command: {text}" for text in (*self._damaged(), *self._incomplete())]

    def _refused_because_done(self) -> bool:
        """A backup never replaces a file: that of a command that was killed after its last step is complete."""
        return self.name == "history backup" and (self.place / f"backup-{self.number}.db").exists()

    def _damaged(self) -> Iterator[str]:
        with History.open() as history:
            yield from maintenance.check_history(history).faults
        for path in (self.root / "reference").rglob("demo.yaml"):
            if not isinstance(yaml.safe_load(path.read_text()), dict):
                yield f"{path} is not complete"
        for path in self.place.glob("*.csv"):
            if len(path.read_text().splitlines()) < 2 or not path.read_bytes().endswith(b"\n"):
                yield f"{path} is truncated"
        for path in self.place.glob(f"backup-{self.number}.db"):
            with History.open(str(path)) as backup:
                if material.content(backup) != self.content:
                    yield f"{path} is not the history"
        yield from material.broken_artefacts()

    def _incomplete(self) -> Iterator[str]:
        texts = "".join(path.read_text() for path in (self.root / "reference").rglob("demo.yaml"))
        wanted = {"event add": f"maintenance-{self.number}", "review note": f"ticket-{self.number}"}
        wanted["review accept"] = wanted["review note"]
        if (text := wanted.get(self.name)) and text not in texts:
            yield f"{text} is not recorded"
        made = {"history export": "export-{}.csv", "history export parquet": "export-{}.parquet"}
        made["history backup"] = "backup-{}.db"
        if (name := made.get(self.name)) and not (self.place / name.format(self.number)).exists():
            yield f"{name.format(self.number)} is missing"
        if self.name == "import":
            with History.open() as history:
                stacks = [run.stack for s in history.sessions() for run in history.runs(s.uuid)]
            if stacks.count(f"stack-{self.number}") != 1:
                yield f"the output is {stacks.count(f'stack-{self.number}')} times in the history"


@cache
def _demonstration() -> bytes:
    """The SQLite file of a history with findings."""
    with tempfile.TemporaryDirectory() as place:
        with History.open(f"{place}/history.db") as history:
            list(replay_demonstration(history, DEMONSTRATIONS["regress"], 2009))
            maintenance.backup_history(history, Path(place, "backup.db"))
        return Path(place, "backup.db").read_bytes()


def _copy_checkout(root: Path) -> None:
    for part in ("benchmarks", "systems/local", "dashboards", "reference"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("build*", "__pycache__", "stacks"))
    facts = root / "systems" / "demo"
    facts.mkdir()
    (facts / "system.yaml").write_text(_FACTS)
    (facts / "notify.yaml").write_text(_NOTIFY)
