"""Hybrids of two stacks: which parts differ, and what a hybrid loads, sets and builds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from iowatch.core import UsageError
from iowatch.experiments.common import hybrids
from iowatch.experiments.common.builds import recorded_stack
from iowatch.experiments.common.hybrids import HybridSource, compare_for_hybrids, recorded_hybrids
from iowatch.site import Stack, StackPart
from iowatch.site.stack.records import StackStatus, stack_directory

from .spack_specs import installed_stack, spec

Declare = Callable[..., HybridSource]


@pytest.fixture
def declare(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> Declare:
    """Two stacks of modules from their lists and settings; every hybrid can be loaded."""

    def read(_system: str, path: Path, _programs: object = ()) -> Stack:
        document = yaml.safe_load(path.read_text())
        parts = (StackPart("openmpi", "4.1.4"),)
        return Stack(
            path.parent.name, "local", "modules", "installed", parts,
            modules=tuple(document["modules"]), settings=document.get("settings", {}),
        )  # fmt: skip

    monkeypatch.setattr(hybrids, "load_module_stack", read)
    monkeypatch.setattr(hybrids, "manifest_directory", lambda _, name: tmp_path / name)
    monkeypatch.setattr(hybrids, "load_stack", lambda name, system: read(system, tmp_path / name / "modules.yaml"))

    def declared(
        good: list[str], bad: list[str], good_settings: dict[str, str] | None = None,
        bad_settings: dict[str, str] | None = None,
    ) -> HybridSource:  # fmt: skip
        for name, modules, settings in (("good", good, good_settings), ("bad", bad, bad_settings)):
            (tmp_path / name).mkdir()
            document = {"modules": modules, **({"settings": settings} if settings else {})}
            (tmp_path / name / "modules.yaml").write_text(yaml.safe_dump(document))
        return compare_for_hybrids("local", "good", "bad")

    return declared


def test_parts_are_modules_and_settings_that_differ(declare: Declare) -> None:
    source = declare(
        ["gcc/12", "mpi/5", "darshan/3.4"],
        ["gcc/12", "mpi/5.1", "hdf5/1.14"],
        {"A": "1", "B": "1"},
        {"A": "2", "B": "1"},
    )
    assert [str(part) for part in source.parts] == [
        "module mpi: mpi/5 → mpi/5.1",
        "module darshan: darshan/3.4 → none",
        "setting A: 1 → 2",
        "module hdf5: none → hdf5/1.14",
    ]


def test_hybrid_has_the_chosen_parts_in_their_places(declare: Declare) -> None:
    source = declare(["gcc/12", "mpi/5", "io/1"], ["gcc/13", "hdf5/1", "mpi/6", "io/1"], None, {"A": "2"})
    number = {part.name: place for place, part in enumerate(source.parts)}
    hybrid = source.stack(frozenset({number["hdf5"], number["mpi"]}))
    assert hybrid.modules == ("gcc/12", "hdf5/1", "mpi/6", "io/1")
    assert hybrid.settings == {}
    assert source.stack(frozenset({number["A"]})).settings == {"A": "2"}
    assert source.stack(frozenset({number["gcc"]})).modules == ("gcc/13", "mpi/5", "io/1")


def test_ends_are_the_stacks_themselves(declare: Declare) -> None:
    source = declare(["mpi/5", "io/1"], ["mpi/6", "io/2"])
    assert source.stack(frozenset()).name == "good"
    assert source.stack(frozenset({0, 1})).name == "bad"


def test_equal_hybrids_have_equal_names_and_different_ones_not(declare: Declare) -> None:
    source = declare(["mpi/5", "io/1", "h/1"], ["mpi/6", "io/2", "h/2"])
    again = compare_for_hybrids("local", "good", "bad")
    names = {source.stack(frozenset(chosen)).name for chosen in ([0], [1], [2], [0, 1], [0, 2], [1, 2])}
    assert len(names) == 6
    assert again.stack(frozenset([0, 2])).name == source.stack(frozenset([0, 2])).name


def test_hints_of_a_file_are_parts_of_their_own(declare: Declare, tmp_path: Path) -> None:
    for name, text in (("one", "cb_nodes 1\nromio_cb_write enable\n"), ("two", "cb_nodes 2\nromio_cb_write disable\n")):
        (tmp_path / name).write_text(text)
    source = declare(
        ["mpi/5"], ["mpi/5"], {"ROMIO_HINTS": str(tmp_path / "one")}, {"ROMIO_HINTS": str(tmp_path / "two")}
    )
    assert [(part.kind, part.name) for part in source.parts] == [("hint", "cb_nodes"), ("hint", "romio_cb_write")]
    path = Path(source.stack(frozenset({0})).settings["ROMIO_HINTS"])
    assert path.read_text() == "cb_nodes 2\nromio_cb_write enable\n"


def test_order_of_modules_is_a_part(declare: Declare) -> None:
    source = declare(["mpi/5", "io/1", "x/1"], ["io/1", "mpi/5", "x/2"])
    number = {part.kind: place for place, part in enumerate(source.parts)}
    assert source.stack(frozenset({number["order"]})).modules == ("io/1", "mpi/5", "x/1")
    assert source.stack(frozenset({number["module"]})).modules == ("mpi/5", "io/1", "x/2")


def test_hybrid_without_modules_is_broken(declare: Declare) -> None:
    source = declare(["mpi/5"], ["openmpi/5"])
    assert source.stack(frozenset({0})).status == "broken"


def test_equal_stacks_are_refused(declare: Declare) -> None:
    with pytest.raises(UsageError, match="do not differ"):
        declare(["mpi/5"], ["mpi/5"], {"A": "1"}, {"A": "1"})


@pytest.mark.parametrize(
    ("change", "message"), [({"status": "broken", "note": "no module mpi/5"}, "cannot be run: no module mpi/5")]
)
def test_stacks_that_cannot_be_used_are_refused(
    change: dict[str, str], message: str, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(["mpi/5"], ["mpi/6"])
    load = hybrids.load_stack
    monkeypatch.setattr(hybrids, "load_stack", lambda *words: replace(load(*words), **change))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=message):
        compare_for_hybrids("local", "good", "bad")


@pytest.fixture
def environments(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of environments that were resolved or built by a mock-up of Spack, which gives them one part."""
    asked: list[str] = []

    class Environment:
        def __init__(self, system: str, name: str, write: object) -> None:
            self.name = name

        def _made(self, status: StackStatus) -> Stack:
            asked.append(f"{status} {self.name}")
            return Stack(self.name, "local", "spack", status, (StackPart("ior", "4.0.0"),), ("ior",))

        def resolved(self) -> Stack:
            return self._made("locked")

        def stack(self) -> Stack:
            return self._made("installed")

    monkeypatch.setattr(hybrids, "SpackEnvironment", Environment)
    return asked


def test_hybrids_of_spack_are_environments_that_are_built_when_they_are_measured(
    tmp_path: Path, var: Path, environments: list[str]
) -> None:
    """benchio is only rebuilt on another netcdf-c, so it is no part."""
    sides = [
        (spec("benchio", "1", spec("netcdf-c", netcdf)), spec("ior", ior))
        for netcdf, ior in (("4.3.3", "3.3.0"), ("4.4.0", "4.0.0"))
    ]
    good, bad = (
        installed_stack(tmp_path, name, *tops, A=value)
        for name, tops, value in zip(("good", "bad"), sides, "12", strict=True)
    )
    source = recorded_hybrids("local", good, bad)
    assert [str(part) for part in source.parts] == [
        "package ior: 3.3.0 → 4.0.0", "package netcdf-c: 4.3.3 → 4.4.0", "setting A: 1 → 2"
    ]  # fmt: skip
    assert source.resolved(frozenset({0})).status == "locked"
    hybrid = source.stack(frozenset({0, 2}))
    assert (hybrid.status, hybrid.settings, hybrid.features) == ("installed", {"A": "2"}, ("ior",))
    assert [word.split()[0] for word in environments] == ["locked", "installed"]
    assert source.stack(frozenset({1})).name != hybrid.name != source.stack(frozenset({0})).name
    # Settings alone, or all packages, need no build.
    assert source.stack(frozenset({2})).parts == good.parts
    assert source.stack(frozenset({0, 1})).parts == bad.parts


def test_environment_of_a_hybrid_includes_what_that_of_good_includes(
    tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Package repositories of GOOD: with those of BAD, a package may be built from another recipe."""
    written: list[Callable[[Path], None]] = []

    class Environment:
        def __init__(self, system: str, name: str, write: Callable[[Path], None]) -> None:
            written.append(write)

        def resolved(self) -> Stack:
            return Stack("hybrid", "local", "spack", "locked", ())

    monkeypatch.setattr(hybrids, "SpackEnvironment", Environment)
    for name in ("good", "bad"):
        environment = stack_directory("local", name) / "env"
        environment.mkdir(parents=True)
        (tmp_path / f"{name}.yaml").write_text("{}")
        document = {"spack": {"include": [str(tmp_path / f"{name}.yaml")]}}
        (environment / "spack.yaml").write_text(yaml.safe_dump(document))
    good, bad = (
        installed_stack(tmp_path, name, spec("ior", ior), spec("hdf5", hdf5))
        for name, ior, hdf5 in (("good", "3.3.0", "1.12"), ("bad", "4.0.0", "1.14"))
    )
    source = recorded_hybrids("local", good, bad)
    source.resolved(frozenset({0}))
    (write,) = written
    write(tmp_path)
    document = yaml.safe_load((tmp_path / "spack.yaml").read_text())
    assert document["spack"]["include"] == [str(tmp_path / "good.yaml")]


def test_recorded_stack_of_spack_uses_its_packages_and_not_the_view_of_a_newer_installation(
    tmp_path: Path, var: Path
) -> None:
    good, bad = (installed_stack(tmp_path, name, spec("ior", name)) for name in ("3", "4"))
    for stack in (good, bad):
        Path(stack.parts[0].prefix or "", "bin").mkdir()
    view = {"PATH": ("/var/stacks/local/nightly/env/.spack-env/view/bin",)}
    source = recorded_hybrids("local", replace(good, paths=view), replace(bad, paths=view))
    for end, recorded in zip(source.ends, (good, bad), strict=True):
        assert end.paths["PATH"] == (f"{recorded.parts[0].prefix}/bin",)
    assert recorded_stack("local", replace(good, paths=view)).paths == source.ends[0].paths


def test_recorded_stack_that_is_gone_is_refused(tmp_path: Path, var: Path) -> None:
    good, bad = (installed_stack(tmp_path, name, spec("ior", name)) for name in ("3", "4"))
    good = replace(good, parts=(replace(good.parts[0], files=(str(tmp_path / "gone.so"),)),))
    with pytest.raises(UsageError, match="stack '3' as recorded is no longer on this machine"):
        recorded_hybrids("local", good, bad)


def test_packages_without_a_directory_of_their_own_are_refused(var: Path) -> None:
    """Debian's Open MPI was upgraded in its place."""
    stacks = [
        Stack("system-openmpi", "local", "system", "installed", (StackPart("openmpi", one),)) for one in ("4", "5")
    ]
    with pytest.raises(UsageError, match="no parts to exchange: openmpi cannot be exchanged alone"):
        recorded_hybrids("local", *stacks)
