"""A database server that restarts, or goes away, while a session runs: no finished case is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from iowatch import checks
from iowatch.session.file_systems import LockedFileSystem, LockedSession
from iowatch.session.runner import SessionRunner
from iowatch.store import History, SessionRecord
from tests import postgresql
from tests.faults import material

# Between two cases.
_PAUSE_S = 0.05


class Session(SessionRunner):
    """A session whose cases are finished by a thread, as ReFrame does it in a process."""

    def __init__(self, history: History, scratch: Path, cases: int, uuid: str) -> None:
        context: Any = None  # nothing is planned or started
        session = LockedSession(context, {None: LockedFileSystem(scratch, {})}, {})
        record = SessionRecord(uuid, material.SYSTEM, "smoke", "run", 1_700_000_000)
        super().__init__(history, session, record, material.expected(cases))
        self.cases = cases
        self.checks = threading.Thread(target=self._spool)

    def _spool(self) -> None:
        for number in range(self.cases):
            time.sleep(_PAUSE_S)
            output = material.output(Random(number), number + 1).to_json()
            place = f"ior:{number}", "ior", "compute", material.STACK.name, material.STACK.document
            checks.spool_case(self.directory, checks.SpooledCase(*place, 1_700_000_000, 1.0, output), {})

    def execute(self) -> None:
        self.checks.start()
        while self.checks.is_alive():
            self.ingest()
            time.sleep(_PAUSE_S)
        self.ingest_all()
        self.status = "incomplete" if self.missing() else "ok"


def session_with_restarts(socket: Path, restarts: int, scratch: Path, draw: Random) -> list[str]:
    """Restart the server so often within one session; what is wrong afterwards."""
    url, uuid = postgresql.create_database(socket, f"restarts-{draw.getrandbits(32)}"), "restarted"
    stop = threading.Event()
    done = 0

    def restart() -> None:
        nonlocal done
        while done < restarts and not stop.is_set():
            time.sleep(draw.uniform(0, 0.5))
            postgresql.control(socket, "restart", "-m", draw.choice(("fast", "immediate")))
            done += 1

    with History.open(url) as history:
        session = Session(history, scratch, 30 * restarts, uuid)
        thread = threading.Thread(target=restart)
        thread.start()
        try:
            session.run()
        finally:
            stop.set()
            thread.join()
        faults = [f"{item} is missing" for item in session.missing()]
        faults += [f"{n} is stored {k} times" for n, k in Counter(r.name for r in history.runs(uuid)).items() if k > 1]
        if (status := history.session(uuid).status) != "ok":
            faults.append(f"the session is {status}")
    if done < restarts:
        faults.append(f"only {done} of {restarts} restarts fell into the session")
    return faults
