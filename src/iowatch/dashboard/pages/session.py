"""A page a session: its runs with results, outputs, Darshan, stack, nodes, and what did not come."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from iowatch import artefacts
from iowatch.darshan import Reader
from iowatch.dashboard.catalogue import Machine
from iowatch.dashboard.context import Site
from iowatch.dashboard.nights import evidence_sessions, night, page_of, shown_sessions
from iowatch.dashboard.traces import pictures, summary
from iowatch.errors import InputError
from iowatch.model import summarise
from iowatch.reference.counts import printed
from iowatch.report.history import run_bandwidths
from iowatch.store import RunRow, SessionRow, bulk
from iowatch.store.records import Artefact
from iowatch.units import format_number

Results = Sequence[tuple[int, tuple[float, ...]]]
# Names and places of a run's logs.
Logs = Sequence[tuple[str, Path]]
_MOST_LOGS = 8
# Full Darshan reports cost seconds each, and a night has some hundred runs. A page keeps those that it was made
# with; older nights come to be without only where a site is made from nothing.
_REPORTED_NIGHTS = 7
# Least of a row's highest value, unit and factor for it: 0.000096 s is nothing that people can read.
_SECONDS = ((0.1, "s", 1.0), (1e-4, "ms", 1e3), (0.0, "µs", 1e6))
# Facts that have a place of their own on the page.
_TOLD = ("darshan", "partial_results", "nodes", "command", "source", "label")


def publish(site: Site) -> None:
    """Write `session/<uuid>.html` for the newest sessions and for those that findings rest on."""
    for machine in site.catalogue.machines:
        evidence = evidence_sessions(machine)
        for position, row in enumerate(shown_sessions(machine, site.nights)):
            basis = [row.uuid, row.status, row.ended_at, row.runs, row.attributes]
            reports = site.reports if position < _REPORTED_NIGHTS or row.id in evidence else 0
            site.page(page_of(row), "session.html", basis, partial(_values, site, machine, row, reports))


def _values(site: Site, machine: Machine, row: SessionRow, reports: int) -> dict[str, Any]:
    shown = night(site.history, row)
    with site.history.reading() as connection:
        kept = bulk.session_artefacts(connection, row.id)
        results = bulk.session_results(connection, row.id)
    traced = {run: logs for run, files in kept.items() if (logs := _logs(files))}
    told = _traces(site, machine, shown.runs, traced, reports)
    runs = [
        {
            **_run(site, run, kept.get(run.id, []), results.get(run.id, [])),
            "darshan": told.get(run.id, []),
        }
        for run in shown.runs
    ]
    return {"machine": machine, "night": shown, "runs": runs}


def _traces(
    site: Site, machine: Machine, runs: Sequence[RunRow], traced: Mapping[int, Logs], reports: int
) -> dict[int, list[dict[str, Any]]]:
    """What each log says; pictures and reports of so many runs, those that findings rest on first."""
    if not traced:
        return {}
    members = [m for finding in machine.findings for m in finding.members]
    evidence = {n for m in members for n in (m.run_before, m.run_after)}
    # One reader for all: starting one takes longer than reading a log.
    with Reader() as reader:
        told = {
            number: [{**summary(path, reader), "name": name, "log": path.name} for name, path in logs]
            for number, logs in traced.items()
        }
        readable = [run for run in runs if run.id in traced and told[run.id][0]["fault"] is None]
        for run in sorted(readable, key=lambda run: run.id not in evidence)[:reports]:
            told[run.id][0] |= pictures(site, run, traced[run.id][0][1], reader)
    return told


def _logs(files: Sequence[Artefact]) -> Logs:
    """The logs of a run that are still kept; a program that is started several times leaves one a start."""
    found = [(one.name, artefacts.path_of(one.sha256)) for one in files if one.kind == "darshan"]
    return [(name, path) for name, path in found if path.is_file()][:_MOST_LOGS]


def _run(site: Site, run: RunRow, kept: Sequence[Artefact], results: Results) -> dict[str, Any]:
    known = [(site.catalogue.by_id[n], samples) for n, samples in results if n in site.catalogue.by_id]
    told = [{"series": one, "samples": samples, **readable(one.metric.unit, samples)} for one, samples in known]
    return {
        "run": run,
        "results": told,
        "partial": _partial(run),
        "files": [(artefact, _output(site, artefact)) for artefact in kept],
        "operations": _operations(told),
        "bandwidths": run_bandwidths([(one.row, samples) for one, samples in known]),
        "trace_fault": _trace_fault(run.facts.get("darshan")),
        "nodes": _words(run.facts.get("nodes")),
        "command": _words(run.facts.get("command")),
        "source": _words(run.facts.get("source")),
        "parts": _parts(run.stack_document),
        "facts": _pretty({name: value for name, value in run.facts.items() if name not in _TOLD}),
    }


def readable(unit: str, samples: Sequence[float]) -> dict[str, Any]:
    """Unit (none for counts and shares), values and summary of a row for people: short times in ms or µs."""
    shown, factor = "" if unit == "1" else unit, 1.0
    if unit == "s":
        shown, factor = next((name, by) for least, name, by in _SECONDS if max(samples) >= least)
    values = tuple(value * factor for value in samples)
    return {"unit": shown, "shown": values, "summary": summarise(values)}


def _operations(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """How one repetition moved its data, and what a paper prints for the like of it."""
    counts: dict[str, dict[str, float]] = {}
    papers = {}
    for one in told:
        row = one["series"].row
        if row.metric in ("collective_count", "independent_count"):
            operation = str(row.case.parameters.get("operation", ""))
            counts.setdefault(operation, {})[row.metric] = one["samples"][-1]
            papers[operation] = printed(row.case)
    lines = []
    for operation, both in counts.items():
        collective, independent = (both.get(f"{kind}_count", 0) for kind in ("collective", "independent"))
        ours = f"{operation}: {format_number(collective)} collective, {format_number(independent)} independent"
        paper = papers[operation]
        lines.append(f"{ours} ({paper.text})" if paper else ours)
    return lines


def _words(value: object) -> str:
    """A fact in words; facts come from outputs and may be anything."""
    return (
        ", ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)
    )


def _trace_fault(value: object) -> str:
    return _words(value.get("reason")) if isinstance(value, dict) else ""


def _parts(document: Mapping[str, Any]) -> list[list[str]]:
    """Name, version, hash and compiler of each part of a stack."""
    parts = document.get("parts")
    rows = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return [[_words(part.get(key)) or "–" for key in ("name", "version", "hash", "compiler")] for part in rows]


def _pretty(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, indent=1, ensure_ascii=False, default=str) if facts else ""


def _partial(run: RunRow) -> Sequence[tuple[str, str]]:
    """What an unfinished run printed: kept with it, in no series."""
    rows: Sequence[Mapping[str, Any]] = run.facts.get("partial_results") or ()
    return [
        (f"{row.get('operation')} {row.get('metric')}", f"{_numbers(row.get('samples', ()))} {row.get('unit')}")
        for row in rows
    ]


def _numbers(samples: Sequence[float]) -> str:
    return " ".join(format_number(value) for value in samples)


def _output(site: Site, artefact: Artefact) -> str | None:
    """Copy an output into the site as plain text; None where it is no longer kept."""
    try:
        source = artefacts.path_of(artefact.sha256)
    except InputError:
        return None
    if not source.is_file():
        return None
    name = f"output/{artefact.sha256}.{'darshan' if artefact.kind == 'darshan' else 'txt'}"
    site.writer.copy(name, source)
    return name
