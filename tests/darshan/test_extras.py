"""A host that only measures: PyDarshan's library without pandas and matplotlib, which only its reports need."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result

from iowatch.core import PAGES, MachineError, missing_extra_error
from iowatch.darshan import read_trace
from iowatch.output.dashboard import traces
from iowatch.site import machine
from tests.conftest import ROOT

from .test_trace import POSIX

Cli = Callable[..., Result]
MakeLog = Callable[..., Path]


def _without(packages: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers find no such packages: `None` in `sys.modules` is an absent module for Python's imports."""
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in packages)]
    (tmp_path / "sitecustomize.py").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    for name in packages:
        monkeypatch.setitem(sys.modules, name, None)


def test_log_is_read_without_pandas_and_matplotlib(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(posix=POSIX)
    complete = read_trace(log)
    _without(("pandas", "matplotlib", "seaborn", "mako"), tmp_path, monkeypatch)
    assert complete.status == "ok"
    assert read_trace(log).to_json() == complete.to_json()


@pytest.mark.parametrize(
    ("option", "absent", "message"),
    [
        ("--html", ("pandas", "matplotlib"), "PyDarshan's report needs "),
        ("--timeline", ("matplotlib",), "the timeline of a trace needs matplotlib, which is not installed"),
    ],
)
def test_report_and_timeline_name_the_extra(
    make_log: MakeLog,
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    absent: tuple[str, ...],
    message: str,
) -> None:
    log, target = make_log(posix=POSIX), tmp_path / "drawing.svg"
    _without(absent, tmp_path, monkeypatch)
    done = cli("darshan", log, option, target)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "iowatch[pages]" in done.stderr
    assert f"pip install '{PAGES.requirements[0]}'" in done.stderr
    assert not target.exists()


def test_missing_pydarshan_gets_its_command(make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces are kept, but nothing can read them."""
    log = make_log(posix=POSIX)
    _without(("pandas", "darshan"), tmp_path, monkeypatch)
    with pytest.raises(MachineError, match="PyDarshan, whose library reads logs, is not installed") as missing:
        read_trace(log)
    assert str(missing.value.hint).startswith("Add it with: ")
    assert "--no-deps" in str(missing.value.hint)


def test_command_that_adds_pydarshan_names_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a host without PyDarshan; `pip install` of the package alone, into the environment of this Python."""
    monkeypatch.setattr(machine, "pydarshan_version", lambda: None)
    monkeypatch.setattr(machine.os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    assert not machine.can_read_darshan_logs()
    command = machine.darshan_library_command()
    assert command.startswith(f"{sys.executable} -m pip install --upgrade --no-deps ")
    assert command.endswith(" darshan==3.5.0")


def test_pages_are_built_without_drawings_and_say_so(tmp_path: Path, messages: list[str]) -> None:
    """Once, not for each trace."""
    traces._report_missing_extra.cache_clear()
    writer = SimpleNamespace(reuse=lambda name: False, target=lambda name: tmp_path / Path(name).name)

    def draw(path: Path) -> None:
        path.write_text("half a drawing")
        raise missing_extra_error("the timeline of a trace", PAGES, ImportError("x", name="matplotlib.figure"))

    for number in range(2):
        log = tmp_path / f"{number}.darshan"
        assert traces._write_once(SimpleNamespace(writer=writer), [log], ["run"], "svg", draw) is None
    assert messages == [
        "pages without drawings of Darshan traces: the timeline of a trace needs matplotlib, which is not installed: "
        "it belongs to the extra iowatch[pages]"
    ]
    assert list(tmp_path.glob("*.svg")) == []


def test_extra_has_the_requirements_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert tuple(declared[PAGES.name]) == PAGES.requirements
