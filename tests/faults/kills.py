"""Kill -9 at random times: start work, kill it, repeat it; no data may be lost, duplicated or incomplete."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from iowatch.core import settings
from iowatch.output.dashboard.build import build_site
from iowatch.session.directory import recover_sessions
from iowatch.store import History
from iowatch.store.maintenance import copy_history
from tests.conftest import ROOT
from tests.faults import material
from tests.faults.processes import remaining_processes
from tests.postgresql import create_database

IOWATCH = ROOT / ".venv" / "bin" / "iowatch"
# Links to files of the site; others have a scheme.
_LINK = re.compile(r'(?:href|src)="([^"#?:]+)')


@dataclass
class Tally:
    """The result of the kills of one kind of work.

    Attributes:
        undisturbed_s: duration of the work without a kill; kills are drawn uniformly from this time.
        kills: kills of a running process; late: kills after its end.
        faults: descriptions of what was wrong afterwards.
    """

    name: str
    undisturbed_s: float = 0.0
    kills: int = 0
    late: int = 0
    faults: list[str] = field(default_factory=list)


class Work:
    """One kind of work that is killed."""

    name = ""

    def __init__(self, draw: Random) -> None:
        self.draw = draw

    def prepare(self) -> None:
        """Prepare the work; nothing by default."""

    def begin(self) -> int:
        """Start a process that does the work; return its process id."""
        raise NotImplementedError

    def after(self) -> list[str]:
        """Check the state, repeat the work completely, check again; return what is wrong."""
        raise NotImplementedError


def campaign(work: Work, kills: int) -> Tally:
    """Do the work twice, then kill it at `kills` random times within the duration of the second execution."""
    tally = Tally(work.name)
    for _ in range(2):
        work.prepare()
        begun = time.monotonic()
        if _status(work.begin()) not in (0, 1):
            tally.faults.append("it fails even when it is let alone")
        tally.undisturbed_s = time.monotonic() - begun
        tally.faults += work.after()
    while tally.kills < kills and tally.late < 3 * kills:
        work.prepare()
        victim = work.begin()
        time.sleep(work.draw.uniform(0, tally.undisturbed_s))
        os.kill(victim, signal.SIGKILL)
        hit = _status(victim) == -signal.SIGKILL
        tally.kills += hit
        tally.late += not hit
        tally.faults += work.after()
    return tally


def _status(process: int) -> int:
    """Exit code of a child, negative for the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def forked(work: Callable[[], object]) -> int:
    """Do the work in a fork: all modules are imported already, so that kills hit the work itself."""
    number = os.fork()
    if number == 0:
        code = 3
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return number


class Ingest(Work):
    """Ingest a killed session: spool to history, case by case."""

    name = "ingest"
    cases = 12

    def __init__(self, draw: Random, place: str | None = None) -> None:
        super().__init__(draw)
        self.place, self.session_count = place, 0
        self.finished: dict[tuple[str, str, str], object] = {}

    def prepare(self) -> None:
        self.session_count += 1
        with History.open(self.place) as history:
            material.spooled_session(history, self.draw, self.cases, 1_700_000_000 + 86400 * self.session_count)
        self.finished |= material.finished_cases()

    def _recover(self) -> None:
        with History.open(self.place) as history:
            recover_sessions(history, material.SYSTEM)

    def begin(self) -> int:
        return forked(self._recover)

    def after(self) -> list[str]:
        self._recover()
        with History.open(self.place) as history:
            found = material.losses(self.finished, history)
            found += [f"session {s.uuid} is still open" for s in history.sessions() if s.status == "running"]
        found += [f"{key} is still in the spool" for key in material.finished_cases()]
        return found + material.broken_artefacts()


class Site(Work):
    """Build the dashboard after a new session: readers see the old or the new site, never a partial one."""

    name = "dashboard build"

    def __init__(self, draw: Random) -> None:
        super().__init__(draw)
        self.site, self.session_count = settings.var_directory() / "site", 10
        with History.open() as history:
            material.recorded_sessions(history, draw, range(self.session_count))

    def prepare(self) -> None:
        with History.open() as history:
            material.recorded_sessions(history, self.draw, range(self.session_count, self.session_count + 1))
        self.session_count += 1

    def _build(self) -> None:
        with History.open() as history:
            build_site(history, self.site)

    def begin(self) -> int:
        return forked(self._build)

    def after(self) -> list[str]:
        found = self._whole("after the kill")
        self._build()
        found += self._whole("after the next build")
        versions = [p for p in self.site.with_name(".site.versions").iterdir() if p.is_dir()]
        kept = {p.resolve() for p in versions} - {self.site.resolve()}
        if len(kept) > 1:
            found.append(f"{len(kept)} old versions were left")
        if f"night-{self.session_count - 1:05d}" not in self._sessions():
            found.append("the newest night is not in the site")
        return found

    def _sessions(self) -> str:
        return " ".join(path.name for path in (self.site / "session").glob("*"))

    def _whole(self, when: str) -> list[str]:
        if not self.site.exists():
            return []  # the very first build was killed
        found = []
        for page in self.site.rglob("*.html"):
            text = page.read_text()
            if not text.rstrip().endswith("</html>"):
                found.append(f"{when}: {page} is truncated")
            links = {link for link in _LINK.findall(text) if not (page.parent / link).exists()}
            found += [f"{when}: {page} links to {link}, which is missing" for link in sorted(links)]
        return found or ([] if (self.site / "index.html").is_file() else [f"{when}: the site has no first page"])


class Copy(Work):
    """Copy a history into a new one: sessions in it are complete, and a second copy adds the rest."""

    name = "copy"

    def __init__(self, draw: Random, socket: Path | None = None) -> None:
        super().__init__(draw)
        self.socket, self.copies = socket, 0
        with History.open() as source:
            material.recorded_sessions(source, draw, range(8))
            self.content = material.content(source)
            self.runs = {session.uuid: session.runs for session in source.sessions()}

    @property
    def target(self) -> str:
        name = f"copy-{self.copies}"
        return create_database(self.socket, name) if self.socket else str(settings.var_directory() / f"{name}.db")

    def prepare(self) -> None:
        self.copies += 1
        _ = self.target  # created here: a server goes on to create a database whose client was killed

    def _copy(self) -> None:
        with History.open() as source, History.open(self.target) as target:
            copy_history(source, target)

    def begin(self) -> int:
        return forked(self._copy)

    def after(self) -> list[str]:
        with History.open(self.target) as target:
            partial = [row.uuid for row in target.sessions() if row.runs != self.runs[row.uuid]]
        self._copy()
        with History.open(self.target) as target:
            whole = material.content(target) == self.content
        return [f"session {uuid} is copied in part" for uuid in partial] + ([] if whole else ["the copy differs"])


class Program(Work):
    """A program with its own `var/`, killed like by the out-of-memory killer: this process only."""

    words: tuple[str, ...] = ()

    def begin(self) -> int:
        with Path(os.devnull).open("wb") as nowhere:
            file_actions_ = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), n) for n in (1, 2)]
            return os.posix_spawn(self.words[0], self.words, self.environment(), file_actions=file_actions_)

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "IOWATCH_VAR": str(settings.var_directory())}


class Run(Program):
    """`iowatch run` of a suite of three cases."""

    name = "run"

    def __init__(self, draw: Random, stack: str) -> None:
        super().__init__(draw)
        self.words = (str(IOWATCH), "run", "--suite", "tiny", "--stack", stack)
        self.finished: dict[tuple[str, str, str], object] = {}
        self.longest_survival_s = 0.0

    def after(self) -> list[str]:
        self.finished |= material.finished_cases()
        with History.open() as history:
            self.finished |= dict(material.kept_cases(history))
            before = {s.uuid for s in history.sessions()}
        # The next run starts at once, even if processes of the killed one still run.
        found = [] if (code := _status(self.begin())) in (0, 1) else [f"the next run ends with {code}"]
        with History.open() as history:
            found += material.losses(self.finished, history)
            sessions = history.sessions()
        found += [f"session {s.uuid} is still open" for s in sessions if s.status == "running"]
        new = [s for s in sessions if s.uuid not in before and s.status == "ok"]
        if len(new) != 1:
            found.append(f"the next run is {[s.status for s in sessions if s.uuid not in before]}")
        found += [f"{p} is left in scratch" for p in (settings.var_directory() / "scratch").glob("iowatch-*")]
        found += [f"process {n} goes on" for n in remaining_processes(settings.var_directory())]
        return found + material.broken_artefacts()


class FirstBuild(Run):
    """The same if benchio must be built first: a partially built program must not run."""

    name = "benchio build"

    def prepare(self) -> None:
        shutil.rmtree(settings.var_directory() / "build", ignore_errors=True)
