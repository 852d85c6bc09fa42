"""What stderr, the exit code and the ranks asked for add to an output; and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from iowatch.cli.commands.parse import command
from iowatch.errors import InputError, UsageError
from iowatch.parsers import PARSERS, parse, parse_file, parser
from tests.parsers.corpus import DATA

SOUND = DATA / "ior-3.2.1-posix.txt"


def test_a_sound_output_with_sound_evidence_is_ok() -> None:
    assert parse_file("ior", SOUND, rc=0, ranks=2).status == "ok"


@pytest.mark.parametrize(
    ("rc", "status", "words"),
    [(1, "failed", "exit code 1"), (137, "incomplete", "SIGKILL"), (-15, "incomplete", "SIGTERM")],
)
def test_the_exit_code_counts(rc: int, status: str, words: str) -> None:
    output = parse_file("ior", SOUND, rc=rc)
    assert output.status == status
    assert words in str(output.reason)


def test_stderr_counts() -> None:
    text = SOUND.read_text()
    assert parse("ior", text, stderr="module: command not found\n").status == "ok"
    output = parse("ior", text, stderr=b"x\nmca_fbtl_posix_pwritev: error in writev:No space left on device\n")
    assert output.status == "failed"
    assert str(output.reason).startswith("no space left on device")


@pytest.mark.parametrize("path", sorted(DATA.iterdir()), ids=lambda path: path.name)
def test_other_ranks_than_asked_for_are_a_failure(path: Path) -> None:
    tool = path.name.partition("-")[0]
    assert parse_file(tool, path, ranks=2).status == "ok"
    output = parse_file(tool, path, ranks=4)
    assert output.status == "failed"
    assert "4 ranks were asked for" in str(output.reason)


def test_two_runs_in_one_output_are_a_failure_without_numbers() -> None:
    output = parse("ior", SOUND.read_text() * 2)
    assert (output.status, output.results) == ("failed", ())


def test_results_beside_the_output_are_read(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text("Writing output to /scratch/other/out.txt\n")
    assert parse_file("ior", tmp_path / "stdout").status == "incomplete"
    (tmp_path / "out.txt").write_text(SOUND.read_text())
    assert parse_file("ior", tmp_path / "stdout").status == "ok"


def test_every_tool_has_a_parser_and_no_other() -> None:
    assert all(callable(parser(tool)) for tool in PARSERS)
    with pytest.raises(UsageError, match="no parser for 'iro'"):
        parse("iro", "")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Is a directory"):
        parse_file("ior", tmp_path)


def test_command_prints_one_document() -> None:
    result = CliRunner().invoke(command, ["ior", str(SOUND), "--rc", "0", "--ranks", "2", "--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert {"tool", "version", "status", "reason", "results"} <= document.keys()
    assert document["results"][0].keys() == {"operation", "metric", "unit", "samples", "case"}


def test_command_tells_people_the_reason(tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_text(SOUND.read_text()[:-60])
    result = CliRunner().invoke(command, ["ior", str(cut)])
    assert result.exit_code == 1
    assert result.stdout.startswith("ior 3.2.1: incomplete\nthe output ends before 'Finished'")
    assert "api=POSIX" in result.stdout


def test_command_refuses_a_file_that_is_not_there() -> None:
    result = CliRunner().invoke(command, ["ior", "/nowhere/at/all"])
    assert result.exit_code == 2


@pytest.mark.parametrize("tool", ["benchio", "ior", "mdtest", "h5bench"])
def test_an_empty_output_is_told_as_empty(tool: str) -> None:
    """What it lacks follows from that; an exit code is told beside it."""
    assert parse(tool, "\n").reason == "the output is empty"
    reason = parse(tool, "", rc=-9).reason
    assert reason is not None
    assert reason.startswith("the output is empty; ")
