"""Files of reports: what an earlier call wrote is never left for a call that failed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from click.testing import Result

from iowatch.cli.report_files import report_files
from iowatch.core import InputError, MachineError, write_atomically

Command = Callable[..., Result]


@pytest.fixture
def junit(tmp_path: Path) -> Path:
    """The report of a successful night before."""
    path = tmp_path / "junit.xml"
    path.write_text('<testsuites><testsuite tests="18" failures="0"/></testsuites>')
    return path


def outcomes(path: Path) -> dict[str, str]:
    """By outcome of a JUnit document its message."""
    results: dict[str, str] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        for result in case:
            results[result.tag] = result.get("message", "")
    return results


def test_error_replaces_the_reports_of_an_earlier_call(cli: Command, var: Path, tmp_path: Path, junit: Path) -> None:
    markdown = tmp_path / "summary.md"
    markdown.write_text("## OK")
    done = cli("run", "--suite", "nightlyy", "--junit", junit, "--markdown", markdown)
    assert done.exit_code == 2
    (message,) = outcomes(junit).values()
    assert "nightlyy" in message
    assert list(outcomes(junit)) == ["error"]
    assert "OK" not in markdown.read_text()
    assert "nightlyy" in markdown.read_text()


def test_contradicting_options_are_reported_in_the_file(cli: Command, var: Path, junit: Path) -> None:
    done = cli("run", "--ab", "a", "b", "--junit", junit)
    assert done.exit_code == 2
    assert "--junit reports a verdict" in outcomes(junit)["error"]


def test_night_in_a_blackout_is_a_skipped_case(
    cli: Command, var: Path, junit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "no session on local: blackout 'maintenance' until 2025-06-02 06:00 UTC"
    monkeypatch.setattr("iowatch.session.blackouts.wait_for_start", lambda *_: reason)
    done = cli("run", "--night", "--junit", junit)
    assert (done.exit_code, outcomes(junit)) == (0, {"skipped": reason})


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("systems/x.yaml:3: unknown field"), "systems/x.yaml:3: unknown field"),
        (click.UsageError("--pairs is for --ab"), "--pairs is for --ab"),
        (KeyboardInterrupt(), "ended by a signal before it had a result"),
        (RuntimeError("boom"), "internal error: RuntimeError: boom"),
    ],
)
def test_every_end_without_a_result_is_reported(tmp_path: Path, error: BaseException, message: str) -> None:
    text, picture, other = tmp_path / "report.md", tmp_path / "report.svg", tmp_path / "other.md"
    for path in (text, picture):
        path.write_text("old")

    def report_and_fail() -> None:
        with report_files({text: str.upper, picture: None, other: str, None: str}) as files:
            # What was written before the error stays.
            files.write(other, "measured")
            raise error

    with pytest.raises(type(error)):
        report_and_fail()
    assert text.read_text() == message.upper()
    assert not picture.exists()
    assert other.read_text() == "measured"


def test_reports_never_replace_a_pipe_and_need_their_directory(cli: Command, var: Path, tmp_path: Path) -> None:
    """A pipe stands for a device: as root, `--junit /dev/null` would replace that of the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = cli("run", "--junit", pipe)
    assert done.exit_code == 2
    assert "is a pipe; expected a file" in done.output
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    done = cli("run", "--markdown", tmp_path / "absent" / "summary.md")
    assert done.exit_code == 2
    assert "does not exist" in done.output
    assert not (tmp_path / "absent").exists()


def test_link_to_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    """As /dev/stdout is one."""
    pipe, link = tmp_path / "pipe", tmp_path / "stdout"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with pytest.raises(MachineError, match="is a pipe, not a file"):
        write_atomically(link, "text")
    assert link.is_symlink()
