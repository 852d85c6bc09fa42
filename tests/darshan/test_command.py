"""The commands `iowatch darshan` and `iowatch parse darshan`."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from iowatch.darshan import DarshanReader, write_pydarshan_report

MakeLog = Callable[..., Path]
Cli = Callable[..., Result]

# Hostile content of a log: HTML, markup, escape sequences, formulas, shell, path.
EVIL = '/lus/<script>alert(1)</script>[red]x[/red]\x1b[31m$\\frac{$(reboot)`id`/../../etc/" onload=alert(2)'
DXT = [("/lus/a", rank, [(0.5, 2.0 + rank)], [(6.0, 7.0)]) for rank in range(4)]
POSIX = [("/lus/a", -1, {"POSIX_WRITES": 24, "POSIX_BYTES_WRITTEN": 24 << 20, "POSIX_F_WRITE_TIME": 8.0,
                         "POSIX_F_SLOWEST_RANK_TIME": 3.0, "POSIX_OPENS": 4})]  # fmt: skip
MPIIO = [("/lus/a", -1, {"MPIIO_COLL_WRITES": 24, "MPIIO_INDEP_WRITES": 7, "MPIIO_COLL_OPENS": 4})]


def test_json_has_the_documented_keys(make_log: MakeLog, cli: Cli) -> None:
    result = cli("darshan", make_log(posix=POSIX, mpiio=MPIIO, exe="/apps/ior -a MPIIO"), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert {"status", "reason", "job", "modules", "derived", "files"} <= document.keys()
    assert (document["status"], document["reason"]) == ("ok", None)
    assert {"ranks", "exe", "start", "end", "run_time_s", "darshan_version"} <= document["job"].keys()
    assert document["job"]["start"] == "2023-11-14T22:13:20Z"
    assert document["modules"]["MPI-IO"]["MPIIO_COLL_WRITES"] == 24


def test_output_has_collective_and_independent_writes(make_log: MakeLog, cli: Cli) -> None:
    result = cli("darshan", make_log(posix=POSIX, mpiio=MPIIO))
    assert result.exit_code == 0
    assert "24 collective and 7 independent writes" in result.stdout


def test_unreadable_log_is_reported_in_json_and_on_stderr(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "x.darshan"
    path.write_bytes(b"")
    result = cli("darshan", path, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["status"] == "unreadable"
    assert result.stderr.startswith(f"iowatch: {path}: the file is empty (0 bytes)")


def test_partial_log_exits_with_1(make_log: MakeLog, cli: Cli) -> None:
    path = make_log(posix=POSIX, mpiio=MPIIO)
    path.write_bytes(path.read_bytes()[:-1])
    result = cli("darshan", path, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["status"] == "partial"
    assert list(document["missing"]) == ["MPI-IO"]
    assert "POSIX" in document["modules"]


def test_more_than_two_logs_are_refused(make_log: MakeLog, cli: Cli) -> None:
    path = make_log()
    assert cli("darshan", path, path, path).exit_code == 2


def test_diff_lists_changed_counters(make_log: MakeLog, cli: Cli) -> None:
    after = [("/lus/a", -1, {"MPIIO_COLL_WRITES": 12, "MPIIO_INDEP_WRITES": 0, "MPIIO_COLL_OPENS": 4})]
    logs = make_log(posix=POSIX, mpiio=MPIIO), make_log(posix=POSIX, mpiio=after, ranks=8)
    lines = [line.strip() for line in cli("darshan", *logs).stdout.splitlines()]
    # The fourth is the share of collective writes: 77 -> 100 %.
    assert lines[0] == "4 differences"
    assert "ranks: 4 -> 8" in lines
    assert "collective writes: 24 -> 12 (1/2)" in lines
    assert "independent writes: 7 -> 0 (none after)" in lines
    changes = json.loads(cli("darshan", *logs, "--json").stdout)["changes"]
    change = next(c for c in changes if c["name"] == "MPIIO_COLL_WRITES")
    assert (change["left"], change["right"], change["ratio"]) == (24, 12, 0.5)


def test_equal_logs_are_reported_as_no_difference(make_log: MakeLog, cli: Cli) -> None:
    path = make_log(posix=POSIX)
    assert cli("darshan", path, path).stdout.strip() == "No difference above the thresholds."


@pytest.mark.slow
def test_hostile_content_of_a_log_is_escaped(make_log: MakeLog, cli: Cli, tmp_path: Path, var: Path) -> None:
    evil = [(EVIL, 0, {"POSIX_WRITES": 1, "POSIX_BYTES_WRITTEN": 10, "POSIX_F_WRITE_TIME": 1.0})]
    metadata = {"lib_ver": "3.5.0<script>alert(3)</script>", "h": "x"}
    traces = [(EVIL, 0, [(0.0, 1.0)], [])]
    log = make_log(exe=EVIL, posix=evil, dxt=traces, metadata=metadata, mounts=[("ext4", "/<img/src=x>")])
    html, picture = tmp_path / "r.html", tmp_path / "t.svg"
    result = cli("darshan", log, "--html", html, "--timeline", picture)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "\\x1b[31m" in result.stdout
    assert "[red]x[/red]" in result.stdout
    page = html.read_text()
    assert "<script" not in page
    assert "<img/src" not in page
    assert "default-src 'none'" in page
    assert picture.stat().st_size > 1000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.darshan", "r.html", "t.svg"]


def svg_fills(path: Path) -> set[str]:
    text = path.read_text().lower()
    return {colour for colour in ("#0077bb", "#cc3311") if f"fill: {colour}" in text}


def test_timeline_paints_writes_blue_and_reads_red(make_log: MakeLog, cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "t.svg"
    assert cli("darshan", make_log(posix=POSIX, dxt=DXT), "--timeline", picture).exit_code == 0
    assert svg_fills(picture) == {"#0077bb", "#cc3311"}


def test_unwritable_report_exits_with_3(make_log: MakeLog, cli: Cli, tmp_path: Path) -> None:
    result = cli("darshan", make_log(), "--html", "/proc/r.html")
    assert result.exit_code == 3
    assert "/proc/r.html: " in result.stderr
    result = cli("darshan", make_log(), "--html", tmp_path / "none" / "r.html")
    assert result.exit_code == 2
    assert "none' does not exist" in result.stderr


@pytest.mark.slow
def test_report_names_its_log(make_log: MakeLog, tmp_path: Path) -> None:
    """The report uses the given name, because the file name of an artefact is its digest."""
    log = make_log(posix=POSIX)
    with DarshanReader() as reader:
        for number, name in enumerate([None, "benchio:api=mpiio,file=shared,collective=true,ranks=64<b>, run 12"]):
            page = tmp_path / f"{number}.html"
            write_pydarshan_report([log], page, reader, name=name)
            assert f"<td>{escape(name or log.name)}</td>" in page.read_text()


def test_timelines_side_by_side_as_png(make_log: MakeLog, cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "t.png"
    log = make_log(posix=POSIX, dxt=DXT)
    assert cli("darshan", log, log, "--timeline", picture).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_timeline_needs_dxt_or_heatmap(make_log: MakeLog, cli: Cli, tmp_path: Path) -> None:
    result = cli("darshan", make_log(posix=POSIX), "--timeline", tmp_path / "t.png")
    assert result.exit_code == 2
    assert "neither a DXT trace nor a heatmap" in result.stderr
    assert not (tmp_path / "t.png").exists()


def test_timeline_with_unknown_suffix_is_refused(make_log: MakeLog, cli: Cli, tmp_path: Path) -> None:
    assert cli("darshan", make_log(dxt=DXT), "--timeline", tmp_path / "t.docx").exit_code == 2


@pytest.mark.parametrize("mode", ["hash", "drop"])
def test_privacy_option_removes_names(mode: str, make_log: MakeLog, cli: Cli, var: Path) -> None:
    log = make_log(posix=[("/lus/anna/secret", 0, {"POSIX_WRITES": 3})], exe="/home/anna/run", uid=71234)
    result = cli("darshan", log, "--json", "--privacy", mode)
    assert result.exit_code == 0
    for word in ("anna", "secret", "71234"):
        assert word not in result.stdout
    assert json.loads(result.stdout)["modules"]["POSIX"]["POSIX_WRITES"] == 3


def test_log_without_user_has_no_uid(make_log: MakeLog, cli: Cli) -> None:
    """As `darshan-convert --obfuscate` or a site's own tool writes it."""
    assert json.loads(cli("darshan", make_log(posix=POSIX, uid=-1), "--json").stdout)["job"]["uid"] is None


@pytest.mark.parametrize("mode", ["hash", "drop"])
def test_full_report_is_refused_with_privacy_option(
    mode: str, make_log: MakeLog, cli: Cli, tmp_path: Path, var: Path
) -> None:
    result = cli("darshan", make_log(posix=POSIX), "--html", tmp_path / "r.html", "--privacy", mode)
    assert result.exit_code == 2
    assert "report shows user names and paths" in result.stderr
    assert not (tmp_path / "r.html").exists()


def parsed(cli: Cli, *words: object) -> tuple[int, dict[str, Any]]:
    result = cli("parse", "darshan", *words, "--json")
    return result.exit_code, json.loads(result.stdout)


def test_parse_gives_chosen_counters(make_log: MakeLog, cli: Cli) -> None:
    code, document = parsed(cli, make_log(posix=POSIX, mpiio=MPIIO))
    assert (code, document["tool"], document["version"], document["status"]) == (0, "darshan", "3.5.0", "ok")
    found = {(r["operation"], r["metric"]): r["samples"] for r in document["results"]}
    assert found["write", "collective_count"] == [24.0]
    assert found["write", "independent_count"] == [7.0]
    assert found["read", "independent_count"] == [0.0]


def test_parse_refuses_another_number_of_ranks(make_log: MakeLog, cli: Cli) -> None:
    code, document = parsed(cli, make_log(posix=POSIX), "--ranks", 2)
    assert (code, document["status"]) == (1, "failed")
    assert document["reason"] == "the log has 4 ranks, 2 were requested"
