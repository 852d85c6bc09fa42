"""A page a session: its runs, their results, outputs and what did not come."""

from __future__ import annotations

from iowatch import artefacts
from iowatch.dashboard.collect import night
from iowatch.dashboard.context import Site
from iowatch.store.records import Artefact


def publish(site: Site) -> None:
    """Write `session/<uuid>.html` for each session, and the outputs that it links to."""
    for row in site.history.sessions():
        shown = night(site.history, row)
        results = {run.id: site.history.run_results(run.id) for run in shown.runs}
        kept = {run.id: site.history.artefacts(run.id) for run in shown.runs}
        links = {
            artefact.sha256: _output(site, artefact)
            for artefacts_of_run in kept.values()
            for artefact in artefacts_of_run
        }
        site.page(
            f"session/{row.uuid}.html", "session.html", night=shown, results=results, kept=kept, links=links
        )


def _output(site: Site, artefact: Artefact) -> str | None:
    """Copy an output into the site as plain text; None where it is no longer kept."""
    source = artefacts.path_of(artefact.sha256)
    if not source.is_file():
        return None
    name = f"output/{artefact.sha256}.{'darshan' if artefact.kind == 'darshan' else 'txt'}"
    if not (site.writer.place / name).exists():
        site.writer.copy(name, source)
    return name
