"""The complete campaign of faults: `python -m tests.faults.campaign [--kills 200] [--seed 1] [--only NAME …]`.

Kills are shared evenly between the kinds of work. Prints a table; exit code 1 if a fault was found.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

from tests import postgresql
from tests.faults.commands import COMMANDS, Command
from tests.faults.concurrency import concurrent_sessions, same_runs, writers
from tests.faults.false_green import ATTEMPTS, run_attempt
from tests.faults.kills import Copy, FirstBuild, Ingest, Run, Site, Tally, Work, campaign
from tests.faults.outages import session_with_restarts
from tests.faults.poison import DAMAGES, poisoned_intake

Maker = Callable[[Random], Work]


def kinds(socket: Path | None) -> dict[str, Maker]:
    """Every kind of work by its name; those of PostgreSQL if a server is given."""
    from iowatch.site.stack.load import discover_stacks

    stacks = [found.name for found in discover_stacks("local") if found.status == "installed"]
    made: dict[str, Maker] = {"ingest": Ingest, "site": Site, "copy": Copy}
    made |= {name: partial(Command, name=name) for name in COMMANDS}
    if stacks:
        made |= {"run": lambda draw: Run(draw, stacks[-1]), "build": lambda draw: FirstBuild(draw, stacks[-1])}
    if socket is not None:
        made["ingest-postgresql"] = lambda draw: Ingest(draw, postgresql.create_database(socket, "ingest"))
        made["copy-postgresql"] = lambda draw: Copy(draw, socket)
    return made


@contextmanager
def own_var() -> Iterator[None]:
    """A `var/` for one kind of work."""
    with tempfile.TemporaryDirectory(prefix="iowatch-faults-") as place:
        os.environ["IOWATCH_VAR"] = place
        for other in ("IOWATCH_DB", "IOWATCH_ROOT"):
            os.environ.pop(other, None)
        yield


@contextmanager
def _server() -> Iterator[Path | None]:
    if (why := postgresql.usable()) is not None:
        print(f"PostgreSQL is left out: {why}", file=sys.stderr)
        yield None
        return
    with postgresql.server() as socket:
        yield socket


def main() -> int:
    """Run what was requested; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="ingest, site, copy, run, build, …-postgresql, false-green")
    chosen = parser.parse_args()
    with _server() as socket:
        made = {n: maker for n, maker in kinds(socket).items() if not chosen.only or n in chosen.only}
        tallies = []
        if not chosen.only:
            tallies += several(socket)
        if not chosen.only or "false-green" in chosen.only:
            tallies += false_greens()
        for position, (name, maker) in enumerate(made.items()):
            share = (chosen.kills + position) // len(made)
            tallies.append(_one(name, maker, share, chosen.seed))
    return 1 if any(tally.faults for tally in tallies) else 0


def several(socket: Path | None) -> list[Tally]:
    """What is not a kill: damaged spools, many writers, restarts of PostgreSQL, two nightlies at the same moment."""
    from iowatch.site.stack.load import discover_stacks

    found = []
    for kind in ("SQLite", "PostgreSQL") if socket else ("SQLite",):

        def place(name: str, kind: str = kind) -> str | None:
            return postgresql.create_database(socket, name) if socket and kind == "PostgreSQL" else None

        with own_var():
            found.append(Tally(f"poison, {kind}", faults=poisoned_intake(place("poison"))))
        print(f"{found[-1].name:<22}{len(DAMAGES)} damaged cases   {len(found[-1].faults)} faults", flush=True)
        for name, work in (("8 writers", writers), ("8 same writers", same_runs)):
            with own_var():
                took, faults = work(place(name))
            found.append(Tally(f"{name}, {kind}", faults=faults))
            print(f"{found[-1].name:<28}{took:7.2f} s for 800 runs   {len(faults)} faults", flush=True)
    if socket:
        with own_var(), tempfile.TemporaryDirectory() as scratch:
            found.append(Tally("restarts", faults=session_with_restarts(socket, 20, Path(scratch), Random(1))))
        print(f"{'PostgreSQL restarts':<22}20 in a session of 600 cases   {len(found[-1].faults)} faults", flush=True)
    stacks = [one.name for one in discover_stacks("local") if one.status == "installed"]
    if stacks:
        with own_var():
            faults = [
                fault for _ in range(10) for fault in concurrent_sessions(stacks[-1], Path(os.environ["IOWATCH_VAR"]))
            ]
        print(f"{'2 nightlies at once':<22}10 times   {len(faults)} faults", flush=True)
        found.append(Tally("rivals", faults=faults))
    for tally in found:
        for fault in tally.faults[:20]:
            print(f"    {fault}", flush=True)
    return found


def false_greens() -> list[Tally]:
    """Every attempt at a green session although something is absent or wrong."""
    found = []
    for attempt in ATTEMPTS if shutil.which("mpicc") else ():
        if reason := attempt.impossible():
            print(f"false green: {attempt.name} is left out: {reason}", file=sys.stderr)
            continue
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="iowatch-faults-") as place:
            found.append(Tally(attempt.name, faults=run_attempt(attempt, Path(place, "site"))))
        print(f"false green: {attempt.name:<56}{len(found[-1].faults)} faults   ({time.monotonic() - begun:.0f} s)")
        for fault in found[-1].faults:
            print(f"    {fault}", flush=True)
    return found


def _one(name: str, maker: Maker, kills: int, seed: int) -> Tally:
    begun = time.monotonic()
    with own_var():
        tally = campaign(maker(Random(f"{seed} {name}")), kills)
    tally.name = name
    took = time.monotonic() - begun
    line = f"{tally.kills} kills, {tally.late} came too late, {len(tally.faults)} faults"
    print(f"{name:<22}{tally.undisturbed_s:7.2f} s undisturbed   {line}   ({took:.0f} s)", flush=True)
    for fault in tally.faults[:20]:
        print(f"    {fault}", flush=True)
    return tally


if __name__ == "__main__":
    sys.exit(main())
