"""Stacks of environment modules: loaded in a login shell, described by the tools that they provide."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.core import InputError
from iowatch.site import stacks

MPIRUN = "#!/bin/sh\necho 'mpirun (Open MPI) 5.0.8'\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory whose login shell has a function `module` with one module, `mpi/5`."""
    tools = tmp_path / "mpi" / "bin"
    tools.mkdir(parents=True)
    for name, text in (("mpirun", MPIRUN), ("mpicc", "#!/bin/sh\necho 'gcc (GCC) 13.2.0'\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tmp_path / ".bash_profile").write_text(
        f'module() {{\n[ "$2" = mpi/5 ] || {{ echo "no module $2" >&2; return 1; }}\nexport PATH="{tools}:$PATH"\n}}\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "stacks" / "gnu"
    folder.mkdir(parents=True)
    return folder / stacks.MODULES_FILE


def test_module_stack_is_described_by_its_tools(site: Path) -> None:
    site.write_text("modules: [mpi/5]\nsettings: {A: 1}\n")
    stack = stacks.load_module_stack("somewhere", site)
    assert (stack.name, stack.kind, stack.status) == ("gnu", "modules", "installed")
    assert stack.modules == ("mpi/5",)
    assert stack.settings["A"] == "1"
    versions = {part.name: part.version for part in stack.parts}
    assert (versions["openmpi"], versions["gcc"]) == ("5.0.8", "13.2.0")


def test_module_with_another_python_is_loaded(site: Path) -> None:
    """Its PYTHONHOME would break the Python of iowatch, its PYTHONPATH would load other libraries."""
    profile = site.parents[2] / ".bash_profile"
    foreign = site.parents[2] / "python3.9"
    foreign.mkdir()
    (foreign / "json.py").write_text("raise SystemExit('another Python')\n")
    text = f"export PYTHONHOME=/opt/python/3.9 PYTHONPATH={foreign}\n}}\n"
    profile.write_text(profile.read_text().removesuffix("}\n") + text)
    site.write_text("modules: [mpi/5]\n")
    stack = stacks.load_module_stack("somewhere", site)
    assert (stack.status, stack.note) == ("installed", None)


def test_missing_module_makes_the_stack_broken(site: Path) -> None:
    site.write_text("modules: [mpi/6]\n")
    stack = stacks.load_module_stack("somewhere", site)
    assert stack.status == "broken"
    assert stack.note == "its modules do not load: no module mpi/6"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modules: mpi/5\n", "field 'modules': expected a list"),
        ("modules: []\n", "field 'modules': List should have at least 1 item"),
        ("modules: [a]\nmodule: b\n", "field 'module': unknown field"),
        ("- a\n", "expected fields, 'name: value'"),
        ("modules: [1.10]\n", "1.1 is no text"),
        ("modules: [a]\nsettings: {A: true}\n", "True is no text"),
        ("modules: [a]\nsettings: {A: }\n", "None is no text"),
        ("modules: [a]\nsettings: {A-B: 1}\n", "found 'A-B'"),
    ],
)
def test_invalid_files_are_refused(site: Path, text: str, message: str) -> None:
    site.write_text(text)
    with pytest.raises(InputError, match=message):
        stacks.load_module_stack("somewhere", site)
