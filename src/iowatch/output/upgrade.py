"""What a new version of iowatch changes for a site, found without writing anything (docs/upgrades.md).

The history is copied and the copy is migrated and assessed; files of the site are read as the new version reads them.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from iowatch import __version__
from iowatch.benchmarks import suites
from iowatch.benchmarks.importers import maps
from iowatch.core import IowatchError, UsageError, format_count, format_size, plugins, settings, yamlfile
from iowatch.findings import Finding, detection_version, format_day, load_findings, orphaned_decisions, update_findings
from iowatch.output import notice_channels
from iowatch.output.dashboard import pages
from iowatch.reference import bandwidth, events, reviews
from iowatch.session.accepted_plan import is_restricted, loss_reasons
from iowatch.site import load_system, suite_on_system, system_zone
from iowatch.store import History, NoHistoryError, SeriesFilter, SessionRow, maintenance

SECTIONS = ("schema", "detector", "findings", "suites", "renamed", "refused", "replaced")


@dataclass(frozen=True)
class UpgradeItem:
    """One thing that changes.

    Attributes:
        section: one of `SECTIONS`.
        text: in one line.
        needs_person: whether somebody has to decide or to edit a file.
        facts: the same for programs.
    """

    section: str
    text: str
    needs_person: bool
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class UpgradeReport:
    """All that the upgrade changes."""

    items: tuple[UpgradeItem, ...]

    @property
    def needs_person(self) -> bool:
        """Whether somebody has to do something."""
        return any(item.needs_person for item in self.items)

    def to_json(self) -> dict[str, Any]:
        """All sections, also empty ones."""
        rows = {name: [item for item in self.items if item.section == name] for name in SECTIONS}
        listed = {
            name: [{**item.facts, "text": item.text, "needs_person": item.needs_person} for item in items]
            for name, items in rows.items()
        }
        return {"version": __version__, "needs_person": self.needs_person, **listed}


def check_upgrade(place: str | None, old: Path | None, report: Callable[[str], None]) -> UpgradeReport:
    """Find what this version changes for the site and its history; nothing is written.

    Args:
        place: path or URL of the history; None: the setting `database`.
        old: directory of the old installation; None: files of the product are not compared.
        report: called with one line of progress.

    Raises:
        UsageError: `old` is no installation.
        InputError: the history cannot be used by this version.
        MachineError: the history cannot be read, or there is not enough space for the copy.
    """
    items = [*_renamed(), *_refused(), *_replaced(settings.installed_product(old) if old else None)]
    with tempfile.TemporaryDirectory(prefix="iowatch-upgrade-") as folder:
        copy = Path(folder) / "history.db"
        report("copies the history")
        try:
            snapshot = maintenance.snapshot_history(place, copy)
        except NoHistoryError as error:
            items.append(UpgradeItem("schema", error.message, False, {"found": None}))
            return UpgradeReport(tuple(items))
        began = time.monotonic()
        with History.existing(str(copy)) as history:
            items.append(_schema(snapshot, time.monotonic() - began))
            for system in history.systems():
                report(f"{system}: detects changes")
                items += _history_of(history, system)
    return UpgradeReport(tuple(sorted(items, key=lambda item: SECTIONS.index(item.section))))


def _schema(snapshot: maintenance.Snapshot, migrated_s: float) -> UpgradeItem:
    count = format_count(len(snapshot.migrations), "migration")
    text = f"schema {snapshot.revision}, {format_size(snapshot.size_bytes)}: "
    text += f"{count} in {migrated_s:.1f} s ({'; '.join(snapshot.migrations)})" if snapshot.migrations else "is current"
    facts = {"found": snapshot.revision, "migrations": list(snapshot.migrations), "size_bytes": snapshot.size_bytes}
    return UpgradeItem("schema", text, False, {**facts, "migration_s": round(migrated_s, 3)})


def _history_of(history: History, system: str) -> Iterator[UpgradeItem]:
    """Items of one system; `history` is a copy that may be changed."""
    try:
        yield from _suites(history, system)
        yield from _detector(history, system)
        before = load_findings(history, system)
        yield from compare_findings(before, update_findings(history, system, report=False))
        for text in orphaned_decisions(history, system):
            yield UpgradeItem("findings", text, True, {"system": system, "change": "orphaned decision"})
    except IowatchError as error:
        yield UpgradeItem("refused", f"{system}: {error.message}", True, {"system": system})


def _detector(history: History, system: str) -> Iterator[UpgradeItem]:
    numbers = [row.id for row in history.series(SeriesFilter(system=system))]
    stored = {row.version.partition(" since ")[0] for row in history.detections(numbers).values()}
    now = detection_version(system)
    if stored:
        facts = {"system": system, "found": sorted(stored), "now": now}
        same = "is current" if stored == {now} else f"becomes {now}; all series are detected again"
        yield UpgradeItem("detector", f"{system}: {', '.join(sorted(stored))} {same}", False, facts)


def compare_findings(before: Sequence[Finding], after: Sequence[Finding]) -> Iterator[UpgradeItem]:
    """Yield the findings that need action before or after, and appear, vanish or change."""
    known, found = ({one.id: one for one in side} for side in (before, after))
    for name in dict.fromkeys([*known, *found]):
        old, new = known.get(name), found.get(name)
        was = old is not None and old.needs_action
        # Not detected any more: it is resolved when enough sessions confirm that.
        lasts = new is not None and new.needs_action and (new.missed_since is None or (old and old.missed_since))
        details: list[str] = []
        if was and not lasts:
            change = "vanishes"
            details = [(new.resolution or "not detected by this version") if new else "not detected by this version"]
        elif lasts and not was:
            change = "appears"
        elif old and new and lasts and (details := [*_differences(old, new)]):
            change = "changes"
        else:
            continue
        shown = new if new and lasts else old
        assert shown is not None
        text = f"{change}: {shown.line}" + (f" ({'; '.join(details)})" if details else "")
        yield UpgradeItem(
            "findings", text, True, {"system": shown.system, "id": name, "change": change, "details": details}
        )


def _differences(old: Finding, new: Finding) -> Iterator[str]:
    for name in ("date", "direction", "state"):
        if getattr(old, name) != getattr(new, name):
            yield f"{name} {getattr(old, name)} becomes {getattr(new, name)}"
    series = [{member.series_id for member in one.members} for one in (old, new)]
    if series[0] != series[1]:
        yield f"{len(series[0] - series[1])} of {len(series[0])} series leave, {len(series[1] - series[0])} join"


def _suites(history: History, system: str) -> Iterator[UpgradeItem]:
    """Compare the newest complete session of each suite with the suite of today."""
    newest: dict[str, SessionRow] = {}
    for session in history.sessions(system):
        if session.origin == "run" and not (session.is_interleaved or is_restricted(session)):
            newest.setdefault(session.suite, session)
    for suite, session in newest.items():
        day = format_day(session.started_at, system_zone(system))
        try:
            today = {case.run_name: case for case in suite_on_system(suite, system)}
        except UsageError:
            today = {}
        for what, rows in _suite_changes(history, session, today).items():
            if rows:
                text = f"{system} {suite} (session of {day}): {what}: {'; '.join(rows)}"
                facts = {"system": system, "suite": suite, "session": session.uuid, "change": what, "rows": rows}
                yield UpgradeItem("suites", text, what != "cases start", facts)


def _suite_changes(
    history: History, session: SessionRow, today: Mapping[str, suites.SuiteCase]
) -> dict[str, list[str]]:
    lost = loss_reasons(session)
    expected = [one for one in history.expected(session.uuid) if "#" not in one.run_name]
    ended: dict[str, None] = {}
    for one in expected:
        case = today.get(one.run_name)
        if (one.partition, one.stack, one.run_name) in lost:
            continue
        if case is None:
            ended[one.run_name] = None
        elif (one.operation, one.metric) not in case.expects:
            ended[f"{one.run_name} {one.operation} {one.metric}"] = None
    runs = [run for run in history.runs(session.uuid) if "#" not in run.name]
    offered = {"mpi", *(feature for run in runs for feature in _features(run.stack_document))}
    known = {one.run_name for one in expected} | {str(row["name"]) for row in session.attributes.get("deferred", ())}
    started = [name for name, case in today.items() if name not in known and offered.issuperset(case.requires)]
    changed = {run.name: None for run in runs if run.name in today and _is_other_command(run.facts, today[run.name])}
    return {"results end": list(ended), "cases start": started, "command lines change": list(changed)}


def _is_other_command(facts: Mapping[str, Any], case: suites.SuiteCase) -> bool:
    """Whether the options of a case give other arguments than a run had; the scratch directory may be another one."""
    mark = "SCRATCH"
    words = shlex.split(str(facts.get("command") or ""))[1:]
    patterns = [re.escape(word).replace(mark, r"\S*") for word in case.tool.arguments(case.options, mark)]
    same = len(words) == len(patterns) and all(map(re.fullmatch, patterns, words))
    return bool(words) and not same


def _features(document: Mapping[str, Any]) -> Iterable[str]:
    found = document.get("features")
    return map(str, found) if isinstance(found, list) else ()


def _renamed() -> Iterator[UpgradeItem]:
    for one in settings.RENAMED:
        for where in _places_of(one):
            facts = {"where": where, "old": one.old, "new": one.new, "since": one.since}
            yield UpgradeItem("renamed", f"{where}: '{one.old}' is '{one.new}' since {one.since}", True, facts)


def _places_of(one: settings.Renamed) -> Iterator[str]:
    if one.kind == "environment":
        if os.environ.get(one.old):
            yield "environment"
    elif one.kind == "command":
        word = re.compile(rf"(?<![\w.-]){re.escape(one.old)}(?![\w-])")
        for path, text in _own_recipes():
            for number, line in enumerate(text.splitlines(), 1):
                if word.search(line) and not line.lstrip().startswith("#"):
                    yield f"{path}:{number}"
    else:
        for path in _own_files(one.kind):
            document = _read_document(path)
            if document is not None and _has_field(document.data, one.old.split(".")):
                yield document.where(one.old.split("."))


def _own_recipes() -> Iterator[tuple[Path, str]]:
    """Files of `ci/` that a scheduler reads; a clone has those of the product."""
    site = settings.site_root()
    for path in sorted((site / "ci").glob("*")) if site != settings.product_root() else ():
        if path.is_file() and path.suffix != ".md":
            yield path, path.read_text(encoding="utf-8", errors="replace")


def _own_files(kind: str) -> list[Path]:
    site = settings.site_root()
    if kind == settings.SITE_FILE:
        return [site / kind] if (site / kind).is_file() else []
    return [path for path in settings.list_files(kind).values() if path.is_relative_to(site)]


def _read_document(path: Path) -> yamlfile.YamlDocument | None:
    try:
        return yamlfile.YamlDocument(path)
    except IowatchError:  # it is in the section of refused files
        return None


def _has_field(data: Any, names: Sequence[str]) -> bool:
    for name in names:
        if not isinstance(data, dict) or name not in data:
            return False
        data = data[name]
    return True


# How the files of a kind are read; the last part of their names is the argument of the second column.
_READERS: Mapping[str, Callable[[Path, str], object]] = {
    settings.SITE_FILE: lambda _path, _name: settings.site_settings(),
    "system": lambda _path, name: load_system(name),
    "notify": lambda _path, name: notice_channels.load_notify_settings(name),
    "suite": lambda path, _name: suites.read_suite_file(path),
    "map": lambda _path, name: maps.load_map(name),
    "bandwidth": lambda _path, name: bandwidth.load_references(name),
    "events": lambda _path, name: events.load_events(name),
    "reviews": lambda _path, name: reviews.load_decisions(name),
}


def _refused() -> Iterator[UpgradeItem]:
    for kind, read in _READERS.items():
        for path in _own_files(kind):
            name = path.parent.name if kind in ("system", "notify") else path.stem
            try:
                if not name.startswith("_"):
                    read(path, name)
            except IowatchError as error:
                yield UpgradeItem("refused", error.message, True, {"file": str(path)})
    len(pages.PAGES)  # faults of pages are known when their registry is used
    for plugin in plugins.checked_plugins():
        for fault in plugin.faults:
            yield UpgradeItem("refused", fault, True, {"file": str(plugin.path)})


def _replaced(old: Path | None) -> Iterator[UpgradeItem]:
    product, site = settings.product_root(), settings.site_root()
    for path, replaced in settings.overridden_files():
        name = replaced.relative_to(product)
        facts = {"file": str(path.relative_to(site)), "replaces": str(name)}
        if old is None:
            text = f"{facts['file']} replaces {name}; not compared with the old version, which --from names"
            yield UpgradeItem("replaced", text, False, {**facts, "changed": None})
        elif _content(old / name) != _content(replaced):
            how = "has changed" if (old / name).exists() else "is new in this version"
            text = f"{facts['file']} replaces {name}, which {how}"
            yield UpgradeItem("replaced", text, True, {**facts, "changed": how})


def _content(path: Path) -> dict[str, bytes]:
    """Content by relative name of a file, or of all files of a directory; empty if it does not exist."""
    paths = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return {one.relative_to(path).as_posix(): one.read_bytes() for one in paths}


def render_upgrade(report: UpgradeReport, console: Console) -> None:
    """Print the conclusion, then the sections; items that need a person are marked."""
    needed = sum(item.needs_person for item in report.items)
    conclusion = f"{format_count(needed, 'item')} (!) must be handled by a person" if needed else "nothing must be done"
    console.print(f"Upgrade to iowatch {__version__}: {conclusion}.", markup=False)
    for section in SECTIONS:
        items = [item for item in report.items if item.section == section]
        if items:
            console.print(f"\n{section.capitalize()}:", markup=False)
        for item in items:
            console.print(f"  {'!' if item.needs_person else ' '} {item.text}", markup=False, soft_wrap=True)
