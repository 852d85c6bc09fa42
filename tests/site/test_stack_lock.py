"""Lock files and environments, read without Spack."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.core import InputError
from iowatch.site.stack import records as stack

from .conftest import node, write_lock


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("hdf5@1.14.6", ("hdf5", "1.14.6")),
        ("netcdf-c@4.9.3 +parallel-netcdf", ("netcdf-c", "4.9.3")),
        ("hdf5@=1.14.4-3+mpi", ("hdf5", "1.14.4-3")),
        ("openmpi", ("openmpi", None)),
    ],
)
def test_version_of_a_spec_is_parsed(spec: str, expected: tuple[str, str | None]) -> None:
    assert stack.parse_pinned_spec(spec) == stack.PinnedSpec(*expected)


def test_parts_are_runtime_dependencies_and_the_compiler(tmp_path: Path) -> None:
    """Build tools are left out; the compiler is kept because it generated the code."""
    nodes = [
        node(
            "hdf5",
            "1.14.6",
            "h5",
            {"mpi": (["build", "link"], ["mpi"]), "gcc": (["build"], ["c"]), "cm": (["build"], [])},
        ),
        node("openmpi", "5.0.10", "mpi"),
        node("gcc", "12.2.0", "gcc"),
        node("cmake", "3.25.1", "cm"),
    ]
    parts = stack.read_lock_parts(write_lock(tmp_path / "spack.lock", [("hdf5@1.14.6", "h5")], nodes))
    assert [part.name for part in parts] == ["gcc", "hdf5", "openmpi"]
    hdf5 = parts[1]
    assert (hdf5.version, hdf5.compiler, hdf5.target) == ("1.14.6", "gcc@12.2.0", "x86_64_v2")
    assert dict(hdf5.variants) == {"shared": "true"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not readable as a lock file"),
        ("{}", "no _meta: lockfile-version"),
        ('{"_meta": {"lockfile-version": 99}}', "version 99, expected one of 5, 6"),
        ('{"_meta": {"lockfile-version": 6}}', "damaged lock file"),
    ],
)
def test_damaged_lock_is_reported(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "spack.lock"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        stack.read_lock_parts(path)


def test_lock_matches_only_its_own_manifest(tmp_path: Path) -> None:
    manifest = tmp_path / "spack.yaml"
    manifest.write_text("spack:\n  specs:\n  - netcdf-c@4.9.3 +parallel-netcdf\n")
    path = write_lock(
        tmp_path / "spack.lock", [("netcdf-c@4.9.3+parallel-netcdf", "n")], [node("netcdf-c", "4.9.3", "n")]
    )
    assert stack.lock_matches_manifest(manifest, path)
    manifest.write_text("spack:\n  specs:\n  - netcdf-c@4.10.0 +parallel-netcdf\n")
    assert not stack.lock_matches_manifest(manifest, path)
    path.write_text('{"_meta": {"lockfile-version": 6}}')
    with pytest.raises(InputError, match="damaged lock file"):
        stack.lock_matches_manifest(manifest, path)
