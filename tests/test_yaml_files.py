"""Every YAML file that a person writes: whatever is wrong in it is one message with position and page."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import iowatch
from iowatch.benchmarks import suites
from iowatch.benchmarks.tables.maps import TableMap
from iowatch.core import InputError
from iowatch.core.settings import SiteSettings
from iowatch.core.yamlfile import ClosedModel, read_model, read_system_file
from iowatch.demo.pinned_pair import RecordedConditions
from iowatch.output.dashboard.pages.comparison import _ComparisonList
from iowatch.output.notice_channels import notify_settings_model
from iowatch.reference.bandwidth import load_references
from iowatch.reference.events import EventFile
from iowatch.reference.published import PublishedSource
from iowatch.reference.reviews import ReviewFile
from iowatch.site.stack import load as stacks
from iowatch.site.system import read_system
from tests.conftest import ROOT


@dataclass(frozen=True)
class Kind:
    """One kind of file: an example, how it is read, and a field of it that has a near miss."""

    page: str
    path: str
    text: str
    read: Callable[[Path], Any]
    misspelt: tuple[str, str]


SYSTEM = """\
name: mine
title: A machine
timezone: Europe/Berlin
scratch: {path: "/lustre/x", mount: /lustre}
limits:
  nodes: 4
  free_bytes: 10g
night:
  minutes: 60
  blackouts:
    - {reason: backup, days: [mon, tue], start: 22:30, end: 01:00}
nodes:
  - name: compute
    count: 100
    source: lscpu
file_systems:
- name: work
  technology: Lustre
  striping: {count: 1, bytes: 1m}
  peaks:
  - {value: 30, unit: GB/s, source: page 7}
  source: lfs df
sources: {}
"""
RECORDED = (ROOT / "reference" / "series" / "netcdf" / "netcdf.yaml").read_text(encoding="utf-8")
NOTIFY = """\
digest: monday
overdue_hours: 26
channels:
  - name: chat
    kind: slack
    url: {environment: HUNTER}
  - name: admins
    kind: mail
    host: mail.example.org
    port: 25
    sender: io@example.org
    to: [a@example.org]
"""
SUITE = """\
format: 1
summary: "what: it measures"
reference: optional
time_limit: 300
defaults: {op: both, ranks: 4}
matrix:
  - api: [posix, mpiio]
    local: [8x8x8, 16x16x16]
  - {api: hdf5, file: shared}
"""
MODULES = """\
modules:
  - gcc/12
  - openmpi/4.1
settings:
  OMPI_MCA_io: ompio
"""
EVENTS = """\
# what happened
system: mine
events:
  - date: 2026-03-17
    until: 2026-03-18
    kind: maintenance
    title: 'the "big" one'
    scope: {file_system: scratch1, ranks: 4}
    evidence:
      - verdict: supports
        text: a note
  - {date: 2026-04-01, kind: upgrade, title: b}
"""
REVIEWS = """\
system: mine
decisions:
  - finding: f-1
    decision: accepted
    by: Ann
    reason: new firmware
    date: 2026-03-17
plans:
  - suite: nightly
    lost:
      - {partition: cpu, stack: gnu, run: "ior:a", results: [write bandwidth]}
    by: Ann
    reason: removed
    date: 2026-03-17T02:00:00Z
"""
BANDWIDTH = """\
BenchioCheck:
  $index: [$partition, $environ, reference_case]
  mine:default:
    gnu:
      api=MPIIO,ranks=4:
        write_bandwidth: [2000, -0.15, 0.2, MiB/s]
provenance:
  BenchioCheck:
    mine:default:
      gnu:
        api=MPIIO,ranks=4:
          write_bandwidth:
            statistic: median
            n: 9
            date: 2026-03-17
            origin: [a, b]
            by: Ann
            why: first
"""
COMPARISONS = """\
comparisons:
  - left: system=a
    right: system=b
    title: both
"""
SOURCE = """\
key: lawrence2017
cited: Lawrence et al. 2017
title: Parallel I/O
authors: A. Lawrence
year: 2017
venue: a report
file: 000.pdf
"""


SITE = """\
title: "My site"
timezone: Europe/Berlin
keep_days: 30
darshan_privacy: hash
thresholds:
  suspected_probability: 0.5
"""


MAP = """\
title: a spreadsheet
file: {format: table, delimiter: ";"}
time: {column: when, format: "%d.%m.%Y %H:%M", zone: Europe/Berlin}
benchmark: {column: program, values: {IOR: ior}}
case:
  operation: {column: op}
  ranks: {column: procs}
values:
  - column: rate
    unit: MiB/s
no_value: failed
"""


def _read_bandwidth(path: Path) -> Any:
    return load_references("mine", path).entries


def _reader(model: type[ClosedModel]) -> Callable[[Path], Any]:
    return lambda path: read_model(path, model)


def _system_reader(model: type[ClosedModel]) -> Callable[[Path], Any]:
    return lambda path: read_system_file(path, "mine", model)


KINDS = {
    Path(path).name: Kind(page, path, text, read, misspelt)
    for page, path, text, read, misspelt in (
        ("systems.md#fields-of-systemyaml", "mine/system.yaml", SYSTEM, read_system, ("limits", "limit")),
        ("notices.md#notices", "notify.yaml", NOTIFY, _reader(notify_settings_model()), ("port", "prot")),
        ("benchmarks.md#format-of-a-suite", "benchio/suites/suite.yaml", SUITE, suites.read_suite_file, ("api", "apj")),
        (
            "pinned-pair.md#recorded-measurement",
            "netcdf.yaml",
            RECORDED,
            _reader(RecordedConditions),
            ("machine", "machin"),
        ),
        ("stacks.md#three-kinds", "modules.yaml", MODULES, _reader(stacks.ModulesFile), ("settings", "setting")),
        ("findings.md#events", "events.yaml", EVENTS, _system_reader(EventFile), ("verdict", "verdikt")),
        ("findings.md#review", "reviews.yaml", REVIEWS, _system_reader(ReviewFile), ("decision", "decison")),
        ("references.md#file-format", "bandwidth.yaml", BANDWIDTH, _read_bandwidth, ("statistic", "statistics")),
        ("dashboard.md#pages", "comparisons.yaml", COMPARISONS, _reader(_ComparisonList), ("title", "titel")),
        ("import.md", "map.yaml", MAP, _reader(TableMap), ("benchmark", "benchmrk")),
        ("settings.md", "site.yaml", SITE, _reader(SiteSettings), ("thresholds", "treshold")),
        ("references.md#published-figures", "source.yaml", SOURCE, _reader(PublishedSource), ("venue", "venu")),
    )
}
# 9 levels of 9 aliases: the sixth line has more than 200,000 entries.
BOMB = "x0: &x0 [1, 1]\n" + "".join(f"x{n + 1}: &x{n + 1} [{', '.join([f'*x{n}'] * 9)}]\n" for n in range(9))


def write(place: Path, kind: Kind, content: bytes | str) -> Path:
    path = place / kind.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(place: Path, kind: Kind, content: bytes | str) -> str | None:
    """The message about a file, checked; None if the file is accepted."""
    path = write(place, kind, content)
    try:
        kind.read(path)
    except InputError as raised:
        error = raised
    else:
        return None
    assert error.hint == f"docs/{kind.page} documents the fields and their values."
    for line in error.message.splitlines():
        assert re.match(rf"{re.escape(str(path))}:(\d+):(\d+): (.+)", line), line
    assert len(error.message) < 6000
    return error.message


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def _edits(line: str) -> Iterator[tuple[str, str]]:
    """What people and editors do to a line."""
    indent, text = re.match(r"( *)(.*)", line).groups()  # type: ignore[union-attr]
    key, colon, value = text.partition(": ")
    yield "deleted", ""
    yield "twice", f"{line}\n{line}"
    yield "one blank more", f" {line}"
    yield "one blank less", line.removeprefix(" ")
    yield "tab in front", f"\t{line}"
    yield "tab for blanks", f"{indent[:-2]}\t{text}"
    for mark in ("'", '"', "[", "{", "@", "`", "%", "*", "&", "!", "|x", ": ", "? ", "- ", "]", "}", ",", "#"):
        yield f"{mark} in front of the value", f"{indent}{key}{colon}{mark}{value}"
    for mark in ("'", '"', ": ", "#", ",", "}"):
        yield f"{mark} behind", f"{line}{mark}"
    if colon:
        for other in (
            "",
            "null",
            "true",
            "-1",
            "1e999",
            "many",
            "[]",
            "{}",
            "[[a]]",
            "{a: {b: c}}",
            "2026-02-30",
            '""',
        ):
            yield f"value {other}", f"{indent}{key}: {other}"
        yield "no colon", f"{indent}{key} {value}"
        yield "another key", f"{indent}{key}x: {value}"
        yield "number as key", f"{indent}7: {value}"
        yield "no key", f"{indent}null: {value}"
        yield "list as key", f"{indent}? [a]\n{indent}: {value}"


@pytest.mark.slow
def test_every_edit_of_a_line_is_accepted_or_explained(kind: Kind, tmp_path: Path) -> None:
    lines = kind.text.splitlines()
    refused = 0
    for number, line in enumerate(lines):
        for name, edited in _edits(line):
            content = "\n".join([*lines[:number], edited, *lines[number + 1 :]])
            try:
                refused += refusal(tmp_path, kind, content) is not None
            except AssertionError as error:
                raise AssertionError(f"line {number + 1}, {name}: {edited!r}: {error}") from error
    assert refused > 15 * len(lines)


def _first_pair(kind: Kind) -> tuple[int, str]:
    """Number, from 1, and text of the first line that is a key with a value."""
    lines = enumerate(kind.text.splitlines(), 1)
    return next((number, line) for number, line in lines if re.match(r" *[$\w]+: \S", line))


def _replaced(kind: Kind, number: int, line: str) -> str:
    return "\n".join(line if n == number else old for n, old in enumerate(kind.text.splitlines(), 1)) + "\n"


def test_damage_is_refused_on_its_line(kind: Kind, tmp_path: Path) -> None:
    """For each damage, the line on which a person would look for it."""
    number, line = _first_pair(kind)
    last = kind.text.count("\n") + 1
    key, _, value = line.partition(": ")
    damaged: dict[str, tuple[bytes | str, int]] = {
        "tab": (_replaced(kind, number, f"\t{line.lstrip()}"), number),
        "duplicate key": (_replaced(kind, number, f"{line}\n{key}: other"), number + 1),
        "unclosed quote": (_replaced(kind, number, f'{key}: "{value.strip(chr(34))}'), number),
        "unclosed list": (kind.text + "more: [1, 2\n", last),
        "NUL": (_replaced(kind, number, f"{key}: a\0b"), number),
        "Latin-1": (_replaced(kind, number, f"{key}: é").encode("latin-1"), number),
        "UTF-16": (kind.text.encode("utf-16"), 1),
        "anchors": (kind.text + BOMB, last + 5),
        "two documents": (kind.text + "---\na: 1\n", last),
        "list": ("- a\n", 1),
        "text": ("hello\n", 1),
        "5 MiB": ("a: " + "x" * 5 * 2**20, 1),
    }
    for name, (content, where) in damaged.items():
        message = refusal(tmp_path, kind, content)
        assert message is not None, name
        # PyYAML notices a missing quote or bracket later, and names the line on which the text or list begins.
        is_position = message.startswith(f"{tmp_path / kind.path}:{where}:")
        assert is_position or f"(line {where})" in message, (name, message)


def test_unknown_key_is_refused_with_the_field_that_was_meant(kind: Kind, tmp_path: Path) -> None:
    right, wrong = kind.misspelt
    message = refusal(tmp_path, kind, re.sub(rf"(?m)^(.*?)\b{right}:", rf"\g<1>{wrong}:", kind.text, count=1)) or ""
    assert f"Did you mean '{right}'?" in message


def test_marks_of_other_editors_are_read(kind: Kind, tmp_path: Path) -> None:
    """A byte order mark, and lines that end as on Windows: allowed in YAML 1.2 (5.2, 5.4)."""
    plain = kind.read(write(tmp_path, kind, kind.text))
    assert kind.read(write(tmp_path, kind, kind.text.encode("utf-8-sig"))) == plain
    assert kind.read(write(tmp_path, kind, kind.text.replace("\n", "\r\n"))) == plain


def test_empty_file_is_explained_or_has_no_entries(kind: Kind, tmp_path: Path) -> None:
    for content in ("", "# only a comment\n", "---\n"):
        if refusal(tmp_path, kind, content) is None:
            assert not kind.read(tmp_path / kind.path)


def _documented_models() -> set[type[ClosedModel]]:
    """All models that name a page themselves, of all modules."""
    for module in pkgutil.walk_packages(iowatch.__path__, "iowatch."):
        if not module.name.startswith(("iowatch.cli", "iowatch.__main__", "iowatch.demo", "iowatch.store.migrations")):
            importlib.import_module(module.name)
    found, left = set(), [ClosedModel]
    while left:
        left += (model := left.pop()).__subclasses__()
        if "docs" in vars(model) and model.docs:
            found.add(model)
    return found


def test_each_kind_of_file_is_tried_and_its_page_exists() -> None:
    pages = {model.docs for model in _documented_models()}
    # Commands are a part of a suite, which is among the kinds.
    assert pages == {"docs/commands.md#fields", *(f"docs/{kind.page}" for kind in KINDS.values())}
    for page in pages:
        path, _, anchor = page.partition("#")
        assert (ROOT / path).is_file()
        titles = re.findall(r"(?m)^#+ (.+)$", (ROOT / path).read_text())
        anchors = {re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in anchors, page


@pytest.mark.slow
def test_command_reports_a_tab_with_exit_code_2(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOWATCH_ROOT", str(tmp_path))
    (tmp_path / "benchmarks").mkdir()
    path = write(tmp_path, KINDS["system.yaml"], "")
    path = path.rename((tmp_path / "systems" / "mine").mkdir(parents=True) or tmp_path / "systems/mine/system.yaml")
    path.write_text("name: mine\ntitle: x\nlimits:\n\tnodes: 4\n")
    done = cli("system", "show", "mine")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"iowatch: {path}:4:1: not YAML: while scanning for the next token, found character that cannot start any "
        "token: a tab\n"
        "  `iowatch docs systems#fields-of-systemyaml` documents the fields and their values.\n"
    )
