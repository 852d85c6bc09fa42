"""Tools that do not answer in time: asked again, then answered as last time, and never taken for absent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iowatch.site.stack import probe as stack_probe
from iowatch.site.stack import tool_query
from iowatch.site.stack.records import stack_from_json
from iowatch.site.stack.tool_query import keep_answers, query_tool, unanswered_questions

from .conftest import Tool

# Longer than the time that the tests allow.
HANG = "exec /bin/sleep 5"


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch, var: Path) -> None:
    monkeypatch.setattr(tool_query, "TIMEOUT_S", 0.3)


def test_tool_that_answers_the_second_time_has_answered(tool: Tool, tmp_path: Path) -> None:
    """As on a login node under load."""
    path = tool("h5bench", f"if [ -e {tmp_path}/asked ]; then echo 1.4; else : > {tmp_path}/asked; {HANG}; fi")
    with unanswered_questions() as questions:
        assert query_tool(str(path), "--version") == "1.4\n"
    assert questions == []


def test_last_answer_counts_while_the_tool_hangs(tool: Tool, tmp_path: Path, messages: list[str]) -> None:
    path = tool("h5bench", f"[ -e {tmp_path}/loaded ] && {HANG}; echo 1.4")
    assert query_tool(str(path)) == "1.4\n"
    keep_answers()
    (tmp_path / "loaded").write_text("")
    tool_query.forget_answers()  # as in the next session
    with unanswered_questions() as questions:
        assert query_tool(str(path)) == "1.4\n"
    assert questions == []
    (warning,) = [message for message in messages if "is used" in message]
    assert warning.startswith(f"`{path}` did not answer within 0 s, twice: its answer of 20")


def test_answer_of_another_file_does_not_count(tool: Tool, messages: list[str]) -> None:
    path = tool("h5bench", "echo 1.4")
    query_tool(str(path))
    keep_answers()
    tool("h5bench", HANG)
    tool_query.forget_answers()
    with unanswered_questions() as questions:
        assert query_tool(str(path)) == ""
    assert questions == [f"`{path}` did not answer within 0 s, twice"]
    assert questions[0] in messages


@pytest.mark.parametrize("body", ["exit 1", "echo 1.4; exit 1"])
def test_tool_that_fails_has_answered(tool: Tool, body: str) -> None:
    with unanswered_questions() as questions:
        assert query_tool(str(tool("h5bench", body))) == ""
        assert query_tool("/absent") == ""
    assert questions == []


@pytest.mark.parametrize("content", ["", "[]", '{"format": 2}', '{"format": 1, "answers": [1]}', "\0"])
def test_damaged_file_of_answers_is_none(tool: Tool, var: Path, content: str) -> None:
    var.mkdir()
    (var / "tool-answers.json").write_text(content)
    query_tool(str(tool("h5bench", "echo 1.4")))
    keep_answers()
    assert len(json.loads((var / "tool-answers.json").read_text())["answers"]) == 1


def test_answers_that_cannot_be_kept_are_no_error(tool: Tool, var: Path) -> None:
    var.write_text("a file, where a directory is expected")
    assert query_tool(str(tool("h5bench", "echo 1.4"))) == "1.4\n"
    keep_answers()
    assert var.is_file()


def test_part_that_does_not_answer_is_not_absent(tool: Tool) -> None:
    """Features of a part that may be there; it is no fact of the stack, whose document stays the same."""
    tool("mpicc", "echo 'gcc (Debian 12.2.0-14) 12.2.0'")
    tool("mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
    hanging = tool("h5pcc", HANG)
    (stack,) = stack_probe.system_stacks("here")
    assert stack.features == ("openmpi",)
    remark = f"`{hanging} -showconfig` did not answer within 0 s, twice"
    assert stack.unanswered == dict.fromkeys(("hdf5", "deflate", "szip", "subfiling"), remark)
    assert "unanswered" not in stack.to_json()
    # From the shell with the modules of a stack it is handed on.
    document = {**stack.to_json(), "unanswered": dict(stack.unanswered)}
    assert stack_from_json(document, "x").unanswered == stack.unanswered


def test_program_that_does_not_start_here_is_asked_once_only(tool: Tool, tmp_path: Path) -> None:
    """On login nodes without a process manager each start of MPI may hang; its libraries say what it has."""
    tool("ldd", "echo 'libmpi.so.40 => /usr/lib/libmpi.so.40'")
    tool("ior", f'echo "$*" >> {tmp_path}/asked; {HANG}')
    part = stack_probe.probe_package("ior", stack_probe.MpiInstallation("openmpi"))
    assert part is not None
    assert (part.version, part.variants) == ("unknown", {"hdf5": "false", "ncmpi": "false"})
    assert "-h" not in (tmp_path / "asked").read_text().split()
