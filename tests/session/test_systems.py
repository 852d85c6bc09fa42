"""One task per system: the same findings by every engine, and a failure is that of one system."""

from __future__ import annotations

import itertools
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench import systems as bench
from click.testing import Result

from iowatch.demo.scenarios import generate_sessions
from iowatch.findings import load_findings, update_findings
from iowatch.output.dashboard import each_system
from iowatch.output.dashboard.build import BuildOptions, build_site
from iowatch.output.text.findings import finding_line
from iowatch.session import systems
from iowatch.session.workers import Engine, dask_workers, local_processes
from iowatch.store import History, maintenance, write
from tests.findings.conftest import STEP, root, slower_mpiio, update_time

__all__ = ["root"]
NAMES = ("planted", "second")


def record(history: History, name: str) -> None:
    """Fifty sessions of eight series, of which two lose half ten days before the end."""
    scenario = replace(slower_mpiio(last=STEP + timedelta(days=10)), system=name, name=name)
    with history.writing() as connection:
        for session in generate_sessions(scenario, seed=5):
            one = replace(session.session, uuid=f"{name}-{session.session.uuid}"[:60], origin="run")
            write.insert_session(connection, one, ())
            runs = [replace(run, fingerprint=f"{name} {run.fingerprint}") for run in session.runs]
            write.insert_runs(connection, one.uuid, runs)


@pytest.fixture
def recorded(history: History, root: Path) -> History:
    """Two systems of eight series, of which two lost half ten days ago."""
    del root
    for name in NAMES:
        record(history, name)
    return history


@pytest.fixture
def with_pages(history: History) -> History:
    """The same in the checkout of the tests, which has the templates of pages."""
    for name in NAMES:
        record(history, name)
    return history


def lines(history: History) -> list[tuple[str, str]]:
    return [(one.id, finding_line(one)) for one in load_findings(history)]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("engine", [None, partial(local_processes, 2), partial(dask_workers, None, 1)])
def test_every_engine_stores_the_same_findings(recorded: History, engine: Engine | None) -> None:
    """Both systems have the planted loss; results are in the history, whichever process computed them."""
    found = systems.update_systems(None, NAMES, engine)
    assert [(one.system, one.fault, one.findings, one.need_action) for one in found] == [
        (name, None, 1, 1) for name in NAMES
    ]
    stored = lines(recorded)
    for name in NAMES:
        update_findings(recorded, name, report=False)
    assert len(stored) == 2
    assert lines(recorded) == stored


def test_a_system_that_fails_does_not_stop_the_others(
    recorded: History, root: Path, cli: Callable[..., Result]
) -> None:
    """A damaged file of decisions is the fault of its system; the exit code is that of the error."""
    (root / "reference/reviews/planted.yaml").write_text("reviews: {", encoding="utf-8")
    done = cli("findings", "update", "--workers", "1", "--json")
    assert done.exit_code == 2
    first, second = json.loads(done.stdout)["systems"]
    assert (first["system"], second["fault"], second["need_action"]) == ("planted", None, 1)
    assert "reference/reviews/planted.yaml" in first["fault"]
    assert "planted failed: " in done.stderr
    assert {one.system for one in load_findings(recorded)} == {"second"}
    text = cli("findings", "update", "--workers", "1")
    assert "1 of 2 systems updated in" in text.stdout
    assert "1 finding needs action in 1 system" in text.stdout
    assert cli("findings", "update", "--system", "second").exit_code == 1
    assert cli("findings", "update", "--system", "third").exit_code == 2


def test_dask_workers_start_beside_another_scheduler_of_the_host() -> None:
    """The default port of a scheduler's HTTP server may be in use; a warning about it would be an error here."""
    taken = socket.create_server(("127.0.0.1", 8787)) if _is_free(8787) else nullcontext()
    with taken, dask_workers(None, 1) as (executor, number):
        assert (executor.submit(os.getpid).result() != os.getpid(), number) == (True, 1)


def test_dask_starts_one_worker_per_core_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3})
    with dask_workers(None, None) as (executor, number):
        assert (number, executor.submit(abs, -1).result()) == (2, 1)


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) != 0


def test_update_without_a_fault_states_the_findings(recorded: History, cli: Callable[..., Result]) -> None:
    del recorded
    done = cli("findings", "update", "--workers", "1")
    assert done.exit_code == 1
    assert done.stdout.startswith("2 of 2 systems updated in ")
    assert done.stdout.endswith("2 findings need action in 2 systems\n")
    assert cli("findings", "update", "--scheduler", "tcp://127.0.0.1:9", "--workers", "2").exit_code == 2


class _Killed(ProcessPoolExecutor):
    """A pool in which the task of one system ends its process."""

    def submit(self, function, /, system, *words):  # type: ignore[no-untyped-def]
        return super().submit(*((os._exit, 9) if system == "planted" else (function, system, *words)))


def test_a_killed_process_is_the_fault_of_its_system(recorded: History) -> None:
    @contextmanager
    def engine() -> Iterator[tuple[ProcessPoolExecutor, int]]:
        with _Killed(1) as pool:
            yield pool, 1

    killed, other = systems.update_systems(None, NAMES, engine)
    assert (killed.exit_code, other.fault, other.findings) == (3, None, 1)
    assert "killed" in str(killed.fault)
    del recorded


def _log_and_end(system: str) -> systems.SystemResult:
    logging.getLogger("iowatch.test").info("%s: a message", system)
    logging.getLogger("iowatch.test").debug("%s: only with --verbose", system)
    return systems.SystemResult(system=system)


def _end(system: str) -> systems.SystemResult:
    return systems.SystemResult(system=system)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("engine", [None, partial(local_processes, 2), partial(dask_workers, None, 1)])
def test_messages_of_all_workers_are_shown_here(engine: Engine | None, var: Path, messages: list[str]) -> None:
    """With the level of this process, which `--quiet` and `--verbose` set."""
    logger = logging.getLogger("iowatch")
    for level, expected in ((logging.INFO, {f"{name}: a message" for name in NAMES}), (logging.ERROR, set())):
        messages.clear()
        logger.setLevel(level)
        done = systems.run_for_systems(_log_and_end, systems.SystemResult, NAMES, engine)
        assert [one.fault for one in done] == [None, None]
        # The engine reports its progress if it starts slowly.
        assert {text for text in messages if not text.endswith("s left")} == expected


def test_time_that_is_left_is_that_of_the_other_systems(
    var: Path, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each system takes 10 s, by a clock of this test."""
    clock = SimpleNamespace(monotonic=itertools.count(0, 10).__next__, perf_counter=time.perf_counter)
    monkeypatch.setattr(systems, "time", clock)
    monkeypatch.setattr(systems, "_REPORT_S", 10)
    names = ["one", "two", "three", "four"]
    systems.run_for_systems(_end, systems.SystemResult, names, partial(local_processes, 1))
    assert messages == [
        "1 of 4 systems, 30 s left",
        "2 of 4 systems, 20 s left",
        "3 of 4 systems, 10 s left",
        "4 of 4 systems, 0 s left",
    ]


def test_faults_of_iowatch_are_those_of_one_system(recorded: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an unexpected exception: the second system is updated."""
    real = systems.update_findings

    def update(history: History, system: str, **options: bool) -> object:
        if system == "planted":
            raise ZeroDivisionError("division by zero")
        return real(history, system, **options)

    monkeypatch.setattr(systems, "update_findings", update)
    first, second = systems.update_systems(None, NAMES, None)
    assert (first.fault, first.exit_code) == ("ZeroDivisionError: division by zero", 3)
    assert (second.fault, second.need_action) == (None, 1)
    del recorded


def test_bench_of_many_systems_in_small(postgresql_url: str, var: Path) -> None:
    """`bench/systems.py` writes histories as sessions would: judged, a new session told, every third series changed."""
    del var
    with History.open(postgresql_url) as history:
        system = bench.System(history, number=0, series=12)
        system.write(range(230))
        (first,) = systems.update_systems(postgresql_url, [system.name], None)
        assert (first.fault, first.findings) == (None, 1)
        (finding,) = load_findings(history)
        assert [len(finding.members), finding.direction, finding.size] == [4, "up", pytest.approx(1.3, rel=0.05)]
        system.write(range(230, 231))
        (news,) = systems.update_systems(postgresql_url, [system.name], None, newest_only=True)
        assert (news.fault, news.findings) == (None, 1)
        assert {row.n for row in history.series()} == {231}
        assert len(history.sessions()) == 232
        assert maintenance.check_history(history).faults == ()


@pytest.mark.slow
def test_site_of_a_system_is_that_of_a_history_with_this_system_only(
    history: History, tmp_path: Path, cli: Callable[..., Result]
) -> None:
    """Byte by byte, whatever other systems the history has; a later build after a decision keeps the choice."""
    now = update_time(STEP + timedelta(days=11))
    record(history, NAMES[0])
    update_findings(history, NAMES[0], now)
    build_site(history, tmp_path / "alone", now=now)
    record(history, NAMES[1])
    update_findings(history, NAMES[1], now)
    build_site(history, tmp_path / "chosen", options=BuildOptions(system=NAMES[0]), now=now)
    sites = [
        {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*.html")}
        for place in ((tmp_path / name).resolve() for name in ("alone", "chosen"))
    ]
    assert len(sites[0]) > 60
    assert sites[0] == sites[1]
    assert json.loads((tmp_path / "chosen" / "build.json").read_text())["system"] == NAMES[0]
    assert cli("dashboard", "build", "--system", "third").exit_code == 2


@pytest.mark.slow
def test_sites_of_each_system_are_those_of_single_builds(
    with_pages: History, tmp_path: Path, cli: Callable[..., Result]
) -> None:
    """Two processes write, byte by byte, what two builds write; the first page has a row with the loss of each."""
    place = tmp_path / "sites"
    for name in NAMES:
        update_findings(with_pages, name, update_time(STEP + timedelta(days=11)))
    done = cli("dashboard", "build", "--each-system", "--workers", "2", "--output", place, "--json")
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)["systems"]
    assert [(row["system"], row["need_action"], row["overdue"]) for row in rows] == [(name, 1, True) for name in NAMES]
    assert [row["loss"] for row in rows] == [pytest.approx(0.5, abs=0.1)] * 2
    for name in NAMES:
        assert cli("dashboard", "build", "--system", name, "--output", tmp_path / name).exit_code == 0
        single = (tmp_path / name).resolve()
        pages = {path.relative_to(single) for path in single.rglob("*.html")}
        assert len(pages) > 60
        assert [page for page in pages if (place / name / page).read_bytes() != (single / page).read_bytes()] == []
    text = (place / "index.html").read_text()
    assert "2 findings need action</strong> on 2 of them" in text
    assert [f'href="{name}/index.html"' in text for name in NAMES] == [True, True]
    assert cli("dashboard", "build", "--output", place).exit_code == 2  # a directory of sites is no site


@pytest.mark.slow
def test_site_that_cannot_be_built_is_named_and_the_older_one_kept(
    with_pages: History, tmp_path: Path, cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    del with_pages
    words = ("dashboard", "build", "--each-system", "--workers", "1", "--output", tmp_path / "sites")
    assert cli(*words).exit_code == 0
    before = (tmp_path / "sites/planted/index.html").read_bytes()
    real = each_system.build_site

    def build(history: History, place: Path, options: BuildOptions) -> object:
        if place.name == "planted":
            raise ZeroDivisionError("division by zero")
        return real(history, place, options)

    monkeypatch.setattr(each_system, "build_site", build)
    failed = cli(*words)
    assert failed.exit_code == 3
    assert "planted failed: ZeroDivisionError: division by zero" in failed.stderr
    assert "(1 of 2 sites built in" in failed.stdout
    text = (tmp_path / "sites/index.html").read_text()
    assert '<strong class="alarm">1 not built</strong>' in text
    assert "The link leads to an older site." in text
    assert text.index("planted") < text.index("second")
    assert (tmp_path / "sites/planted/index.html").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--each-system", "--system", "planted"), "--each-system is for all systems"),
        (("--workers", "2"), "--workers and --scheduler need --each-system"),
        (("--each-system", "--zone", "Mars/Olympus"), "Mars/Olympus"),
        (("--each-system", "--output", "site"), "site is one site of iowatch"),
    ],
)
def test_options_of_sites_that_do_not_fit_are_refused(
    recorded: History,
    words: tuple[str, ...],
    message: str,
    cli: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    del recorded
    monkeypatch.chdir(tmp_path)
    Path("site").symlink_to("elsewhere")
    refused = cli("dashboard", "build", *words)
    assert refused.exit_code == 2
    assert message in refused.stderr
