"""Hostile names and files on every way out: terminal, pages in a real browser, exports, notices.

`python -m tests.faults.hostile` runs all of them and prints the faults; `test_hostile.py` runs a sample.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from email import message_from_bytes, policy
from email.message import EmailMessage
from html import unescape
from pathlib import Path
from typing import Any

from iowatch.cli import main
from iowatch.core import Output, Result, clean_text, escape_controls, settings
from iowatch.output import notices
from iowatch.output.channels.markdown import issue_text
from iowatch.output.channels.notice import Notice
from iowatch.output.dashboard.build import build_site
from iowatch.output.monitoring import write_metrics
from iowatch.output.notice_channels import (
    MailChannel,
    mail_message,
    mattermost_message,
    notify_settings_model,
    slack_message,
)
from iowatch.store import (
    Artefact,
    ExpectedResult,
    History,
    ResultFilter,
    RunRecord,
    SessionFacts,
    SessionRecord,
    StackRecord,
)
from iowatch.store.export import export_results, read_export_file
from tests.core.test_yamlfile import REFUSED
from tests.output.dashboard.browser import Browser, unusable

NAMES = {
    "clear screen": "\x1b[2J\x1b[Hall is well",
    "colour": "\x1b[32mOK\x1b[0m",
    "window title (OSC 0)": "\x1b]0;owned\x07",
    "hyperlink (OSC 8)": "\x1b]8;;http://evil.example/\x1b\\click\x1b]8;;\x1b\\",
    "clipboard (OSC 52)": "\x1b]52;c;cm0gLXJmIH4K\x07",
    "device control string": "\x1bP+q544e\x1b\\",
    "C1 CSI": "\x9b2J",
    "C1 OSC": "\x9d0;owned\x9c",
    "carriage return": "FAILED\rOK    ",
    "backspace": "FAILED\b\b\b\b\b\bOK",
    "bell": "a\x07b",
    "shift out": "a\x0eb\x0f",
    "delete": "a\x7f\x7fb",
    "line end": "x\niowatch: OK - 12 of 12",
    "form feed": "a\x0cb\x0bc",
    "next line (C1)": "a\x85b",
    "line separator": "a\u2028b",
    "paragraph separator": "a\u2029b",
    "right-to-left override": "\u202egpj.exe",
    "embeddings": "\u202aa\u202bb\u202dc\u202c",
    "isolates": "\u2066a\u2067b\u2068c\u2069",
    "marks of direction": "\u200ea\u200fb\u061cc",
    "zero-width blanks": "gn\u200bu\u200c\u200d\u2060",
    "byte order mark": "\ufeffgnu",
    "invisible operators": "a\u2062b\u2064c",
    "soft hyphen": "g\u00adnu",
    "tag characters": "gnu" + "".join(chr(0xE0000 + ord(c)) for c in "evil"),
    "variation selectors": "gnu\u180b\U000e0101",
    "fillers": "\u3164\u115f\u1160\uffa0gnu",
    "annotations": "a\ufff9b\ufffac\ufffb",
    "NUL": "a\x00b",
    "lone surrogate": "a\ud800b",
    "script": "<script>window.hacked=1</script>",
    "attribute": "\"'><img src=x onerror=window.hacked=2>",
    "end of a script": "]]></script><svg onload=window.hacked=3>",
    "scheme": "javascript:window.hacked=4",
    "template": "{{ 7 * 7 }} {% raw %} ${7*7} #{7*7}",
    "rich markup": "[red]OK[/red] [link=file:///etc/passwd]x[/link]",
    "emoji code": ":bomb: :warning:",
    "format": "%s%n {0.__class__} {self}",
    "Markdown": "@all [x](http://evil.example) ![y](http://evil.example/z) `a` | b",
    "mention": "<!channel> <@U1> <http://evil.example|x>",
    "mail header": "a\r\nBcc: evil@example.org\r\n\r\nbody",
    "encoded word": "=?utf-8?q?a=0D=0ABcc=3A_evil=40example.org?=",
    "formula =": "=HYPERLINK(\"http://evil.example\")",
    "formula +": "+1+cmd|' /C calc'!A0",
    "formula -": "-1+1",
    "formula @": "@SUM(A1:A9)",
    "formula after a tab": "\t=1+1",
    "apostrophe": "'=1+1",
    "cells": "a\",\n=1+1,\"b",
    "label": "x\"} 1\nevil{a=\"b",
    "SQL": "'; DROP TABLE run; --",
    "path": "../../../../tmp/iowatch-hostile",
    "stacked accents": "gnu" + "\u0301\u0300\u0316" * 20,
    "4 KB": "long " + "x<y" * 1365,
}  # fmt: skip
_START = 1_767_225_600
_MAIL = MailChannel.model_validate(
    {"name": "m", "kind": "mail", "host": "h", "sender": "a@example.org", "to": ["b@example.org"]}
)
_OWN_STYLES = re.compile(r"\x1b\[[0-9;]*m")


def fill(history: History, names: Sequence[str]) -> None:
    """Per name one system, suite, stack and partition with two runs, of which all texts are the name."""
    for number, raw in enumerate(names):
        name = clean_text(raw)
        short, uuid = name[:180], f"s{number}{name}"[:60]
        attributes = {"problems": [f"{name} is absent"], "note": name}
        session = SessionRecord(uuid, short, short, "run", _START + number, SessionFacts.from_document(attributes))
        history.begin_session(session, [ExpectedResult(name, short, short, "write", "bandwidth")])
        stack = StackRecord(short, {"parts": [{"name": name, "version": name, "hash": name, "compiler": name}]})
        for status in ("ok", "failed"):
            result = Result("write", "bandwidth", "MiB/s", (1.0, 2.0), {"api": short, "ranks": 2})
            output = Output("ior", short, status, name if status == "failed" else None, (result,))
            facts = {"nodes": [name], "command": name, "darshan": {"status": name, "reason": name}}
            artefact = Artefact("stdout", name, "0" * 64, 1)
            run = RunRecord(name, short, stack, f"{number}{status}", _START + number, output, None, facts, (artefact,))
            history.record_runs(uuid, [run])
        history.end_session(uuid, "failed", _START + number + 9)


def is_unsafe(text: str) -> bool:
    """Whether a text has a control or an invisible character; tabs and line ends are no fault."""
    return escape_controls(text) != text


def run_cli(*words: str) -> tuple[int, str]:
    """Exit code and all output of a command, run in this process as from the shell."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "replace", newline="") for _ in range(2))
    before = sys.stdout, sys.stderr
    try:
        sys.stdout, sys.stderr = out, err
        code = main._run_command(words)
    finally:
        sys.stdout, sys.stderr = before
    for stream in (out, err):
        stream.flush()
    return code, b"".join(stream.buffer.getvalue() for stream in (out, err)).decode()  # type: ignore[attr-defined]


def terminal_faults(history: History, names: Sequence[str]) -> Iterator[str]:
    """Commands that print names, and commands that refuse one, for people and as JSON."""
    shown = [clean_text(name)[:180] for name in names]
    words = [("history", "list"), ("history", "list", "--series"), ("findings", "list")]
    words += [("history", "show", row.uuid) for row in history.sessions()]
    words += [("compare", f"stack:{shown[0]}", f"stack:{name}") for name in shown[1:]]
    for name in shown:
        words += [("findings", "list", "--system", name), ("event", "list", "--system", name), ("stack", "show", name)]
        words += [("run", "--suite", name), ("history", "show", name), (name,), ("import", name), ("run", f"--{name}")]
        words += [("import", "ior", f"/absent/{name}", "--system", name), ("parse", "ior", f"/absent/{name}")]
        words += [("event", "add", name, "--system", name, "--kind", name, "--date", name)]
    for command in words:
        for more in ((), ("--json",)):
            code, text = run_cli(*(word.replace("\0", "") for word in command), *more)
            if is_unsafe(text):
                yield f"terminal: {command}"
            if code not in (0, 1, 2):
                yield f"exit code {code}: {command}: {text[:200]}"


def pseudo_terminal_faults(database: str) -> Iterator[str]:
    """A real terminal, to which the console writes its own styles."""
    for command in (["history", "list"], ["history", "list", "--series"], ["findings", "list"]):
        master, slave = pty.openpty()
        program = "from iowatch.cli.main import main; main()"
        words = [sys.executable, "-c", program, *command, "--db", database]
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
        process = subprocess.Popen(words, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        seen = b""
        with suppress(OSError):  # the terminal's end
            while block := os.read(master, 65536):
                seen += block
        os.close(master)
        text = _OWN_STYLES.sub("", seen.decode()).replace("\r\n", "\n")
        if process.wait() not in (0, 1) or is_unsafe(text) or len(text) < 50:
            yield f"pseudo-terminal: {command}: {text[:200]}"


def page_faults(site: Path) -> Iterator[str]:
    """Texts of all pages as a parser reads them; `browser_faults` shows them."""
    for path in (path for path in site.rglob("*") if path.suffix in (".html", ".xml", ".json")):
        text = path.read_text(encoding="utf-8")
        if is_unsafe(unescape(text)) or "<script>window" in text or "<img src=x" in text or "<svg onload" in text:
            yield f"page: {path.relative_to(site)}"


# Everything that a reader can see: text, title, attributes, texts of pictures and of the data of a plot.
_VISIBLE = """
const found = [document.title, document.body.innerText];
for (const node of document.querySelectorAll("*"))
  for (const attribute of node.attributes) if (attribute.name !== "d") found.push(attribute.value);
for (const node of document.querySelectorAll("svg text, script[type='application/json']")) found.push(node.textContent);
return found.join("\\n");
"""


def browser_faults(browser: Browser, site: Path, most: int) -> Iterator[str]:
    """Pages in Chromium: nothing is executed, no message on the console, no hidden character in what is shown."""
    for kind in (".", "session", "series", "finding", "overview", "coverage"):
        for path in sorted((site / kind).glob("*.html"))[:most]:
            browser.open(path)
            shown = str(browser.run(_VISIBLE))
            data = browser.run("return document.getElementById('data')?.textContent ?? 'null'")
            if is_unsafe(shown) or is_unsafe(json.dumps(json.loads(data), ensure_ascii=False)):
                yield f"browser: {path.relative_to(site)}"
            if browser.run("return window.hacked ?? null") is not None or browser.messages():
                yield f"executed: {path.relative_to(site)}"


def export_faults(history: History, place: Path) -> Iterator[str]:
    """CSV without formulas, and every form without controls; CSV is read back."""
    for form in ("csv", "json", "openmetrics"):
        path = place / f"export.{form}"
        with path.open("wb") as stream:
            if form == "openmetrics":
                write_metrics(history, ResultFilter(), stream)
            else:
                export_results(history, ResultFilter(), form, stream)
        if is_unsafe(path.read_bytes().decode().replace("\r\n", "\n")):
            yield f"export: {form}"
    with (place / "export.csv").open(encoding="utf-8", newline="") as stream:
        cells = [cell for row in csv.reader(stream) for cell in row]
    yield from (f"formula: {cell[:40]!r}" for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r")))
    back = {escape_controls(row.stack) for row in read_export_file(place / "export.csv")}
    if back != {escape_controls(row.stack) for row in history.results(ResultFilter())}:
        yield "export: other names are read back"


def notice_faults(history: History) -> Iterator[str]:
    """Mails, web hooks, chats and issues of all notices of all systems."""
    channels = [{"name": "i", "kind": "issue", "directory": "d"}]
    settings = notify_settings_model().model_validate({"channels": channels, "dashboard": "https://io.example.org"})
    for system in history.systems():
        composed, _ = notices.compose_notices(history, system, settings, None, notices.utc_now())
        if not composed:
            yield f"no notice: {system!r}"
        for notice in composed:
            yield from (f"{what}: {notice.kind} of {system!r}" for what in _faults_of(notice))


def _faults_of(notice: Notice) -> Iterator[str]:
    mail = message_from_bytes(mail_message(notice, _MAIL).as_bytes(), policy=policy.default)
    assert isinstance(mail, EmailMessage)
    subject = str(mail["Subject"])
    if is_unsafe(subject) or "\n" in subject or len(subject) > 120 or mail["Bcc"] is not None:
        yield f"subject {subject!r}"
    bodies = [part.get_content() for part in mail.walk() if part.get_content_maintype() == "text"]
    if len(bodies) != 2 or any(is_unsafe(unescape(body)) or "<script>window" in bodies[1] for body in bodies):
        yield "mail"
    hook: dict[str, Any] = notice.to_json()
    if is_unsafe(json.dumps(hook, ensure_ascii=False)) or is_unsafe(notice.title) or "\n" in notice.title:
        yield "web hook"
    # The zero-width space after `@` is iowatch's own: it prevents mentions.
    chats = [slack_message(notice)["text"], mattermost_message(notice)["text"], issue_text(notice)]
    if any(is_unsafe(text.replace("@\u200b", "@")) or "<!channel>" in text for text in chats[:2]):
        yield "chat"
    if is_unsafe(chats[2].replace("@\u200b", "@")):
        yield "issue"


def file_faults(root: Path) -> Iterator[str]:
    """Every hostile YAML file in every place where a user keeps one, through a command: exit code 2 and one message."""
    places = {
        "systems/local/system.yaml": ("system", "show", "local"),
        "systems/local/notify.yaml": ("notify", "--system", "local"),
        "reference/events/local.yaml": ("event", "list", "--system", "local"),
        "reference/bandwidth/local.yaml": ("reference", "show", "--system", "local"),
        "benchmarks/ior/suites/smoke.yaml": ("run", "--suite", "smoke", "--system", "local", "--dry-run"),
    }
    for name in ("systems/local", "benchmarks/ior/suites"):
        shutil.copytree(settings.product_root() / name, root / name)
    os.environ["IOWATCH_ROOT"] = str(root)
    for place, command in places.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if path.exists() else None
        for label, (content, _, message) in REFUSED.items():
            # A day that is none is a fault of its entry there, and the file of this case has no entry.
            if label == "no day" and "events" in place:
                continue
            path.write_text(content)
            code, text = run_cli(*command)
            if code != 2 or message not in text or path.name not in text or len(text) > 1000 or is_unsafe(text):
                yield f"file: {label} as {place}: exit code {code}: {text[:300]}"
        path.write_bytes(before) if before is not None else path.unlink()


def campaign(names: Sequence[str], browser: Browser | None, place: Path, most: int) -> dict[str, list[str]]:
    """Faults of every way out, with names in a new history below `place`."""
    os.environ["IOWATCH_VAR"] = str(place / "var")
    os.environ.pop("IOWATCH_DB", None)
    with History.open() as history:
        fill(history, names)
        build_site(history, place / "site")
        return {
            "terminal": list(terminal_faults(history, names)),
            "pseudo-terminal": list(pseudo_terminal_faults(str(place / "var" / "iowatch.db"))),
            "pages": list(page_faults(place / "site")),
            "browser": list(browser_faults(browser, place / "site", most)) if browser else ["no browser"],
            "exports": list(export_faults(history, place)),
            "notices": list(notice_faults(history)),
            "files": list(file_faults(place / "checkout")),
        }


def main_campaign() -> int:
    """Run all names and files; exit code 1 if a fault was found."""
    print(f"{len(NAMES)} names, {len(REFUSED)} files in 5 places each", flush=True)
    with tempfile.TemporaryDirectory(prefix="iowatch-hostile-") as place, ExitStack() as stack:
        browser = None if unusable() else stack.enter_context(Browser())
        found = campaign(list(NAMES.values()), browser, Path(place), 10_000)
        pages = sum(1 for _ in Path(place, "site").rglob("*.html"))
    print(f"{pages} pages")
    for way, faults in found.items():
        print(f"{way:16} {len(faults)} faults", *faults[:20], sep="\n    ")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main_campaign())
