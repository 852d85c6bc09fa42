"""Nodes with slow messages: named by the verdict of the session, and where its runs are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result as CliResult

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import parse_output
from iowatch.output.report import change_lines
from iowatch.output.text.verdict import verdict_document
from iowatch.session.run import SessionSummary
from iowatch.session.verdict import assess_session
from iowatch.store import History
from tests.builders import build_run, build_session, store_session
from tests.conftest import ROOT

DATA = ROOT / "tests" / "benchmarks" / "data"


@pytest.mark.parametrize(("name", "named"), [("four", []), ("slow-link", ["n3"])])
def test_session_names_nodes_with_slow_messages(
    name: str, named: list[str], history: History, root: Path, cli: Callable[..., CliResult]
) -> None:
    """The ratio is that of the figures in the output: 2.0 of some 330 MB/s."""
    output = parse_output("node_pairs", (DATA / f"node_pairs-1-{name}.txt").read_text(), RunContext(ranks=4))
    run = build_run(name="node_pairs:nodes=4", output=output)
    store_session(history, build_session("night"), [run])
    verdict = assess_session(history, SessionSummary("night"))
    text = "slow messages: n3: 0.00"
    assert (text in change_lines(verdict)) == bool(named)
    slow_messages = verdict_document(verdict)["slow_messages"]
    assert [node["node"] for slow in slow_messages for node in slow["pairs"]["slow_nodes"]] == named
    # Programs read the exit code: the line is information.
    assert verdict.exit_code == 0
    assert (f"node_pairs:nodes=4, gnu: {text}" in cli("history", "show", "night").stdout) == bool(named)
