"""`ci/nightly` with mock-ups that record their calls: the arguments that it passes and its exit code."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.conftest import ROOT

FAKE = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
echo "$1 answers"; echo "$1 complains" >&2
[ "$1 ${BUILDS:-}" != "stack yes" ] || { mkdir -p var/stacks/local/quick; : > var/stacks/local/quick/stack.json; }
case "$*" in *"--stack quick"*) exit ${SECOND:-0} ;; esac
case $1 in run) exit $RUN ;; stack) exit ${STACK:-0} ;; dashboard) exit $DASHBOARD ;; notify) exit $NOTIFY ;; esac
"""


def nightly(
    place: Path,
    *words: str,
    run: int = 0,
    dashboard: int = 0,
    notify: int = 0,
    stdout: IO[str] | None = None,
    **more: str,
) -> tuple[int, list[str]]:
    """Exit code, and the calls of `iowatch` in order."""
    for name in ("ci", ".venv/bin"):
        (place / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "ci" / "nightly", place / "ci" / "nightly")
    for name, text in (("ci/setup", "#!/bin/sh\n"), (".venv/bin/iowatch", FAKE)):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    calls = place / "calls"
    codes = {"RUN": str(run), "DASHBOARD": str(dashboard), "NOTIFY": str(notify)}
    done = subprocess.run(
        [str(place / "ci" / "nightly"), *words],
        env={"PATH": "/usr/bin:/bin", "CALLS": str(calls), **codes, **more},
        stdout=stdout or subprocess.PIPE,
        stderr=stdout or subprocess.PIPE,
        check=False,
    )
    return done.returncode, calls.read_text().splitlines()


def test_nightly_runs_builds_dashboard_and_notifies(tmp_path: Path) -> None:
    words = ("--suite", "nightly", "--system", "archer2", "--db=var/x.db")
    code, calls = nightly(tmp_path, *words)
    assert code == 0
    assert calls == [
        "run --night --suite nightly --system archer2 --db=var/x.db",
        "dashboard build --db=var/x.db",
        "notify --system local --system archer2 --db=var/x.db",  # the last of two equal options counts
    ]


QUICK_FOLDER = Path("systems/local/stacks/quick")


def _declare_quick_stack(site: Path) -> None:
    (site / QUICK_FOLDER).mkdir(parents=True)
    (site / QUICK_FOLDER / "spack.yaml").write_text("spack: {specs: []}\n")


def test_first_night_measures_then_builds_then_completes(tmp_path: Path) -> None:
    """The session reports before anything is built; pages and notices have both sessions."""
    _declare_quick_stack(tmp_path)
    words = ("--suite", "smoke", "--junit", "first.xml", "--build-stack", "quick")
    code, calls = nightly(tmp_path, *words, BUILDS="yes")
    assert code == 0
    assert calls == [
        "run --night --suite smoke --junit first.xml",
        "stack install quick --system local --where-possible",
        "run --night --no-jitter --stack quick --suite smoke",
        "dashboard build",
        "notify --system local",
    ]
    # The second night finds the stack, and its one session has all stacks.
    (tmp_path / "calls").unlink()
    _, calls = nightly(tmp_path, *words)
    assert calls[:2] == ["run --night --suite smoke --junit first.xml", "dashboard build"]


@pytest.mark.parametrize(("run", "second", "expected"), [(0, 1, 1), (1, 0, 1), (0, 3, 3)])
def test_worse_of_both_sessions_is_the_exit_code(tmp_path: Path, run: int, second: int, expected: int) -> None:
    _declare_quick_stack(tmp_path)
    code, _ = nightly(tmp_path, "--build-stack=quick", run=run, BUILDS="yes", SECOND=str(second))
    assert code == expected


@pytest.mark.parametrize(("run", "build"), [(0, 0), (1, 0), (0, 3)])
def test_night_without_built_stack_has_the_exit_code_of_its_session(tmp_path: Path, run: int, build: int) -> None:
    """No network (exit code 0, no stack.json), or Spack failed."""
    _declare_quick_stack(tmp_path)
    code, calls = nightly(tmp_path, "--build-stack", "quick", run=run, STACK=str(build))
    assert code == run
    assert [call.split()[0] for call in calls] == ["run", "stack", "dashboard", "notify"]


@pytest.mark.parametrize(
    "words",
    [
        ("--build-stack", "none"),
        ("--build-stack", "quick", "--stack", "site"),
        ("--build-stack", "quick", "--system", "archer2"),
        (),
    ],
    ids=["none", "chosen-stacks", "other-system", "no-option"],
)
def test_nothing_is_built_where_nobody_asks_for_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    _declare_quick_stack(tmp_path)
    _, calls = nightly(tmp_path, *words, BUILDS="yes")
    assert [call.split()[0] for call in calls] == ["run", "dashboard", "notify"]


def test_nothing_is_built_after_a_failed_session(tmp_path: Path) -> None:
    _declare_quick_stack(tmp_path)
    code, calls = nightly(tmp_path, "--build-stack", "quick", run=3, BUILDS="yes")
    assert code == 3
    assert "stack" not in [call.split()[0] for call in calls]


def test_db_option_as_two_words_is_passed_to_all_commands(tmp_path: Path) -> None:
    code, calls = nightly(tmp_path, "--db", "a b.db")
    assert code == 0
    assert calls == ["run --night --db a b.db", "dashboard build --db a b.db", "notify --system local --db a b.db"]


@pytest.mark.parametrize(
    ("kept", "call"),
    [
        ({"IOWATCH_KEEP_DAYS": "400"}, "history prune --days 400 --db a b.db"),
        ({"IOWATCH_KEEP_DAYS": "9", "IOWATCH_KEEP_SIZE": "50g"}, "history prune --days 9 --size 50g --db a b.db"),
    ],
)
def test_old_files_are_pruned_where_configured(tmp_path: Path, kept: dict[str, str], call: str) -> None:
    code, calls = nightly(tmp_path, "--db", "a b.db", run=1, **kept)
    assert code == 1
    assert calls[3:] == [call]


@pytest.mark.parametrize(("run", "expected"), [(0, 1), (1, 1), (2, 2), (3, 3)])
def test_notices_that_nobody_got_are_in_the_exit_code(tmp_path: Path, run: int, expected: int) -> None:
    code, calls = nightly(tmp_path, run=run, notify=1)
    assert code == expected
    assert calls[-1] == "notify --system local"


def test_reports_of_an_earlier_night_are_removed_first(tmp_path: Path) -> None:
    """A step before the session may fail: nothing may publish what was true yesterday."""
    junit, markdown = tmp_path / "junit.xml", tmp_path / "summary.md"
    for path in (junit, markdown):
        path.write_text("all passed")
    nightly(tmp_path, "--junit", str(junit), f"--markdown={markdown}", run=3)
    assert not junit.exists()
    assert not markdown.exists()


@pytest.mark.parametrize(("run", "is_printed"), [(0, False), (1, True), (3, True)])
def test_quiet_night_prints_only_what_is_not_in_order(tmp_path: Path, run: int, is_printed: bool) -> None:
    """cron mails what is printed; the log has every night."""
    printed = tmp_path / "printed"
    with printed.open("w") as stream:
        code, calls = nightly(tmp_path, "--suite", "nightly", "--quiet", run=run, stdout=stream)
    assert code == run
    assert calls[0] == "run --night --suite nightly"
    assert ("run complains" in printed.read_text()) == is_printed
    assert (printed.read_text() == "") == (not is_printed)
    (log,) = (tmp_path / "var" / "log").glob("nightly-*.log")
    assert "run complains" in log.read_text()


def test_wrong_words_build_no_pages(tmp_path: Path) -> None:
    """They are the same as before; overdue sessions are reported all the same."""
    code, calls = nightly(tmp_path, "--suite", "nope", run=2)
    assert code == 2
    assert calls == ["run --night --suite nope", "notify --system local"]


@pytest.mark.parametrize(("run", "expected"), [(0, 3), (1, 3), (3, 3)])
def test_failed_dashboard_build_is_in_the_exit_code_and_notices_are_sent(
    tmp_path: Path, run: int, expected: int
) -> None:
    code, calls = nightly(tmp_path, run=run, dashboard=3)
    assert code == expected
    assert calls[-1] == "notify --system local"


def test_log_has_no_password_of_a_database(tmp_path: Path) -> None:
    for url in ("postgresql://me:S3cret@db/iowatch", "postgresql://me@db/iowatch?sslpassword=S3cret"):
        for quiet in ((), ("--quiet",)):
            nightly(tmp_path, "--db", url, *quiet)
    (log,) = (tmp_path / "var" / "log").glob("nightly-*.log")
    assert "S3cret" not in log.read_text()
    assert log.read_text().count("***") == 4


def test_nightly_session_is_logged_and_streams_are_separate(tmp_path: Path) -> None:
    code, _ = nightly(tmp_path, "--json", run=1)
    assert code == 1
    assert nightly(tmp_path, run=0)[0] == 0
    (log,) = (tmp_path / "var" / "log").glob("nightly-*.log")
    lines = log.read_text().splitlines()
    assert len([line for line in lines if line.endswith("starts: --json")]) == 1
    assert [line[-1] for line in lines if " ends: exit code " in line] == ["1", "0"]
    for line in ("run answers", "run complains", "notify answers", "notify complains"):
        assert lines.count(line) == 2


@pytest.mark.parametrize(("name", "command", "calls"), [("TERM", "run", 1), ("HUP", "run", 1), ("TERM", "notify", 3)])
def test_signal_to_nightly_alone_ends_all_that_it_started(tmp_path: Path, name: str, command: str, calls: int) -> None:
    """The mock-up ends 0.2 s after the signal, as `iowatch run` after ReFrame; its child ignores no signal."""
    nightly(tmp_path)  # creates the mock-ups
    (tmp_path / "calls").unlink()
    hanging = f"""[ $1 = {command} ] || exit 0
trap 'sleep 0.2; echo cleaned up; exit 1' TERM
sleep 60 & echo $! > {tmp_path}/child
wait
"""
    (tmp_path / ".venv" / "bin" / "iowatch").write_text(FAKE.partition("case")[0] + hanging)
    environment = {"PATH": "/usr/bin:/bin", "CALLS": str(tmp_path / "calls")}
    with subprocess.Popen(
        [str(tmp_path / "ci" / "nightly")], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until((tmp_path / "child").is_file)
        wait_until(lambda: (tmp_path / "child").read_text())
        process.send_signal(getattr(signal, f"SIG{name}"))
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 3
    assert stdout.endswith("cleaned up\n")  # it was waited for
    assert stderr.splitlines()[-1] == f"nightly: ended by SIG{name}; results so far are kept"
    assert "could not be sent" not in stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == calls  # later steps are left out
    child = Path("/proc", (tmp_path / "child").read_text().strip())
    wait_until(lambda: not child.exists())
    (log,) = (tmp_path / "var" / "log").glob("nightly-*.log")
    assert log.read_text().splitlines()[-1].endswith(f"ends: exit code 3, ended by SIG{name}")


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)


def test_output_for_programs_is_on_stdout(tmp_path: Path) -> None:
    nightly(tmp_path)
    done = subprocess.run(
        [str(tmp_path / "ci" / "nightly")],
        env={
            "PATH": "/usr/bin:/bin",
            "CALLS": str(tmp_path / "calls"),
            "RUN": "0",
            "DASHBOARD": "0",
            "NOTIFY": "0",
            "IOWATCH_VAR": "/proc/nowhere",  # no log can be written: the nightly session runs nevertheless
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout == "run answers\ndashboard answers\nnotify answers\n"
    assert done.stderr.endswith("run complains\ndashboard complains\nnotify complains\n")
