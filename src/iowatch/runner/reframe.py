"""Starting ReFrame and following it: the only place that knows its command line and its report."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch import paths
from iowatch.errors import MachineError
from iowatch.runner.plan import Plan
from iowatch.runner.site import Site

_POLL_S = 0.1
# How a ReFrame is ended, and how long each is waited for before it is killed. An interrupt comes first: in
# ReFrame a SIGTERM becomes an ordinary exception, is lost where those of a check are caught, and no other is
# heard then.
_ENDINGS = ((signal.SIGINT, 10), (signal.SIGTERM, 10))
_PR_SET_PDEATHSIG = 1
_LOG, _REPORT = "reframe.log", "report.json"


@dataclass(frozen=True)
class Failure:
    """A test that ReFrame could not complete: which, in which phase, why."""

    test: str
    stack: str
    phase: str
    reason: str


def command(site: Site, plan: Plan, suite: str, place: Path) -> list[str]:
    """ReFrame's command line for a plan; `place` is the session's directory."""
    checks = sorted({run.case.benchmark for run in plan.runs})
    stacks = sorted({run.stack for run in plan.runs})
    paths_of_checks = [
        word for name in checks for word in ("-c", str(paths.root() / "reframe_tests" / f"{name}.py"))
    ]
    return [
        str(Path(sys.executable).with_name("reframe")),
        *("-C", str(site.configuration), "--system", site.system),
        *paths_of_checks,
        *("-t", f"^{suite}$"),
        *[word for stack in stacks for word in ("-p", f"^{site.environment(stack)}$")],
        *("--exec-policy", "serial", "--nocolor"),
        *("--prefix", str(place / "reframe"), "--report-file", str(place / _REPORT)),
        "-r",
    ]


def follow(words: list[str], place: Path, environment: dict[str, str], each_poll: Callable[[], None]) -> int:
    """Run ReFrame to its end, calling `each_poll` every 0.1 s and once after; returns its exit code.

    A termination or interrupt of this process ends ReFrame and its jobs first.

    Raises:
        MachineError: ReFrame cannot be started.
    """
    (place / _REPORT).unlink(missing_ok=True)  # of an earlier turn
    with (place / _LOG).open("wb") as stream:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=place,
                env={**os.environ, **environment},
                preexec_fn=_listen,
                start_new_session=True,
            )
        except OSError as error:
            raise MachineError(f"cannot start ReFrame: {error}") from error
        with _ended(process):
            while process.poll() is None:
                each_poll()
                time.sleep(_POLL_S)
    each_poll()
    return process.returncode


def _listen() -> None:
    # A killed `iowatch run` must not leave benchmarks running beside the next night's.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    # Shells start what is in the background deaf to interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave no ReFrame behind, whatever ends the block."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, seconds in _ENDINGS:
        if process.poll() is None:
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def broken(place: Path) -> str | None:
    """Why ReFrame ended without a report (a bad configuration, …), from its log; None where it wrote one."""
    if (place / _REPORT).exists():
        return None
    try:
        lines = (place / _LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    said = next((line for line in reversed(lines) if line.startswith("ERROR")), "it says nothing")
    return f"ReFrame ended without a report: {said} ({place / _LOG})"


def _stopped(place: Path) -> list[str]:
    """Why ReFrame gave up in the middle, with the words of the command that failed; empty where it did not."""
    log = (place / _LOG).read_text(encoding="utf-8", errors="replace") if (place / _LOG).exists() else ""
    found = re.search(r"^ERROR: (run session stopped: .*?)^Log file", log, re.MULTILINE | re.DOTALL)
    words = re.sub(r"--- std(?:out|err) ---", "", found.group(1)) if found else ""
    return [" ".join(words.split())] if found else []


def failures(place: Path, site: Site) -> list[Failure]:
    """Failed tests of ReFrame's report; where it wrote none, ReFrame itself."""
    reason = broken(place)
    if reason:
        return [Failure("ReFrame", "", "start", reason)]
    try:
        report = json.loads((place / _REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    stopped = [Failure("ReFrame", "", "run", words) for words in _stopped(place)]
    cases = [case for run in report.get("runs", []) for case in run.get("testcases", [])]
    return stopped + [
        Failure(
            test=str(case.get("display_name") or case.get("name")),
            stack=site.stack(str(case.get("environ"))),
            phase=str(case.get("fail_phase")),
            reason=" ".join(str(case.get("fail_reason") or "").split()),
        )
        for case in cases
        if case.get("result") == "fail"
    ]
