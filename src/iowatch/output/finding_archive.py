"""`iowatch findings export`: one archive of a finding for a ticket, with what somebody else needs to repeat it.

README.txt          what is in it, the commands to repeat the finding, and what is left out
finding.json, .txt  as `iowatch findings show`
results.csv         all results of its series, as `iowatch history export` (a side of `iowatch compare`)
stacks/             stack.json of both sides, of the members with the largest changes
runs/<run>/         outputs and Darshan logs of the runs before and after
suites/             the parameter sets
site/finding/       the page; its links lead to pages that the archive does not have
"""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from iowatch.benchmarks.suites import suite_of_file
from iowatch.core import artefacts, files, settings, write_atomically
from iowatch.darshan import privacy_mode
from iowatch.findings import Finding, FindingMember, find_log_differences, strongest_first
from iowatch.output.dashboard.build import BuildOptions, build_site
from iowatch.output.dashboard.data import Page
from iowatch.output.dashboard.pages.finding import publish_finding_pages
from iowatch.output.finding_document import printed_finding
from iowatch.output.text.evidence import log_difference_lines
from iowatch.output.text.findings import finding_lines
from iowatch.store import History, ResultFilter, ResultRow, RunRow, SeriesFilter, export

_MAX_MEMBERS = 12
_HIDDEN = "outputs and Darshan logs: the setting darshan_privacy of the site hides the names and paths in them"


def export_finding(history: History, finding: Finding, target: Path) -> list[str]:
    """Write the archive (tar.gz) of a finding.

    Returns:
        what is left out, and why.

    Raises:
        MachineError: it cannot be written.
    """
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / finding.id
        place.mkdir()
        strongest = strongest_first(finding.members)[:_MAX_MEMBERS]
        runs = list(_runs(history, strongest))
        left_out = list(_copy_outputs(history, runs, place / "runs"))
        _write_results(history, finding, place / "results.csv")
        _write_stacks(runs, place / "stacks")
        _copy_suites({history.session(run.session_uuid).suite for _, run in runs}, place / "suites")
        # Without reports: PyDarshan's contain names, and take seconds.
        page = Page("finding", "Finding", None, partial(publish_finding_pages, only=finding.id))
        build_site(history, Path(scratch) / "site", BuildOptions(sessions=0, reports=0), pages=[page])
        shutil.copytree((Path(scratch) / "site").resolve(), place / "site")
        lines = [*finding_lines(finding), *log_difference_lines(find_log_differences(history, finding))]
        write_atomically(place / "finding.txt", "\n".join(lines) + "\n")
        write_atomically(place / "finding.json", json.dumps(printed_finding(finding), indent=1, allow_nan=False) + "\n")
        write_atomically(place / "README.txt", _readme(finding, left_out))
        _pack(place, target)
    return left_out


def _runs(history: History, members: list[FindingMember]) -> Iterator[tuple[str, RunRow]]:
    """(side, run) of the members, each once."""
    for side in ("before", "after"):
        numbers = (getattr(member, f"run_{side}") for member in members)
        for number in dict.fromkeys(number for number in numbers if number is not None):
            yield side, history.run(number)


def _copy_outputs(history: History, runs: list[tuple[str, RunRow]], place: Path) -> Iterator[str]:
    """Copy the artefacts of the runs; yields what is left out."""
    if privacy_mode() != "keep":
        yield _HIDDEN
        return
    for _, run in runs:
        for one in history.artefacts(run.id):
            source = artefacts.artefact_path(one.sha256)
            if not artefacts.is_intact(source, one.size_bytes):
                yield f"{one.name} of run {run.id}: it was pruned"
                continue
            target = place / str(run.id) / Path(one.name).name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _write_results(history: History, finding: Finding, path: Path) -> None:
    wanted = {(one.case_key, one.metric, one.partition, one.stack) for one in finding.members}

    def rows() -> Iterator[ResultRow]:
        for row in history.results(ResultFilter(SeriesFilter(system=finding.system))):
            if (row.case.key, row.metric, row.partition, row.stack) in wanted:
                yield row

    with path.open("wb") as stream:
        export.EXPORT_FORMATS["csv"](rows(), stream)


def _write_stacks(runs: list[tuple[str, RunRow]], place: Path) -> None:
    for side, run in runs:
        text = json.dumps(dict(run.stack_document), indent=1, sort_keys=True)
        write_atomically(place / f"{side}-{run.id}.json", text + "\n")


def _copy_suites(suites: set[str], place: Path) -> None:
    for (benchmark, suite), path in settings.list_files("suite").items():
        if suite_of_file(suite) in suites:
            write_atomically(place / benchmark / f"{suite}.yaml", path.read_text(encoding="utf-8"))


def _readme(finding: Finding, left_out: list[str]) -> str:
    contents = (__doc__ or "").partition("\n\n")[2].rstrip()
    lines = [
        f"Finding {finding.id} of {finding.system}, exported by iowatch.", "", contents, "",
        "Both sides again, where the stacks of both are installed (stacks/ has what was recorded):", "",
        f"    iowatch reproduce {finding.id}", "",
        "The difference between the stacks, and the results on both sides:", "",
        "    iowatch stack diff stacks/before-N.json stacks/after-N.json",
        "    iowatch compare results.csv,… results.csv,…    (docs/comparison.md)", "",
    ]  # fmt: skip
    return "\n".join([*lines, *(["Left out:", "", *(f"    {one}" for one in left_out), ""] if left_out else [])])


def _pack(place: Path, target: Path) -> None:
    """Pack a directory; the archive contains no names of accounts and no times, so equal content gives equal bytes."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with (
        files.open_atomically(target) as stream,
        gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for path in sorted(place.rglob("*")):
            archive.add(path, f"{place.name}/{path.relative_to(place)}", recursive=False, filter=anonymous)
