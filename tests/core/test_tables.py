"""External text in tables: rich would interpret text in brackets as markup."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from iowatch.core import Output
from iowatch.store import History, RunRecord, SessionRecord, StackRecord

Cli = Callable[..., Result]
# Open MPI's own form: host and process, then what happened.
REASON = "[vm:04711] *** Process received signal *** [/lustre/u] [bold]"


def test_reason_of_a_failed_run_is_shown_unchanged(cli: Cli, var: Path) -> None:
    with History.open() as history:
        history.begin_session(SessionRecord("s", "local", "smoke", "run", 1_767_225_600))
        output = Output("benchio", None, "failed", REASON, ())
        run = RunRecord("benchio:x", "default", StackRecord("[gnu]"), "x", 1_767_225_600, output)
        history.record_runs("s", [run])
    shown = cli("history", "show", "s")
    assert shown.exit_code == 0, shown.output
    assert REASON in " ".join(shown.stdout.split())
    assert "[gnu]" in shown.stdout


def test_series_names_are_shown_unchanged(cli: Cli, tmp_path: Path) -> None:
    rows = [f"[/scratch]w,{1_700_000_000 + 86400 * n},{100 + n % 3 if n < 20 else 200 + n % 3}" for n in range(40)]
    (tmp_path / "x.csv").write_text("series,time,value\n" + "\n".join(rows) + "\n")
    shown = cli("detect", "--csv", tmp_path / "x.csv")
    assert shown.exit_code == 1, shown.output
    assert "[/scratch]w" in shown.stdout
