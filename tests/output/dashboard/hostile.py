"""A history in which every name, parameter, output and reason is an attack on the page that shows it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from iowatch.core import UsageError, artefacts
from iowatch.findings import update_findings
from iowatch.store import Artefact, History, RunRecord, SessionFacts, StackRecord
from tests.builders import build_expected_result, build_output, build_result, build_run, build_session

DAY_S = 86400
START = 1_735_700_000
# A script that runs sets a variable in the page.
SCRIPT = "<script>window.hacked=1</script>"
ATTACKS = (
    f"{SCRIPT}\"'><img src=x onerror=window.hacked=2>",
    "../../../../tmp/hostile-escape",
    "]]></script><svg onload=window.hacked=3> & {{ 7 * 7 }} {% raw %}",
    "😀🚀‮\u2028 ü ß 漢字 \x07\x00",
    "/etc/passwd",
    "javascript:window.hacked=4",
    "long " + "x<y" * 1365,
)


def _text(value: str) -> str:
    # SQLite and PostgreSQL keep no NUL in a text that is a key.
    return value.replace("\x00", "")


def fill(database: Path) -> None:
    """Write one system per attack: twelve sessions each, a step, a failed run, a missing result, an artefact."""
    with History.open(str(database)) as history:
        for number, attack in enumerate(map(_text, ATTACKS)):
            _system(history, number, attack, database.parent)


def _system(history: History, number: int, attack: str, place: Path) -> None:
    name = attack[:180]
    for day in range(14):
        begin = START + day * DAY_S
        session = build_session(
            f"{attack[:40]}{number}-{day}"[-60:],
            system=name,
            suite=attack[:180],
            started_at=begin,
            facts=SessionFacts.from_document({"note": attack}),
        )
        expected = [
            build_expected_result(attack, partition=name, stack=name),
            build_expected_result(f"{attack}2", partition=name, stack=name, operation="read"),
        ]
        history.begin_session(session, expected)
        history.record_runs(session.uuid, [_run(number, day, attack, place)])
        history.end_session(session.uuid, "ok" if day % 2 else "incomplete", begin + 600)
    with suppress(UsageError):  # findings refuse names that would lead out of reference/; the site shows them still
        update_findings(history, name, datetime.fromtimestamp(START + 15 * DAY_S, UTC))


def _run(number: int, day: int, attack: str, place: Path) -> RunRecord:
    value = 100.0 * (3.0 if day >= 7 else 1.0) + day % 3
    case = {"api": attack, "file": attack[:100], "ranks": 4, attack[:50]: attack}
    results = (build_result(value, value * 0.97, case=case),)
    output = place / "output.txt"
    output.write_text(f"{attack}\n", encoding="utf-8", errors="replace")
    stored = artefacts.store_artefact(output)
    parts = [{"name": attack, "version": attack, "hash": attack, "compiler": attack}]
    failed = day == 13
    return build_run(
        name=attack,
        partition=attack[:180],
        stack=StackRecord(attack[:180], {"parts": parts, "note": attack, "night": day // 7}),
        started_at=START + day * DAY_S + 60,
        output=build_output(
            *results, version=attack[:180], status="failed" if failed else "ok", reason=attack if failed else None
        ),
        facts={
            "nodes": [attack],
            "command": attack,
            attack: [attack, {attack: attack}],
            "darshan": {"status": attack, "reason": attack},
            "source": 3,
        },
        artefacts=(Artefact("stdout", attack, stored.sha256, stored.size_bytes),),
    )
