"""Stacks of environment modules: loaded as in a job, described by the tools that they provide."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from iowatch.core import InputError
from iowatch.site import reframe_config
from iowatch.site.stack import load as stacks
from iowatch.site.stack import probe as stack_probe
from iowatch.site.stack import records as stack

MPIRUN = "#!/bin/sh\necho 'mpirun (Open MPI) 5.0.8'\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A MODULESHOME whose function `module` knows one module, `mpi/5`."""
    tools = tmp_path / "mpi" / "bin"
    tools.mkdir(parents=True)
    for name, text in (("mpirun", MPIRUN), ("mpicc", "#!/bin/sh\necho 'gcc (GCC) 13.2.0'\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "sh").write_text(
        f'module() {{\n[ "$2" = mpi/5 ] || {{ echo "no module $2" >&2; return 1; }}\nexport PATH="{tools}:$PATH"\n}}\n'
    )
    monkeypatch.setenv("MODULESHOME", str(tmp_path))
    monkeypatch.delenv("LMOD_PKG", raising=False)
    folder = tmp_path / "stacks" / "gnu"
    folder.mkdir(parents=True)
    return folder / stacks.MODULES_FILE


def test_module_stack_is_described_by_its_tools(site: Path) -> None:
    site.write_text("modules: [mpi/5]\nsettings: {A: 1}\n")
    found = stacks.load_module_stack("somewhere", site)
    assert (found.name, found.kind, found.status) == ("gnu", "modules", "installed")
    assert found.modules == ("mpi/5",)
    assert found.settings["A"] == "1"
    versions = {part.name: part.version for part in found.parts}
    assert (versions["openmpi"], versions["gcc"]) == ("5.0.8", "13.2.0")


def test_module_with_another_python_is_loaded(site: Path) -> None:
    """Its PYTHONHOME would break the Python of iowatch, its PYTHONPATH would load other libraries."""
    profile = site.parents[2] / "init" / "sh"
    foreign = site.parents[2] / "python3.9"
    foreign.mkdir()
    (foreign / "json.py").write_text("raise SystemExit('another Python')\n")
    text = f"export PYTHONHOME=/opt/python/3.9 PYTHONPATH={foreign}\n}}\n"
    profile.write_text(profile.read_text().removesuffix("}\n") + text)
    site.write_text("modules: [mpi/5]\n")
    found = stacks.load_module_stack("somewhere", site)
    assert (found.status, found.note) == ("installed", None)


def test_directories_of_programs_are_searched_and_part_of_the_stack(
    site: Path, tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "opt" / "darshan" / "bin"
    programs.mkdir(parents=True)
    (programs / "darshan-parser").write_text("#!/bin/sh\n")
    (programs / "darshan-parser").chmod(0o755)
    site.write_text("modules: [mpi/5]\n")
    without = stacks.load_module_stack("somewhere", site).part("darshan-util")
    assert without is None or str(programs) not in without.files[0]
    for found in (
        stacks.load_module_stack("somewhere", site, (str(programs),)),
        *stack_probe.system_stacks("somewhere", (str(programs),)),
    ):
        part = found.part("darshan-util")
        assert part is not None
        assert part.files == (str(programs / "darshan-parser"),)
        script = (stack.write_stack_files(found) / "activate.sh").read_text()
        assert re.search(rf"^export PATH=\S*{programs}\"", script, re.MULTILINE)
    assert str(programs) not in os.environ["PATH"]


def test_missing_module_makes_the_stack_broken(site: Path) -> None:
    site.write_text("modules: [mpi/6]\n")
    found = stacks.load_module_stack("somewhere", site)
    assert found.status == "broken"
    assert found.note == "its modules do not load: no module mpi/6"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modules: mpi/5\n", "field 'modules': Input should be a valid list"),
        ("modules: []\n", "neither 'modules' nor 'settings'"),
        ("modules: [a]\nmodule: b\n", "field 'module': unknown field"),
        ("- a\n", "Input should be a valid dictionary"),
        ("modules: [1.10]\n", "expected a text; write it in quotes (found 1.1)"),
        ("modules: [a]\nsettings: {A: true}\n", "expected a text; write it in quotes (found true)"),
        ("modules: [a]\nsettings: {A: }\n", "expected a text; write it in quotes (found nothing)"),
        ("modules: [a]\nsettings: {A-B: 1}\n", "found 'A-B'"),
    ],
)
def test_invalid_files_are_refused(site: Path, text: str, message: str) -> None:
    site.write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        stacks.load_module_stack("somewhere", site)


def test_module_command_of_login_shells_only_makes_the_stack_broken(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs run in shells that are not login shells: each would end with this message."""
    (tmp_path / "init" / "sh").rename(tmp_path / ".bash_profile")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(stack, "_MODULES", stack._MODULES.replace("/etc/", "/nowhere/").replace("/usr/", "/nowhere/"))
    site.write_text("modules: [mpi/5]\n")
    found = stacks.load_module_stack("somewhere", site)
    assert found.status == "broken"
    assert str(found.note).endswith("this shell has no command 'module': set MODULESHOME")


def invalid_stacks(place: Path) -> None:
    """Five folders: a valid stack, two invalid ones, an empty one, and one with files of both kinds."""
    spack = "spack: {specs: [mpich@4]}\n"
    for name, texts in {
        "good": {"modules.yaml": "modules: [mpi/5]\n"},
        "invalid": {"modules.yaml": "modules: mpi/5\n"},
        "damaged": {"spack.yaml": spack, "spack.lock": "{"},
        "empty": {},
        "both": {"modules.yaml": "modules: [mpi/5]\n", "spack.yaml": spack},
    }.items():
        (place / name).mkdir()
        for file, text in texts.items():
            (place / name / file).write_text(text)


def test_invalid_stack_does_not_affect_the_others(site: Path, var: Path, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    site.parent.rmdir()
    invalid_stacks(site.parents[1])
    folders = {path.name: path for path in site.parents[1].iterdir()}
    monkeypatch.setattr(stacks, "_stack_folders", lambda system: folders)
    monkeypatch.setattr(stack_probe, "system_stacks", lambda system, programs: [])
    found = {one.name: one for one in stacks.discover_stacks("local")}
    assert {name for name, one in found.items() if one.status == "installed"} == {"good"}
    broken = {name: str(one.note) for name, one in found.items() if one.status == "broken"}
    assert sorted(broken) == ["both", "damaged", "empty", "invalid"]
    assert "modules.yaml:1:10: field 'modules': Input should be a valid list" in broken["invalid"]
    assert "found modules.yaml and spack.yaml" in broken["both"]
    assert "expected modules.yaml or spack.yaml, found neither" in broken["empty"]
    assert "spack.lock: not readable as a lock file" in broken["damaged"]
    assert [one["name"] for one in reframe_config.reframe_environments("local")] == ["good"]
    shown = cli("doctor", "--system", "local")
    assert "broken stack empty: " in shown.stdout
    assert cli("stack", "list").exit_code == cli("stack", "show", "invalid").exit_code == 0
