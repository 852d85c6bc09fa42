"""Activation in a shell: settings are set, a broken stack ends the job with a message."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from iowatch.core import InputError
from iowatch.site.stack.load import discover_stacks, read_stack_json
from iowatch.site.stack.records import Stack, StackPart, write_stack_files


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    library = tmp_path / "prefix with blank" / "libhdf5.so"
    library.parent.mkdir()
    library.write_text("")
    mpirun = tmp_path / "mpirun.mpich"
    mpirun.write_text("#!/bin/sh\necho started $*\n")
    mpirun.chmod(0o755)
    part = StackPart("hdf5", "1.14.6", {"mpi": "true"}, "abc", str(library.parent), "gcc@12", "x86_64", (str(library),))
    return Stack(
        name="one",
        system="local",
        kind="spack",
        status="installed",
        parts=(part,),
        features=("hdf5",),
        settings={"GREETING": "it's $HOME"},
        paths={"PATH": ("/opt/first",)},
        tools={"mpirun": str(mpirun)},
    )


def job(script: Path, command: str, shell: str = "bash") -> subprocess.CompletedProcess[str]:
    return subprocess.run([shell, "-c", f". '{script}'\n{command}"], capture_output=True, text=True)


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_settings_are_set_in_the_job(var: Path, stack: Stack, shell: str) -> None:
    script = write_stack_files(stack) / "activate.sh"
    done = job(script, 'echo "$GREETING|$IOWATCH_STACK"; echo "$PATH"; mpirun -np 2', shell)
    assert done.stdout.splitlines()[0] == "it's $HOME|one"
    assert done.stdout.splitlines()[1].startswith(f"{script.parent / 'bin'}:/opt/first:")
    assert done.stdout.splitlines()[2] == "started -np 2"
    assert done.stderr == ""


def test_modules_are_loaded_in_a_non_login_shell(var: Path, stack: Stack, tmp_path: Path) -> None:
    """environment-modules and Lmod define `module` in $MODULESHOME/init/sh."""
    home = tmp_path / "modules"
    (home / "init").mkdir(parents=True)
    (home / "init" / "sh").write_text('module() { export LOADED="$*"; }\n')
    script = write_stack_files(replace(stack, kind="modules", modules=("netcdf/4.4.0",))) / "activate.sh"
    words = ["env", "-i", f"MODULESHOME={home}", f"PATH={os.environ['PATH']}", "bash", "--norc", "-c"]
    done = subprocess.run([*words, f". '{script}'; echo \"$LOADED\""], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("load netcdf/4.4.0\n", "")


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize("whole", [True, False], ids=["moved prefix", "missing library"])
def test_broken_stack_ends_the_job(var: Path, stack: Stack, shell: str, whole: bool) -> None:
    script = write_stack_files(stack) / "activate.sh"
    library = Path(stack.parts[0].files[0])
    library.unlink()
    if whole:
        shutil.rmtree(library.parent)
    done = job(script, "echo never", shell)
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"iowatch: stack 'one' is broken; missing: {library}" in done.stderr
    assert "iowatch stack install one --system local" in done.stderr


def test_stack_json_is_read_back(var: Path, stack: Stack) -> None:
    directory = write_stack_files(stack)
    assert read_stack_json(directory / "stack.json") == stack


def test_unchanged_files_are_not_rewritten(var: Path, stack: Stack) -> None:
    """Jobs may be reading them."""
    directory = write_stack_files(stack)
    before = {path: path.stat().st_ino for path in directory.rglob("*")}
    write_stack_files(stack)
    assert {path: path.stat().st_ino for path in directory.rglob("*")} == before
    write_stack_files(replace(stack, settings={"GREETING": "other"}))
    assert (directory / "activate.sh").stat().st_ino != before[directory / "activate.sh"]


def test_installed_stack_is_found_and_becomes_broken_without_its_library(var: Path, stack: Stack) -> None:
    write_stack_files(replace(stack, name="reference"))
    found = {one.name: one for one in discover_stacks("local")}
    assert found["reference"].status == "installed"
    Path(stack.parts[0].files[0]).unlink()
    found = {one.name: one for one in discover_stacks("local")}
    assert found["reference"].status == "broken"
    assert "libhdf5.so" in (found["reference"].note or "")


@pytest.mark.parametrize(
    "document", [{}, {"format": 2}, {"format": 1}, {"format": 1, "parts": [], "name": "x", "surprise": 1}]
)
def test_invalid_stack_json_is_refused(tmp_path: Path, document: dict[str, object]) -> None:
    path = tmp_path / "stack.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"stack\.json"):
        read_stack_json(path)


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_tools_are_updated_when_a_stack_moves_or_changes_its_mpi(
    var: Path, stack: Stack, tmp_path: Path, mpi: str
) -> None:
    """Open MPI's tools are links, MPICH's are scripts; either replaces the other of an earlier installation."""
    moved = tmp_path / "moved" / "mpirun"
    moved.parent.mkdir()
    for program, text in ((Path(stack.tools["mpirun"]), "old"), (moved, "new")):
        program.write_text(f"#!/bin/sh\necho {text}\n")
        program.chmod(0o755)
    for name, target in (("openmpi", stack.tools["mpirun"]), ("mpich", stack.tools["mpirun"]), (mpi, str(moved))):
        now = replace(stack, parts=(StackPart(name, "1"),), tools={"mpirun": target})
        directory = write_stack_files(now)
        done = subprocess.run([directory / "bin" / "mpirun"], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == ("new" if target == str(moved) else "old")
    assert (directory / "bin" / "mpirun").is_symlink() == (mpi == "openmpi")
    assert "old" in Path(stack.tools["mpirun"]).read_text()  # the link was replaced, not its target
