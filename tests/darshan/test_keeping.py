"""Keeping logs: as they are, or without user names and paths before anything else sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch import artefacts, spool
from iowatch.darshan import Reader, read_trace
from iowatch.darshan.keeping import VARIABLE, keep
from iowatch.errors import UsageError
from iowatch.runner import session
from iowatch.store import History, SessionRecord

MakeLog = Callable[..., Path]
PATH = "/home/alice/secret/a"
POSIX = [(PATH, -1, {"POSIX_WRITES": 3, "POSIX_BYTES_WRITTEN": 300})]


def test_a_log_is_kept_as_it_is(make_log: MakeLog, var: Path) -> None:
    log = make_log(posix=POSIX)
    found = keep(log)
    assert found is not None
    assert artefacts.path_of(found[0]).read_bytes() == log.read_bytes()


@pytest.mark.parametrize("mode", ["hash", "drop"])
def test_a_run_leaves_no_name_where_the_site_wants_none(
    mode: str, make_log: MakeLog, reader: Reader, var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the spool of a session to what is kept: the counters are there, path and program are not."""
    monkeypatch.setenv(VARIABLE, mode)
    log = make_log(posix=POSIX, exe="/home/alice/bin/program")
    with History.open(str(tmp_path / "history.db")) as history:
        place = session.begin(history, SessionRecord("one", "local", "smoke", "run", 1_700_000_000, {}), [])
        spool.put(place, _case(), {"darshan": [log]})
        session.ingest(history, place, reader)
        assert spool.finished(place) == []
        (run,) = history.runs("one")
        (kept,) = history.artefacts(run.id)
    trace = read_trace(artefacts.path_of(kept.sha256), reader)
    assert trace.counter("POSIX_BYTES_WRITTEN") == 300
    assert "alice" not in repr(trace)
    assert "alice" not in repr(run.facts)


def test_a_damaged_log_is_not_kept_with_half_its_names(
    make_log: MakeLog, var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "hash")
    log = make_log(posix=POSIX)
    data = log.read_bytes()
    log.write_bytes(data[:1340] + b"\0\0\0" + data[1343:])
    assert keep(log) is None


def test_a_misspelt_setting_ends_a_night_before_it_begins(
    var: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "hashed")
    with (
        History.open(str(tmp_path / "history.db")) as history,
        pytest.raises(UsageError, match="hashed"),
    ):
        session.begin(history, SessionRecord("one", "local", "smoke", "run", 1_700_000_000, {}), [])
    assert not (var / "runs").exists()


def _case() -> spool.SpooledCase:
    output: dict[str, object] = {
        "tool": "ior",
        "version": None,
        "status": "ok",
        "reason": None,
        "results": [],
        "facts": {},
    }
    return spool.SpooledCase(
        name="ior:one",
        benchmark="ior",
        partition="default",
        stack_name="one",
        stack={},
        started_at=1_700_000_000,
        wall_s=1.0,
        output=output,
        facts={},
    )


def test_the_log_has_a_name_to_hide(make_log: MakeLog, reader: Reader) -> None:
    assert "alice" in repr(read_trace(make_log(posix=POSIX), reader))
