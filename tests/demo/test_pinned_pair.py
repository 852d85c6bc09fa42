"""`iowatch demo netcdf`: which measurement it shows, and the paper's figures beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import InputError
from iowatch.demo import pinned_pair
from iowatch.demo.pinned_pair import LEFT, RIGHT, PairSource, find_source
from iowatch.site.stack.install import NotInstalled
from iowatch.store import History
from tests.builders import build_stack

Cli = Callable[..., Result]


@pytest.fixture
def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither stack is installed, and Spack cannot get sources."""
    monkeypatch.setattr(pinned_pair, "load_stack", lambda name, system: build_stack(name=name, status="missing"))
    monkeypatch.setattr(pinned_pair, "unreachable_sources", lambda: "no network")


@pytest.mark.usefixtures("without_network")
def test_recorded_measurement_is_named_first_with_the_reason(cli: Cli, tmp_path: Path) -> None:
    shown = cli("demo", "netcdf", "--db", str(tmp_path / "demo.db"))
    assert shown.exit_code == 0
    first = shown.stdout.splitlines()[0]
    measured = pinned_pair.read_conditions().measured
    assert first.startswith(f"Recorded measurement of {measured}, not measured now: ")
    assert f"{LEFT} and {RIGHT} cannot be built here: no network" in first
    # Every case has a verdict of the vocabulary of `iowatch compare`.
    assert "NetCDF-4" in shown.stdout
    assert f"{LEFT} against {RIGHT}" in shown.stdout


@pytest.mark.usefixtures("without_network")
def test_document_has_pairs_conditions_and_the_figures_of_the_paper(cli: Cli, tmp_path: Path) -> None:
    """[lawrence2017], section 6: about 1 GiB/s with 4.3.3.1; Table 8 of 4.4.0: 10,807.797 with 6,144 writers."""
    document = json.loads(cli("demo", "netcdf", "--recorded", "--json", "--db", str(tmp_path / "d.db")).stdout)
    assert (document["source"], document["reason"]) == ("recorded", "asked for by --recorded")
    published = document["published"]
    assert published["limit_mib_per_s"] == 1024
    figures = {point["writers"]: point["maximum_striping"] for point in published["points"]}
    assert figures[6144] == 10807.797
    assert figures[24] == 476.357
    pairs = document["comparison"]["pairs"]
    assert {pair["case"]["api"] for pair in pairs} == {"NETCDF4"}
    assert {pair["case"]["operation"] for pair in pairs} == {"write", "read"}
    assert document["comparison"]["names"] == {"left": LEFT, "right": RIGHT}
    # The sides differ in netCDF only.
    differences = document["comparison"]["measured"]["libraries"]["differences"]
    assert [difference["part"] for difference in differences] == ["netcdf-c"]
    assert document["conditions"]["parts"]["hdf5"].startswith("1.8.16")


def test_installed_stacks_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_pair, "load_stack", lambda name, system: build_stack(name=name))
    assert find_source(recorded=False) == PairSource(is_measured=True)
    assert not find_source(recorded=True).is_measured


def test_reachable_sources_are_built_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_pair, "load_stack", lambda name, system: build_stack(name=name, status="missing"))
    monkeypatch.setattr(pinned_pair, "unreachable_sources", lambda: None)
    source = find_source(recorded=False)
    assert source == PairSource(is_measured=True, missing=(LEFT, RIGHT))
    built: list[str] = []

    def install(name: str, system: str) -> object:
        built.append(name)
        return object()

    monkeypatch.setattr(pinned_pair, "install_where_possible", install)
    assert pinned_pair.build_missing(source) == PairSource(is_measured=True)
    assert built == [LEFT, RIGHT]


def test_stack_that_cannot_be_built_gives_the_recorded_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_pair, "install_where_possible", lambda name, system: NotInstalled("no compiler"))
    source = pinned_pair.build_missing(PairSource(is_measured=True, missing=(RIGHT,)))
    assert source == PairSource(is_measured=False, reason=f"{RIGHT} cannot be built here: no compiler")


def test_damaged_table_names_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = pinned_pair.read_conditions()
    folder = tmp_path / "reference/series/netcdf"
    folder.mkdir(parents=True)
    (folder / "netcdf.csv").write_text(
        "pair,started,side,ranks,local_size,operation,samples_mib_per_s\n1,7,middle,1,2x2x2,write,2.0\n"
    )
    monkeypatch.setattr(pinned_pair.settings, "product_root", lambda: tmp_path)
    monkeypatch.setattr(pinned_pair, "read_conditions", lambda: conditions)
    with History.open(str(tmp_path / "d.db")) as history, pytest.raises(InputError, match="side 'middle'"):
        pinned_pair.record_measurement(history)
