"""Sites of many systems, one site and one task per system, and a first page with a row for each."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from iowatch.core import MachineError, UsageError, find_time_zone, utc_now, write_atomically
from iowatch.output.dashboard.build import build_site, make_template_environment, static_files
from iowatch.output.dashboard.data import is_overdue, is_session_running, overdue_after_s
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
    place: str | None, systems: Sequence[str], output: Path, options: Mapping[str, Any], engine: Engine | None
) -> list[SystemSite]:
    """Build the site of each system in `output/SYSTEM`, and `output/index.html`; one that fails keeps its older site.

    Args:
        place: of the history, as for `History.open`.
        options: `zone`, `sessions` and `reports` of `build_site`.
        engine: as for `run_for_systems`.

    Raises:
        UsageError: `output` is the site of a single build; unknown time zone.
        MachineError: `output` cannot be written; the engine does not start.
    """
    if output.is_symlink():
        raise UsageError(f"{output} is one site of iowatch", hint="Choose another directory with --output.")
    zone = find_time_zone(options["zone"]) if options.get("zone") else shared_zone(systems)
    task = partial(_build_system, place, output.absolute(), dict(options))
    found = run_for_systems(task, SystemSite, systems, engine)
    rows = [
        {**asdict(one), "site": name, "has_site": (output / name / "index.html").exists()}
        for one, name in zip(found, map(safe_file_name, systems), strict=True)
    ]
    rows.sort(key=_urgency_key)
    templates = make_template_environment(zone, ())
    text = templates.get_template("systems.html").render(rows=rows, built=int(utc_now().timestamp()))
    try:
        (output / "static").mkdir(parents=True, exist_ok=True)
        for source in static_files():
            shutil.copyfile(source, output / "static" / source.name)
    except OSError as error:
        raise MachineError(f"cannot write {output}: {error.strerror}: {error.filename}") from error
    write_atomically(output / "index.html", text)
    return found


def _build_system(place: str | None, output: Path, options: Mapping[str, Any], system: str) -> SystemSite:
    with History.existing(place) as history:
        built = build_site(history, output / safe_file_name(system), system=system, **options)
    (machine,) = built.catalogue.machines
    need_action = [one for one in machine.findings if one.needs_action]
    newest, state = machine.newest_session, ""
    if newest is not None and newest.origin == "run":
        is_complete = newest.status == "ok" and not newest.facts.problems
        is_running = is_session_running(machine, built.moment)
        state = "running" if is_running else "complete" if is_complete else "incomplete"
    return SystemSite(
        system=system,
        site=safe_file_name(system),
        newest=newest.started_at if newest else None,
        session=state,
        due=overdue_after_s(machine),
        overdue=is_overdue(machine, built.moment),
        need_action=len(need_action),
        suspected=sum(one.state == "suspected" and not one.needs_action for one in machine.findings),
        lost=sum(one.lost_performance for one in need_action),
        loss=max((0.0, *(1 - member.gain for one in need_action for member in one.members))),
        written=built.written,
        kept=built.kept,
    )


def _urgency_key(row: Mapping[str, Any]) -> tuple[bool, float, bool, int, str]:
    """Sort key: systems without a new site first, then the most lost performance, then what is not complete."""
    pending = row["overdue"] or row["session"] == "incomplete" or row["newest"] is None
    return row["fault"] is None, -row["lost"], not pending, -row["need_action"], row["system"]
