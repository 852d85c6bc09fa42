"""Kinds of runs: nothing is lost by keeping once what repeats, whatever the facts are."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from iowatch.model import Output, Result
from iowatch.store import History, RunRecord, SessionRecord, StackRecord
from iowatch.store.copy import copy
from iowatch.store.engine import migrate
from iowatch.store.kinds import _NODES, _REPEATS, _TEXTS, split, whole
from iowatch.store.results import ResultFilter
from iowatch.store.schema import RunKindTable, RunTable
from tests.store.test_care import places  # noqa: F401  # a fixture

KINDS = ["sqlite", "postgresql"]
UUID = "44b21fd7-45cd-4d99-9b53-a5e4cfb58736"
# PostgreSQL's JSON knows neither NUL nor half a surrogate.
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
known = st.sampled_from(
    [*_REPEATS, *_TEXTS, *_NODES, "started", "pair", "free_bytes", "directory", "type", "counts"]
)
scratch = st.lists(st.sampled_from([UUID, "{session}", "{", "/scratch/iowatch-", "}"]), max_size=4).map("".join)
value = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | text | scratch,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(known | text, inner, max_size=4),
    max_leaves=12,
)
any_facts = st.dictionaries(known | text, value, max_size=8)


def facts(night: int, session: str = UUID) -> dict[str, Any]:
    """Of a run of benchio as a night leaves them: the names are those of its record and of our checks."""
    scratch = f"/lustre/iowatch-{session}/ac0754ae1774"
    return {
        "started": f"2026-11-21T07:5{night}:01.990852Z",
        "mpi": {"implementation": "Open MPI", "version": "4.1.4"},
        "filesystem": {
            "directory": f"{scratch}/benchio-{night}",
            "type": "lustre",
            "free_bytes": 10**12 - night,
        },
        "darshan": {"status": "ok", "reason": None, "counts": {"POSIX_WRITES": 5 + night}},
        "command": f"benchio --op=both --dir={scratch} --json=benchio.json",
        "nodes": [f"n{night}"],
        "pair": night,
        "side": "left",
    }


def run(fingerprint: str, own: dict[str, Any], name: str = "benchio:a", version: str | None = "1") -> RunRecord:
    output = Output("benchio", version, "ok", None, (Result("write", "bandwidth", "MiB/s", (1.0, 2.0), {}),))
    return RunRecord(name, "compute", StackRecord("gnu", {}), fingerprint, 1000, output, facts=own)


def nights(history: History, number: int, first: int = 0) -> None:
    for night in range(first, first + number):
        uuid = f"{UUID}-{night}"
        history.begin_session(SessionRecord(uuid, "local", "nightly", "run", 1000 + night))
        history.record_runs(uuid, [run(f"f{night}", facts(night, uuid))])


def number_of_kinds(history: History) -> int:
    with history.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(RunKindTable)).scalar_one())


@given(any_facts, st.sampled_from([UUID, "s", "{session}", "sess", ""]))
def test_parts_make_the_same_facts(given_facts: dict[str, Any], session: str) -> None:
    """The parts go through JSON, as in the database; equality of the texts tells 1 from 1.0 and true."""
    kind, texts, own = (json.loads(json.dumps(part)) for part in split(given_facts, session))
    again = whole(kind, texts, own, session)
    assert json.dumps(again, sort_keys=True) == json.dumps(given_facts, sort_keys=True)
    # Taking apart what was put together gives the same kind: migrations down and up do not multiply kinds.
    same, like, rest = split(again, session)
    assert json.dumps([same, like]) == json.dumps([kind, texts])
    assert json.dumps(whole(same, like, rest, session)) == json.dumps(again)  # also in the same order


@pytest.mark.parametrize("kind", KINDS)
def test_facts_are_read_as_they_were_written(places: Callable[[str], str], kind: str) -> None:  # noqa: F811
    odd: list[dict[str, Any]] = [
        {},
        {"filesystem": None, "darshan": [], "command": 3, "mpi": None},
        {"filesystem": {}, "command": "{session}", "path": f"{UUID}-2 {UUID}"},
        {"filesystem": {"free_bytes": 1}, "command": "", "exit_code": 0},
        {"filesystem": {"type": "tmpfs"}, "exit_code": 0.0, "again": True},
    ]
    with History.open(places(kind)) as history:
        for number, one in enumerate(odd):
            uuid = f"{UUID}-{number}"
            history.begin_session(SessionRecord(uuid, "local", "nightly", "run", 1000))
            history.record_runs(uuid, [run(f"f{number}", one, version=None)])
            (row,) = history.runs(uuid)
            assert (row.name, row.partition, row.tool, row.version) == ("benchio:a", "compute", "benchio", None)
            assert json.dumps(row.facts, sort_keys=True) == json.dumps(one, sort_keys=True)
            assert history.run(row.id) == row


@pytest.mark.parametrize("kind", KINDS)
def test_nights_share_a_kind_and_keep_their_own(places: Callable[[str], str], kind: str) -> None:  # noqa: F811
    with History.open(places(kind)) as history:
        nights(history, 5)
        assert number_of_kinds(history) == 1
        assert [row.facts for n in range(5) for row in history.runs(f"{UUID}-{n}")] == [
            facts(n, f"{UUID}-{n}") for n in range(5)
        ]
        with history.reading() as connection:
            own = connection.execute(select(RunTable.facts).order_by(RunTable.id)).scalars().all()
        assert set(own[0]) == {"started", "filesystem", "darshan", "nodes[]", "pair", "side"}
        assert set(own[0]["filesystem"]) == {"directory", "free_bytes"}
        # What a comparison asks for in SQL is the run's own.
        told = [(row.run, row.pair, row.side) for row in history.results(ResultFilter())]
        assert told == [("benchio:a", n, "left") for n in range(5)]
        changed = {**facts(5), "mpi": {"implementation": "MPICH"}}
        history.record_runs(f"{UUID}-4", [run("new-mpi", changed), run("new-name", facts(6), name="other")])
        assert number_of_kinds(history) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_migrating_down_and_up_with_real_facts(places: Callable[[str], str], kind: str) -> None:  # noqa: F811
    with History.open(places(kind)) as history:
        nights(history, 4)
        failed = run("bad", {"started": "x", "kernel": "6.1"}, version=None)
        output = replace(failed.output, status="failed", reason="cut")
        history.record_runs(f"{UUID}-0", [replace(failed, output=output)])
        before = {n: history.runs(f"{UUID}-{n}") for n in range(4)}
        migrate(history.engine, "0002")
        with history.engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT name, tool, version, facts FROM run ORDER BY id").all()
        loaded = [json.loads(f) if isinstance(f, str) else f for *_, f in rows]
        assert rows[0][:3] == ("benchio:a", "benchio", "1")
        assert loaded[:4] == [facts(n, f"{UUID}-{n}") for n in range(4)]
        assert loaded[4]["kernel"] == "6.1"
        assert loaded[4]["partial_results"]
        migrate(history.engine, "head")
        assert {n: history.runs(f"{UUID}-{n}") for n in range(4)} == before
        assert number_of_kinds(history) == 2
        nights(history, 2, first=4)  # kinds from the migration and from ingestion are the same
        assert number_of_kinds(history) == 2


def test_a_copy_takes_kinds_along(places: Callable[[str], str]) -> None:  # noqa: F811
    with History.open(places("sqlite")) as source, History.open(places("postgresql")) as target:
        nights(source, 3)
        target.begin_session(SessionRecord("other", "other", "nightly", "run", 5))
        target.record_runs("other", [run("in-the-way", {"kernel": "other"}), run("shared", facts(9, "other"))])
        copy(source, target)
        assert number_of_kinds(target) == 2
        for night in range(3):
            (row,) = target.runs(f"{UUID}-{night}")
            assert row.facts == facts(night, f"{UUID}-{night}")


def test_no_row_pays_for_columns_that_are_gone(places: Callable[[str], str]) -> None:  # noqa: F811
    """PostgreSQL keeps a removed column as an absent value: 8 bytes more in the head of every row."""
    query = "SELECT count(*) FROM pg_attribute WHERE attisdropped AND attrelid IN (to_regclass('run'), "
    with History.open(places("postgresql")) as history, history.reading() as connection:
        assert connection.exec_driver_sql(query + "to_regclass('result'))").scalar() == 0
