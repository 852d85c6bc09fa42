"""`iowatch findings export`: one archive of a finding for a ticket, with what somebody else needs to repeat it."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
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
        directory = Path(scratch) / finding.id
        directory.mkdir()
        # What was measured: runs before and after the change, with their outputs, stacks and suites.
        runs = _runs_of_members(history, strongest_first(finding.members)[:_MAX_MEMBERS])
        left_out = list(_copy_outputs(history, runs, directory / "runs"))
        _write_results(history, finding, directory / "results.csv")
        _write_stacks(runs, directory / "stacks")
        suites = {history.session(member_run.run.session_uuid).suite for member_run in runs}
        _copy_suites(suites, directory / "suites")
        # The page, without reports: PyDarshan's contain names, and take seconds.
        page = Page("finding", "Finding", None, partial(publish_finding_pages, only=finding.id))
        site = Path(scratch) / "site"
        build_site(history, site, BuildOptions(sessions=0, reports=0), pages=[page])
        shutil.copytree(site.resolve(), directory / "site")
        # The finding as text and JSON.
        lines = [*finding_lines(finding), *log_difference_lines(find_log_differences(history, finding))]
        write_atomically(directory / "finding.txt", "\n".join(lines) + "\n")
        document = json.dumps(printed_finding(finding), indent=1, allow_nan=False)
        write_atomically(directory / "finding.json", document + "\n")
        write_atomically(directory / "README.txt", _readme(finding, left_out))
        _pack(directory, target)
    return left_out


@dataclass(frozen=True)
class _MemberRun:
    """A run of a series of the finding, `before` or `after` the change."""

    side: str
    run: RunRow


def _runs_of_members(history: History, members: Iterable[FindingMember]) -> list[_MemberRun]:
    """The runs of the members, each once, those before the change first."""
    before: dict[int, None] = {}
    after: dict[int, None] = {}
    for member in members:
        if member.run_before is not None:
            before[member.run_before] = None
        if member.run_after is not None:
            after[member.run_after] = None
    return [
        *(_MemberRun("before", history.run(number)) for number in before),
        *(_MemberRun("after", history.run(number)) for number in after),
    ]


def _copy_outputs(history: History, runs: Iterable[_MemberRun], directory: Path) -> Iterator[str]:
    """Copy the artefacts of the runs; yields what is left out."""
    if privacy_mode() != "keep":
        yield _HIDDEN
        return
    for member_run in runs:
        run_id = member_run.run.id
        for artefact in history.artefacts(run_id):
            source = artefacts.artefact_path(artefact.sha256)
            if not artefacts.is_intact(source, artefact.size_bytes):
                yield f"{artefact.name} of run {run_id}: it was pruned"
                continue
            target = directory / str(run_id) / Path(artefact.name).name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _write_results(history: History, finding: Finding, path: Path) -> None:
    with path.open("wb") as stream:
        export.EXPORT_FORMATS["csv"](_results_of_members(history, finding), stream)


def _results_of_members(history: History, finding: Finding) -> Iterator[ResultRow]:
    members: set[tuple[str, str, str, str]] = set()
    for member in finding.members:
        members.add((member.case_key, member.metric, member.partition, member.stack))
    for row in history.results(ResultFilter(SeriesFilter(system=finding.system))):
        if (row.case.key, row.metric, row.partition, row.stack) in members:
            yield row


def _write_stacks(runs: Iterable[_MemberRun], directory: Path) -> None:
    for member_run in runs:
        text = json.dumps(dict(member_run.run.stack_document), indent=1, sort_keys=True)
        write_atomically(directory / f"{member_run.side}-{member_run.run.id}.json", text + "\n")


def _copy_suites(suites: Collection[str], directory: Path) -> None:
    for (benchmark, name), path in settings.list_files("suite").items():
        if suite_of_file(name) in suites:
            write_atomically(directory / benchmark / f"{name}.yaml", path.read_text(encoding="utf-8"))


_CONTENTS = """\
README.txt          what is in it, the commands to repeat the finding, and what is left out
finding.json, .txt  as `iowatch findings show`
results.csv         all results of its series, as `iowatch history export` (a side of `iowatch compare`)
stacks/             stack.json of both sides, of the members with the largest changes
runs/<run>/         outputs and Darshan logs of the runs before and after
suites/             the parameter sets
site/finding/       the page; its links lead to pages that the archive does not have"""


def _readme(finding: Finding, left_out: Sequence[str]) -> str:
    lines = [
        f"Finding {finding.id} of {finding.system}, exported by iowatch.", "", _CONTENTS, "",
        "Both sides again, where the stacks of both are installed (stacks/ has what was recorded):", "",
        f"    iowatch reproduce {finding.id}", "",
        "The difference between the stacks, and the results on both sides:", "",
        "    iowatch stack diff stacks/before-N.json stacks/after-N.json",
        "    iowatch compare results.csv,… results.csv,…    (iowatch docs comparison)", "",
    ]  # fmt: skip
    if left_out:
        lines += ["Left out:", "", *(f"    {text}" for text in left_out), ""]
    return "\n".join(lines)


def _pack(directory: Path, target: Path) -> None:
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
        for path in sorted(directory.rglob("*")):
            name = f"{directory.name}/{path.relative_to(directory)}"
            archive.add(path, name, recursive=False, filter=anonymous)
