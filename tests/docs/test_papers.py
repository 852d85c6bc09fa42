"""docs/papers.md: its commands, options, suites and published tables exist."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise

import pytest

from iowatch.benchmarks.suites import load_suite
from iowatch.reference import published
from tests.conftest import ROOT
from tests.test_cli import command_of, contexts

PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"`(iowatch [^`]+)`", PAGE)))


# Commands of folders that a copy may lack.
EXPERIMENTS = ("advise", "bisect", "gate", "interference", "profile", "reproduce")
APPLICATIONS = ("logs", "workload")


def marks_of(text: str) -> list[pytest.MarkDecorator]:
    name = text.split()[1]
    marks = []
    if name in EXPERIMENTS:
        marks.append(pytest.mark.capability("experiments"))
    if name in APPLICATIONS:
        marks.append(pytest.mark.capability("applications"))
    return marks


@pytest.mark.parametrize("text", [pytest.param(text, marks=marks_of(text)) for text in COMMANDS])
def test_commands_exist_with_their_options_and_suites(text: str) -> None:
    words = shlex.split(text)[1:]
    path = max((found for found in contexts() if tuple(words[: len(found)]) == found), key=len)
    assert path, text
    known = {option for parameter in command_of(path).params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    options = dict(pairwise(words))
    if "--suite" in options:
        tools = {case.benchmark for case in load_suite(options["--suite"])}
        assert options.get("--benchmark", min(tools)) in tools


def test_printed_tables_exist() -> None:
    tables = {(published.source_key(one.source), one.name) for one in published.load_all_tables()}
    named = set(re.findall(r"published:(\w+)/([\w.]+)", PAGE)) | set(re.findall(r"--published (\w+) ([\w.]+)`", PAGE))
    assert named
    assert named <= tables
    assert {source for source, _ in tables} <= set(re.findall(r"^## ([\w-]+):", PAGE, re.M))
