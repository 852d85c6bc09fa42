"""Fixtures for all tests: external data, an empty history, the command line, messages."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import settings

from iowatch.store import History
from tests import datasets, postgresql

ROOT = datasets.ROOT

gc.disable()  # until all tests are imported: objects of modules are no garbage
# The same examples in every run, and no time limit, so that a busy machine causes no failure.
settings.register_profile("iowatch", deadline=None, derandomize=True)
settings.load_profile("iowatch")


@pytest.fixture(scope="session", autouse=True)
def remove_site_settings() -> None:
    """Remove a site's settings: programs that tests start must not write to its directories, nor ignore a hangup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` ignores it
    # Without it each of the hundreds of programs that tests start would compile iowatch again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in ("IOWATCH_DB", "IOWATCH_SCRATCH", "IOWATCH_ROOT", "IOWATCH_DARSHAN_PRIVACY"):
        os.environ.pop(name, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--history postgresql`: a PostgreSQL database instead of an SQLite file; `--quick`: one test of each kind."""
    parser.addoption("--history", choices=["sqlite", "postgresql"], default="sqlite")
    parser.addoption("--quick", action="store_true", help="one test of each kind, without other programs")


# Tests that read or make Darshan logs.
_READ_LOGS = (
    "darshan/test_command",
    "darshan/test_extras",
    "fleet/test_intake",
    "workloads/test_description",
    "workloads/test_replay",
    "darshan/test_own_logs",
    "darshan/test_log_storage",
    "darshan/test_timeline",
    "darshan/test_totals",
    "darshan/test_trace",
)
_READ_LOGS += ("darshan/test_use", "dashboard/test_traced", "comparison/test_traces", "findings/test_traces")


# Files of many seconds per test start first, so that at the end both workers are busy (Makefile).
_FIRST = (
    "tests/test_suite_alone",
    "slurm/test_slurm",
    "tests/test_end_to_end",
    "faults/test_false_green",
    "checks/test_reframe",
    "site/test_batch",
)


def _need_outside_data(items: list[pytest.Item]) -> None:
    for item in items:
        if "outside_data" in getattr(item, "fixturenames", ()):
            item.add_marker("outside_data")
        if item.get_closest_marker("outside_data") and not datasets.outside_data_exist():
            item.add_marker(pytest.mark.skip(reason=datasets.ABSENT))


# Directories and files whose tests start MPI programs, batch systems, databases, browsers or many processes, or
# simulate months of sessions.
_NOT_QUICK = (
    "applications/fleet",
    "applications/workloads/test_description",
    "applications/workloads/test_replay",
    "benchmarks/test_new_benchmark",
    "checks/test_reframe",
    "checks/test_switches",
    "darshan/test_command",
    "demo",
    "docs/test_commands",
    "docs/test_site",
    "experiments/advice",
    "experiments/bisect/test_bisect",
    "experiments/gate/test_gate",
    "faults",
    "findings/test_busy_store",
    "findings/test_findings",
    "findings/test_newest",
    "findings/test_news",
    "output/dashboard",
    "plugins/test_end_to_end",
    "session/test_accepted_plan",
    "session/test_file_systems",
    "session/test_run",
    "session/test_systems",
    "site/test_batch",
    "site/test_cases",
    "site/test_init_listed",
    "slurm",
    "statistics/test_panels_fresh",
    "store/test_availability",
    "store/test_grafana",
    "store/test_roles",
    "test_end_to_end",
    "test_startup",
    "test_suite_alone",
    "test_wheel",
    "test_where_to_add",
)
# Of the pages some tests of functions, and of the answers of the server.
_QUICK_PAGES = ("levels", "limits", "review", "stacks")


def _is_quick(item: pytest.Item) -> bool:
    name = item.path.relative_to(ROOT / "tests").with_suffix("").as_posix()
    if name in [f"output/dashboard/test_{page}" for page in _QUICK_PAGES]:
        return True
    return not name.startswith(_NOT_QUICK)


def _keep_quick_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one case of each test that needs no other program, for somebody who edits."""
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    seen: set[str] = set()
    markers = ("slow", "end_to_end", "browser", "outside_data")
    for item in items:
        name = item.nodeid.partition("[")[0]
        is_repeated = name in seen
        is_heavy = not _is_quick(item)
        is_heavy = is_heavy or any(item.get_closest_marker(marker) for marker in markers)
        is_heavy = is_heavy or "postgresql_url" in getattr(item, "fixturenames", ())
        seen.add(name)
        if is_heavy or is_repeated:
            left_out.append(item)
        else:
            kept.append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def _mark_further_cases_slow(items: list[pytest.Item]) -> None:
    """Of a test with the marker `slow_after(n)` the first n cases are not slow, the others are."""
    cases: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("slow_after")
        if marker is None:
            continue
        name = item.nodeid.partition("[")[0]
        cases[name] += 1
        (number,) = marker.args
        if cases[name] > number:
            item.add_marker("slow")


def _need_capabilities(items: list[pytest.Item]) -> None:
    """Skip what needs a capability where its folder is deleted: the suite works without any."""
    for item in items:
        for marker in item.iter_markers("capability"):
            (name,) = marker.args
            if not (ROOT / "src" / "iowatch" / name.replace(".", "/")).is_dir():
                item.add_marker(pytest.mark.skip(reason=f"needs iowatch.{name}, which is not part of this copy"))


def pytest_collection_finish() -> None:
    """Leave out what was imported when Python looks for garbage: that takes half a second each time."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # else libraries report what they do not free at the end


# Before pytest chooses by markers.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that cannot run: without data, without a log reader, or tests of SQLite with PostgreSQL."""
    _need_outside_data(items)
    _mark_further_cases_slow(items)
    _need_capabilities(items)
    if config.getoption("--quick"):
        _keep_quick_tests(config, items)
    items.sort(key=lambda item: not item.path.with_suffix("").as_posix().endswith(_FIRST))
    try:
        import darshan  # noqa: F401
    except RuntimeError:  # there is no wheel with its library for this Python
        for item in items:
            if item.path.with_suffix("").as_posix().endswith(_READ_LOGS):
                item.add_marker(pytest.mark.skip(reason="needs libdarshan-util (`iowatch doctor` has the command)"))
    if config.getoption("--history") == "sqlite":
        return
    why = postgresql.usable()
    for item in items:
        for marker in ("sqlite_file", "end_to_end"):
            if why or item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=why or f"{marker}: not with --history postgresql"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per reason for which tests were skipped, with their number."""
    skipped = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.section("skipped tests by reason")
    for reason, count in skipped.most_common():
        terminalreporter.write_line(f"{count:4} {reason.removeprefix('Skipped: ')}")


@pytest.fixture(scope="session", autouse=True)
def history_on_postgresql(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--history postgresql`, each history path is mapped to a separate database."""
    if request.config.getoption("--history") == "sqlite":
        yield
        return
    with postgresql.server() as socket, pytest.MonkeyPatch.context() as patch:
        postgresql.stand_in_for_files(socket, patch)
        yield


@pytest.fixture(scope="session")
def outside_data() -> Path:
    """External data (tests/datasets.py); a test that uses this is marked `outside_data`."""
    return datasets.OUTSIDE


@pytest.fixture
def var(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate `var/` per test; the one of the checkout is not changed."""
    place = tmp_path / "var"
    monkeypatch.setenv("IOWATCH_VAR", str(place))
    monkeypatch.delenv("IOWATCH_DB", raising=False)
    return place


@pytest.fixture
def history(var: Path) -> Iterator[History]:
    """An empty history in the `var/` of the test."""
    with History.open() as opened:
        yield opened


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """The messages that iowatch logs during the test, without those of `--verbose`."""
    logger, lines = logging.getLogger("iowatch"), list[str]()
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture(scope="session")
def postgresql_socket() -> Iterator[Path]:
    """A PostgreSQL server for the whole test session."""
    why = postgresql.usable()
    if why:
        pytest.skip(why)
    with postgresql.server() as socket:
        yield socket


@pytest.fixture
def postgresql_url(postgresql_socket: Path) -> str:
    """A new empty database."""
    return postgresql.create_database(postgresql_socket, f"test_{uuid.uuid4().hex[:12]}")


@pytest.fixture
def cli() -> Callable[..., Result]:
    """Run `iowatch WORDS…` in this process, through its entry point; returns exit code and output."""
    import click

    from iowatch.cli.main import _run_command

    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def program(context: click.Context, words: tuple[str, ...]) -> None:
        context.exit(_run_command(words))

    def run(*words: object) -> Result:
        return CliRunner().invoke(program, ["--", *map(str, words)])

    return run


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the time zones of systems, which need not exist in `systems/`: `declared(local="Europe/Berlin")`."""
    from iowatch.site import system

    load = system.load_system

    def declare(**zones: str) -> None:
        def load_system(name: str) -> system.System:
            known = load(name) if name in system.system_names() else system.System(name=name, title=name)
            return known.model_copy(update={"timezone": zones.get(name)})

        monkeypatch.setattr(system, "load_system", load_system)

    return declare
