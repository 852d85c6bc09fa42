"""Sites of many systems, one site and one task per system, and a first page with a row for each."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any

from iowatch.core import MachineError, UsageError, find_time_zone, utc_now, write_atomically
from iowatch.output.dashboard.build import BuildOptions, build_site, link_pages, make_template_environment, static_files
from iowatch.output.dashboard.data import SystemEntry, is_overdue, is_session_running, overdue_after_s
from iowatch.output.dashboard.site import safe_file_name
from iowatch.session.systems import SystemResult, run_for_systems
from iowatch.session.workers import Engine
from iowatch.site import shared_zone
from iowatch.store import History


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSite(SystemResult):
    """Result of building the site of one system, and the row of the system on the first page.

    Attributes:
        site: name of its directory.
        newest: start of the newest session, epoch seconds; None without one.
        session: its state: `complete`, `incomplete`, `running`, or empty for an import or a demonstration.
        due: time after which the next session is overdue, epoch seconds; None if none is expected.
        overdue: whether it was overdue when the site was built.
        need_action, suspected: numbers of findings in these states.
        lost: performance lost in all series of findings that need action, as `Finding.lost_performance`; orders rows.
        loss: the largest loss of one of these series, as a share of its performance before (0 to 1).
        written, kept: numbers of files, as in `BuildResult`.
    """

    site: str = ""
    newest: int | None = None
    session: str = ""
    due: int | None = None
    overdue: bool = False
    need_action: int = 0
    suspected: int = 0
    lost: float = 0.0
    loss: float = 0.0
    written: int = 0
    kept: int = 0


def build_sites(
    database: str | None, systems: Sequence[str], output: Path, options: BuildOptions, engine: Engine | None
) -> list[SystemSite]:
    """Build the site of each system in `output/SYSTEM`, and `output/index.html`; one that fails keeps its older site.

    Args:
        database: the history, as for `History.open`.
        options: of all sites; `system` is set for each.
        engine: as for `run_for_systems`.

    Raises:
        UsageError: `output` is the site of a single build; unknown time zone.
        MachineError: `output` cannot be written; the engine does not start.
    """
    if output.is_symlink():
        raise UsageError(f"{output} is one site of iowatch", hint="Choose another directory with --output.")
    # Before the systems, so that a misspelt zone is reported once.
    zone = find_time_zone(options.zone) if options.zone else shared_zone(systems)
    task = partial(_build_system, database, output.absolute(), options)
    results = run_for_systems(task, SystemSite, systems, engine)
    _write_first_page(results, output, zone)
    return results


def _write_first_page(results: Sequence[SystemSite], output: Path, zone: tzinfo) -> None:
    """Write `index.html`, with a row for each system, and its static files.

    Raises:
        MachineError: `output` cannot be written.
    """
    rows: list[dict[str, Any]] = []
    for result in sorted(results, key=urgency_key):
        # A result with a fault has no directory, but an older site may be there.
        folder = safe_file_name(result.system)
        has_site = (output / folder / "index.html").exists()
        rows.append({**asdict(result), "site": folder, "has_site": has_site})
    templates = make_template_environment(zone)
    link_pages(templates, ())
    text = templates.get_template("systems.html").render(rows=rows, built=int(utc_now().timestamp()))
    try:
        (output / "static").mkdir(parents=True, exist_ok=True)
        for source in static_files():
            shutil.copyfile(source, output / "static" / source.name)
    except OSError as error:
        raise MachineError(f"cannot write {output}: {error.strerror}: {error.filename}") from error
    write_atomically(output / "index.html", text)


def _build_system(database: str | None, output: Path, options: BuildOptions, system: str) -> SystemSite:
    """Build the site of one system: the task of `run_for_systems`."""
    folder = safe_file_name(system)
    with History.existing(database) as history:
        built = build_site(history, output / folder, replace(options, system=system))
    (machine,) = built.catalogue.machines
    need_action = [finding for finding in machine.findings if finding.needs_action]
    # Of every series, so that the largest loss is not hidden by the typical one of its finding.
    losses = [0.0]
    for finding in need_action:
        losses += [1 - member.gain for member in finding.members]
    # A suspected finding with a large loss needs action and is counted there.
    suspected = [f for f in machine.findings if f.state == "suspected" and not f.needs_action]
    newest = machine.newest_session
    return SystemSite(
        system=system,
        site=folder,
        newest=newest.started_at if newest else None,
        session=_session_state(machine, built.moment),
        due=overdue_after_s(machine),
        overdue=is_overdue(machine, built.moment),
        need_action=len(need_action),
        suspected=len(suspected),
        lost=sum(finding.lost_performance for finding in need_action),
        loss=max(losses),
        written=built.written,
        kept=built.kept,
    )


def _session_state(machine: SystemEntry, now: int) -> str:
    """State of the newest session at `now` (epoch s), as `SystemSite.session`."""
    newest = machine.newest_session
    if newest is None or newest.origin != "run":
        return ""
    if is_session_running(machine, now):
        return "running"
    is_complete = newest.status == "ok" and not newest.facts.problems
    return "complete" if is_complete else "incomplete"


def urgency_key(result: SystemSite) -> tuple[bool, bool, int, float, bool, int, str]:
    """Sort key: systems without a new site first, then those without sessions, those of the longest time first; then
    the most lost performance, then what is not complete.
    """
    is_pending = result.session == "incomplete" or result.newest is None
    last_session = result.newest or 0
    if not result.overdue:
        last_session = 0
    return (
        result.fault is None,
        not result.overdue,
        last_session,
        -result.lost,
        not is_pending,
        -result.need_action,
        result.system,
    )
