"""A lock or externals that do not match this machine are reported before Spack builds something else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch.core import InputError
from iowatch.core.yamlfile import read_mapping
from iowatch.site.stack import install as stack_install
from iowatch.site.stack.install import ABSENT, External, prepare_environment

ROOT = Path(__file__).resolve().parents[2]
Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, var: Path) -> Machine:
    """A machine that matches the committed files except for the given versions."""

    def make(**versions: str) -> None:
        monkeypatch.setattr(External, "here", lambda self: versions.get(self.name.replace("-", "_"), self.version))

    return make


@pytest.mark.parametrize("stack", ["reference", "debian", "hdf5-1.14", "netcdf-4.4.0"])
def test_another_gcc_is_reported_before_the_build(machine: Machine, stack: str) -> None:
    """Ubuntu 24.04 has GCC 13 in the same path; Spack would build with it and record 12.2.0."""
    machine(gcc="13.3.0", glibc="2.39")
    with pytest.raises(InputError, match=r"it requires gcc 12\.2\.0 \(/usr/bin/gcc\), here 13\.3\.0\n") as error:
        prepare_environment(stack, "local", False)
    assert "--concretize" in (error.value.hint or "")


def test_another_mpi_and_a_missing_library_are_reported_together(machine: Machine) -> None:
    machine(openmpi="4.1.6", hdf5=ABSENT)
    with pytest.raises(InputError) as error:
        prepare_environment("debian", "local", False)
    assert "openmpi 4.1.4 (/usr), here 4.1.6" in error.value.message
    assert "hdf5 1.10.8 (/usr), here missing" in error.value.message


def test_other_build_tools_are_reported_and_missing_ones_refused(machine: Machine, messages: list[str]) -> None:
    machine(cmake="3.28.3", glibc="2.39")
    environment = prepare_environment("debian", "local", False)
    assert (environment / "spack.lock").is_file()
    (line,) = messages
    assert "cmake 3.25.1 (/usr), here 3.28.3" in line
    assert "glibc 2.36 (/usr), here 2.39" in line
    machine(cmake=ABSENT)
    with pytest.raises(InputError, match=r"cmake 3\.25\.1"):
        prepare_environment("debian", "local", False)


def test_concretization_uses_the_externals_of_this_machine(machine: Machine, messages: list[str]) -> None:
    machine(gcc="13.3.0", openmpi="4.1.6", autoconf=ABSENT)
    environment = prepare_environment("hdf5-1.14", "local", True)
    assert not (environment / "spack.lock").exists()
    includes = read_mapping(environment / "spack.yaml")["spack"]["include"]
    assert includes == [str(environment / "externals.yaml"), str(ROOT / "benchmarks/spack_repo/common.yaml")]
    packages = read_mapping(environment / "externals.yaml")["packages"]
    assert packages["gcc"]["externals"][0]["spec"] == "gcc@13.3.0 languages:='c,c++,fortran'"
    assert packages["openmpi"]["externals"][0]["spec"] == "openmpi@4.1.6"
    assert packages["autoconf"] == {}
    assert packages["perl"]["buildable"] is False
    assert messages == [
        "externals.yaml: gcc is 13.3.0 here, not 12.2.0",
        "externals.yaml: openmpi is 4.1.6 here, not 4.1.4",
        "externals.yaml: no autoconf 2.71 (/usr) on this machine: Spack will build it",
    ]


def test_stack_of_distribution_versions_is_refused_with_other_versions(machine: Machine) -> None:
    """`debian` on Ubuntu 24.04: HDF5 1.10.10, which must not be built, cannot be the 1.10.8 of spack.yaml."""
    machine(gcc="13.3.0", openmpi="4.1.6", hdf5="1.10.10")
    with pytest.raises(InputError, match=r"requires openmpi@4\.1\.4, here 4\.1\.6|requires hdf5@1\.10\.8") as error:
        prepare_environment("debian", "local", True)
    assert "hdf5@1.10.8, here 1.10.10" in error.value.message
    assert "Copy the stack's folder" in (error.value.hint or "")


def test_committed_externals_are_used_if_they_match(machine: Machine) -> None:
    machine()
    environment = prepare_environment("hdf5-1.14", "local", True)
    includes = read_mapping(environment / "spack.yaml")["spack"]["include"]
    assert includes[0] == str(ROOT / "systems/local/externals.yaml")


def test_target_is_that_of_the_processor(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    monkeypatch.setattr("iowatch.site.stack.install.platform.machine", lambda: "aarch64")
    environment = prepare_environment("hdf5-1.14", "local", True)
    settings = read_mapping(environment / "spack.yaml")["spack"]
    assert settings["packages"] == {"all": {"require": "target=aarch64"}}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one system: a copy of the template."""
    root = tmp_path / "checkout"
    (root / "systems").mkdir(parents=True)
    (root / "benchmarks").symlink_to(ROOT / "benchmarks")
    shutil.copy(ROOT / "spack.yaml", root / "spack.yaml")
    shutil.copytree(ROOT / "systems" / "_template", root / "systems" / "cluster")
    monkeypatch.setenv("IOWATCH_ROOT", str(root))
    return root


def test_missing_unbuildable_external_is_refused(machine: Machine, cluster: Path) -> None:
    machine(lustre=ABSENT)
    with pytest.raises(
        InputError, match=r"externals\.yaml: no lustre 2\.15\.4 \(/usr\) on this machine, and it is not"
    ):
        prepare_environment("slurm-lustre", "cluster", True)


def test_concretized_reference_stack_uses_the_externals_of_the_system(machine: Machine, cluster: Path) -> None:
    machine()
    environment = prepare_environment("reference", "cluster", True)
    includes = read_mapping(environment / "spack.yaml")["spack"]["include"]
    assert includes[0] == str(cluster / "systems" / "cluster" / "externals.yaml")


def _program(path: Path, text: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return str(path)


def test_external_versions_are_read_from_programs(tmp_path: Path) -> None:
    """The texts are those of GCC 12.2, Lustre 2.15, Slurm 22.05, CMake 3.25 and Open MPI 4.1."""
    texts = {"lfs": "lfs 2.15.4", "sinfo": "slurm 22.05.8", "cmake": "cmake version 3.25.1",
             "mpirun": "mpirun (Open MPI) 4.1.4"}  # fmt: skip
    for name, text in texts.items():
        _program(tmp_path / "bin" / name, text)
    gcc = _program(tmp_path / "bin" / "gcc", "12.2.0")
    place = str(tmp_path)
    assert External("gcc", "12.2.0", place, gcc).is_true
    assert not External("gcc", "12.3", place, gcc).is_true
    assert External("cmake", "3.25", place).is_true
    assert External("lustre", "2.15.4", place).here() == "2.15.4"
    assert External("slurm", "22-05-8-1", place).is_true
    assert External("openmpi", "4.1.4", place).is_true
    assert External("mpich", "4.0.2", place).here() == ABSENT
    assert External("perl", "5.36.0", place).here() == ABSENT
    assert External("cray-mpich", "8.1.30", place).here() is None


def test_compiler_without_one_of_its_languages_is_missing(tmp_path: Path) -> None:
    """gcc of Debian without g++: Spack would fail where it builds the first program in C++."""
    gcc = _program(tmp_path / "bin" / "gcc", "12.2.0")
    compilers = {"c": gcc, "cxx": str(tmp_path / "bin" / "g++")}
    entry = {"spec": "gcc@12.2.0", "prefix": "/usr", "extra_attributes": {"compilers": compilers}}
    external = stack_install._parse_external(entry)
    assert external is not None
    assert external.here() == ABSENT
    assert str(external) == f"gcc 12.2.0 ({tmp_path}/bin/g++)"
    _program(tmp_path / "bin" / "g++", "12.2.0")
    assert external.is_true
    assert str(external) == f"gcc 12.2.0 ({gcc})"


def test_externals_of_every_committed_lock_are_read() -> None:
    for path in [ROOT / "spack.lock", *ROOT.glob("systems/*/stacks/*/spack*.lock")]:
        found = {external.name: external for external in stack_install.externals_of_lock(path)}
        assert found["gcc"].compiler == "/usr/bin/gcc"
        assert found["glibc"].prefix == "/usr"
