"""Stacks with parts that are built from a source directory (`develop:` of spack.yaml)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from iowatch.core import InputError
from iowatch.core.yamlfile import read_mapping
from iowatch.site.stack import install as stack_install
from iowatch.site.stack.records import StackPart, diff_stacks
from iowatch.site.stack.sources import develop_entries, lock_differences, record_commit

from .conftest import node, write_lock

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b")


def git(directory: Path, *words: str) -> str:
    done = subprocess.run([*GIT, "-C", str(directory), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def manifest(folder: Path, develop: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = f"spack:\n  specs: [netcdf-c@4.4.0]\n  develop: {develop}\n  view: true\n"
    (folder / "spack.yaml").write_text(text)
    return folder / "spack.yaml"


def source(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "configure").write_text("1\n")
    return directory


def lock(folder: Path, version: str = "4.4.0", dev_path: Path | None = None) -> Path:
    built: dict[str, Any] = node("netcdf-c", version, "nc")
    if dev_path:
        built["parameters"]["dev_path"] = str(dev_path)
    return write_lock(folder / "spack.lock", [(f"netcdf-c@{version}", "nc")], [built])


def test_relative_path_starts_at_the_folder_of_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a variable, and the default path: the name of the package."""
    monkeypatch.setenv("SOURCES", "../src")
    paths = [source(tmp_path / name) for name in ("src/netcdf-c", "src/hdf5", "stack/ior")]
    text = "{netcdf-c: {spec: netcdf-c@4.4.0, path: ../src/netcdf-c}, hdf5: {spec: hdf5@1.8.16, path: $SOURCES/hdf5},"
    found = develop_entries(manifest(tmp_path / "stack", text + " ior: {spec: ior@4.0.0}}"))
    assert [Path(entry["path"]) for entry in found.values()] == paths
    assert found["hdf5"]["spec"] == "hdf5@1.8.16"


def test_all_faults_of_source_directories_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    text = "{netcdf-c: {spec: netcdf-c@4.4.0, path: empty}, hdf5: {path: missing}, ior: wrong}"
    with pytest.raises(InputError) as error:
        develop_entries(manifest(tmp_path, text))
    assert f"spack.develop.netcdf-c.path: no sources in {tmp_path / 'empty'}" in error.value.message
    assert "spack.develop.hdf5 has no 'spec'" in error.value.message
    assert f"spack.develop.hdf5.path: no sources in {tmp_path / 'missing'}" in error.value.message
    assert "spack.develop.ior has no 'spec'" in error.value.message
    assert "git clone" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("spec", "built_from", "expected"),
    [
        ("netcdf-c@4.4.0", "src", None),
        ("netcdf-c", "src", None),
        ("netcdf-c@4.4.0", "other", "netcdf-c from {tmp}/other, spack.yaml from {tmp}/src"),
        ("netcdf-c@4.4.0", None, "netcdf-c from an archive, spack.yaml from {tmp}/src"),
        ("netcdf-c@4.3.3.1", None, None),  # Spack applies `develop:` to matching specs only
        (None, "src", "netcdf-c from {tmp}/src, spack.yaml from an archive"),
    ],
)
def test_lock_of_other_sources_is_detected(
    tmp_path: Path, spec: str | None, built_from: str | None, expected: str | None
) -> None:
    path = lock(tmp_path, dev_path=tmp_path / built_from if built_from else None)
    entries = {"netcdf-c": {"spec": spec, "path": str(tmp_path / "src")}} if spec else {}
    assert list(lock_differences(path, entries)) == ([expected.format(tmp=tmp_path)] if expected else [])


def test_environment_of_a_stack_keeps_its_sources(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spack reads another folder than the one to which a relative path belongs."""
    folder = tmp_path / "systems" / "local" / "stacks" / "own"
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.setenv("IOWATCH_ROOT", str(tmp_path))
    directory = source(tmp_path / "src")
    manifest(folder, "{netcdf-c: {spec: netcdf-c@4.4.0, path: ../../../../src}}")
    lock(folder, dev_path=tmp_path)
    with pytest.raises(InputError, match=f"it builds netcdf-c from {tmp_path}, spack.yaml from {directory}") as error:
        stack_install.prepare_environment("own", "local", False)
    assert "--concretize" in (error.value.hint or "")
    lock(folder, dev_path=directory)
    environment = stack_install.prepare_environment("own", "local", False)
    known = read_mapping(environment / "spack.yaml")["spack"]["develop"]
    assert known == {"netcdf-c": {"spec": "netcdf-c@4.4.0", "path": str(directory)}}


def test_commit_of_the_sources_is_recorded_and_compared(tmp_path: Path, var: Path) -> None:
    """Spack's hash is the same for each content of a directory; the commit distinguishes two builds."""
    directory = source(tmp_path / "src")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "x")):
        git(directory, *words)
    path = lock(tmp_path, dev_path=directory)

    def installed() -> Any:
        return stack_install.describe_installed_stack("own", "local", tmp_path, {"nc": str(tmp_path)})

    first = installed()
    assert path.is_file()
    assert first.parts[0].variants["commit"] == git(directory, "rev-parse", "HEAD")
    (directory / "Makefile").write_text("a product of the build\n")
    assert installed() == first
    (directory / "configure").write_text("2\n")
    patched = installed()
    commit, _, digest = patched.parts[0].variants["commit"].partition("+")
    assert (commit, len(digest)) == (first.parts[0].variants["commit"], 12)
    (row,) = diff_stacks(first, patched).differences
    assert (row.part, row.field, row.left, row.right) == ("netcdf-c", "variant commit", commit, f"{commit}+{digest}")
    git(directory, "commit", "-qam", "y")
    assert installed().parts[0].variants["commit"] == git(directory, "rev-parse", "HEAD") != commit


def test_directory_without_its_own_work_tree_has_no_commit(tmp_path: Path) -> None:
    """An unpacked archive, also inside a repository of something else."""
    unpacked = source(tmp_path / "repository" / "src")
    part = StackPart("netcdf-c", "4.4.0", {"dev_path": str(unpacked)})
    assert record_commit(part) == part
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "x")):
        git(unpacked.parent, *words)
    assert record_commit(part) == part
    assert record_commit(StackPart("ior", "4.0.0")) == StackPart("ior", "4.0.0")
