"""External text on terminals and in pages: no markup, no control or invisible character."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

from click.testing import Result
from rich.text import Text

from iowatch.core import SafeConsole, escape_controls, escape_json_controls, make_table
from iowatch.store import History
from tests.builders import build_output, build_run, build_session

Cli = Callable[..., Result]
# Open MPI's own form: host and process, then what happened.
REASON = "[vm:04711] *** Process received signal *** [/lustre/u] [bold]"


def test_reason_of_a_failed_run_is_shown_unchanged(cli: Cli, var: Path) -> None:
    with History.open() as history:
        history.begin_session(build_session("s", suite="smoke", started_at=1_767_225_600))
        output = build_output(tool="benchio", status="failed", reason=REASON)
        run = build_run(name="benchio:x", stack="[gnu]", started_at=1_767_225_600, output=output)
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


def test_all_control_and_invisible_characters_are_escaped() -> None:
    """Unicode's categories Cc, Cf, Zl, Zp and Cs, and characters without a glyph (Unicode 15.1, Default_Ignorable)."""
    ignorable = {*range(0x180B, 0x1810), 0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0}
    ignorable |= {*range(0x13439, 0x13440), *range(0xE0000, 0xE1000)}
    for number in range(0x110000):
        hidden = unicodedata.category(chr(number)) in ("Cc", "Cf", "Zl", "Zp", "Cs") or number in ignorable
        assert (escape_controls(chr(number)) != chr(number)) == (hidden and chr(number) not in "\t\n"), hex(number)


TITLE = "a\x1b]0;owned\x07b\x9b31m\u202egnp\u200b.exe\U000e0041"


def test_escapes_name_the_character() -> None:
    assert escape_controls(TITLE) == r"a\x1b]0;owned\x07b\x9b31m\u202egnp\u200b.exe\U000e0041"
    document = {TITLE: [TITLE, "ü 漢字\n"]}
    assert json.loads(escape_json_controls(json.dumps(document, ensure_ascii=False, indent=1))) == document


def test_console_prints_only_its_own_escape_sequences() -> None:
    """Long texts are complete although escapes are longer than what they stand for."""
    stream = io.StringIO()
    console = SafeConsole(file=stream, force_terminal=True, color_system="standard", width=30, highlight=False)
    table = make_table("name\x1b[2J")
    table.add_row(TITLE * 3)
    for printed in (TITLE * 3, Text(TITLE, style="red"), table):
        console.print(printed, markup=False)
    shown = re.sub(r"\x1b\[(0|1|31)m", "", stream.getvalue())  # reset, bold, red: the console's own styles
    assert shown == escape_controls(shown)
    assert "".join(shown.split()).count(".exe") == 3 + 1 + 3
