"""`iowatch findings export`: what is in the archive, and what a site that hides names leaves out."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import artefacts
from iowatch.store import Artefact, History, export

ID = "franklin-20090317-up"


def exported(cli: Callable[..., Result], history: Path, target: Path) -> dict[str, bytes]:
    """Files of the archive by their path below the directory of the finding."""
    found = cli("findings", "export", ID, "--output", target, "--db", history)
    assert (found.exit_code, found.stdout) == (0, f"{target}\n"), found.stderr
    with tarfile.open(target) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        assert {(member.uname, member.uid) for member in members} == {("", 0)}, "no account is named"
        return {
            member.name.removeprefix(f"{ID}/"): stream.read()
            for member in members
            if (stream := archive.extractfile(member))
        }


def test_archive_has_everything_to_repeat_a_finding(
    franklin_history: Path, cli: Callable[..., Result], tmp_path: Path, var: Path
) -> None:
    """The results, which can be a side of a comparison, are those of its series; the page has its styles beside it."""
    files = exported(cli, franklin_history, tmp_path / "ticket.tar.gz")
    finding = json.loads(files["finding.json"])
    assert finding["id"] == ID
    assert f"site/finding/{ID}.html" in files
    assert "site/static/style.css" in files
    stacks = {name.partition("-")[0] for name in files if name.startswith("stacks/")}
    assert stacks == {"stacks/before", "stacks/after"}
    assert f"iowatch reproduce {ID}" in files["README.txt"].decode()
    assert ID in files["finding.txt"].decode()
    (tmp_path / "results.csv").write_bytes(files["results.csv"])
    series = {(row.stack, row.case.key, row.metric) for row in export.read_export_file(tmp_path / "results.csv")}
    assert series == {(one["stack"], one["case_key"], one["metric"]) for one in finding["members"]}


@pytest.mark.parametrize("mode", ["keep", "hash"])
def test_outputs_are_left_out_where_the_site_hides_names(
    mode: str,
    franklin_history: Path,
    cli: Callable[..., Result],
    tmp_path: Path,
    var: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "output").write_text("user alice in /home/alice")
    stored = artefacts.store_artefact(tmp_path / "output")
    monkeypatch.setenv("IOWATCH_DARSHAN_PRIVACY", mode)
    monkeypatch.setattr(
        History, "artefacts", lambda *_: [Artefact("stdout", "rfm_job.out", stored.sha256, stored.size_bytes)]
    )
    files = exported(cli, franklin_history, tmp_path / "ticket.tar.gz")
    outputs = [content for name, content in files.items() if name.endswith("rfm_job.out")]
    assert bool(outputs) == (mode == "keep")
    assert ("Left out" in files["README.txt"].decode()) == (mode == "hash")
