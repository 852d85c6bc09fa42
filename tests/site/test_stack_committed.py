"""The committed environments, without Spack: schema, pinned versions, and locks that match their spack.yaml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from iowatch.core.yamlfile import read_mapping
from iowatch.site.stack import records as stack
from iowatch.site.stack.distributions import with_nested_includes
from iowatch.site.stack.install import (
    External,
    _parse_external,
    externals_of_lock,
    pinned_spack_commit,
    pinned_spack_version,
    spack_settings_file,
)
from iowatch.site.stack.load import REFERENCE_STACK, stack_from_lock

ROOT = Path(__file__).resolve().parents[2]
# Examples for sites; they are concretized on the site's machine, so there are no locks.
EXAMPLES = sorted(ROOT.glob("systems/_template/stacks/*/spack.yaml"))
REQUIRED_STACKS = {
    "netcdf-4.3.3.1": {"netcdf-c": "4.3.3.1", "hdf5": "1.8.16"},
    "netcdf-4.4.0": {"netcdf-c": "4.4.0", "hdf5": "1.8.16"},
    "netcdf-4.9": {"netcdf-c": "4.9.3"},
    "netcdf-4.10": {"netcdf-c": "4.10.0"},
    "hdf5-1.10": {"hdf5": "1.10.11"},
    "hdf5-1.14": {"hdf5": "1.14.6"},
    "hdf5-2": {"hdf5": "2.1.0"},
    "openmpi-4": {"openmpi": "4.1.4"},
    "openmpi-5": {"openmpi": "5.0.10"},
    "mpich-4": {"mpich": "4.3.2"},
    "ior-3.3.0": {"ior": "3.3.0"},
    "ior-4.0.0": {"ior": "4.0.0"},
    "quick": {"ior": "4.0.0", "h5bench": "1.6", "fio": "3.37", "darshan-runtime": "3.5.0"},
}
# Stacks and systems that a site adds to its clone are not tested here.
OWN_STACKS = {*REQUIRED_STACKS, "debian"}
OWN_SYSTEMS = re.findall(
    r"\S+",
    "_template archer athena cirrus cosma5 cosma6 franklin hamburg jasmin local marenostrum4 peta4-skylake rdf-dac"
    " slurm-local thomas",
)
MANIFESTS = [ROOT / "spack.yaml"]
MANIFESTS += [ROOT / "systems" / "local" / "stacks" / name / "spack.yaml" for name in sorted(OWN_STACKS)]
# The operating systems that have a list of their packages; the stack `quick` has a lock of each.
DISTRIBUTIONS = sorted((ROOT / "systems" / "local" / "distributions").glob("*.yaml"))
QUICK = ROOT / "systems" / "local" / "stacks" / "quick"
LOCKS = [path.parent / "spack.lock" for path in MANIFESTS if path.parent != QUICK]
LOCKS += [QUICK / f"spack.{path.stem}.lock" for path in DISTRIBUTIONS]
CONFIGURATION = [path for name in OWN_SYSTEMS for path in sorted((ROOT / "systems" / name).glob("*.yaml"))]
CONFIGURATION.append(spack_settings_file())

# The part of Spack's environment schema that these files use; Spack checks all of it (test_spack.py).
_LIST = {"type": "array", "items": {"type": "string"}, "minItems": 1}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["spack"],
    "properties": {
        "spack": {
            "type": "object",
            "additionalProperties": False,
            "required": ["include", "specs", "view"],
            "properties": {
                "include": _LIST,
                "specs": _LIST,
                "view": {"const": True},
                "config": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"deprecated": {"type": "boolean"}},
                },
            },
        }
    },
}


def label(path: Path) -> str:
    return path.parent.name if path.parent != ROOT else REFERENCE_STACK


def lock_label(path: Path) -> str:
    return f"{label(path)}{path.name.removeprefix('spack').removesuffix('.lock')}"


def test_all_required_stacks_are_committed() -> None:
    assert {label(path) for path in MANIFESTS} == {*OWN_STACKS, REFERENCE_STACK}


@pytest.mark.parametrize("path", [*MANIFESTS, *EXAMPLES], ids=label)
def test_environments_match_the_schema(path: Path) -> None:
    errors = [error.message for error in Draft7Validator(SCHEMA).iter_errors(read_mapping(path))]
    assert errors == []


@pytest.mark.parametrize("path", [*MANIFESTS, *EXAMPLES], ids=label)
def test_every_version_is_pinned(path: Path) -> None:
    assert [spec for spec in stack.root_specs(path) if stack.parse_pinned_spec(spec).version is None] == []


@pytest.mark.parametrize("path", [*MANIFESTS, *EXAMPLES], ids=label)
def test_includes_exist_and_are_relative(path: Path) -> None:
    for include in read_mapping(path)["spack"]["include"]:
        assert not Path(include).is_absolute()
        for distribution in DISTRIBUTIONS:
            assert (path.parent / include.replace("$os", distribution.stem)).is_file()


def test_examples_have_the_versions_of_the_reference_stack() -> None:
    """Only the MPI is that of the site."""
    assert [label(path) for path in EXAMPLES] == ["cray", "slurm-lustre"]
    for path in EXAMPLES:
        assert stack.root_specs(path)[1:] == stack.root_specs(ROOT / "spack.yaml")[1:]


@pytest.mark.parametrize("path", LOCKS, ids=lock_label)
def test_lock_matches_its_manifest(path: Path) -> None:
    assert stack.lock_matches_manifest(path.parent / "spack.yaml", path)


@pytest.mark.parametrize("path", LOCKS, ids=lock_label)
def test_lock_has_the_pinned_versions(path: Path) -> None:
    """Each version that spack.yaml names is the one that the lock holds, once."""
    parts = stack.read_lock_parts(path)
    for spec in stack.root_specs(path.parent / "spack.yaml"):
        pinned = stack.parse_pinned_spec(spec)
        assert [part.version for part in parts if part.name == pinned.name] == [pinned.version]


@pytest.mark.parametrize("path", LOCKS, ids=lock_label)
def test_lock_was_made_by_the_pinned_spack(path: Path) -> None:
    made_by = stack.read_lock(path)["spack"]
    assert (made_by["version"], made_by["commit"]) == (pinned_spack_version(), pinned_spack_commit())


@pytest.mark.parametrize("path", LOCKS, ids=lock_label)
def test_lock_runs_on_any_x86_64_and_has_one_compiler(path: Path) -> None:
    parts = [part for part in stack.read_lock_parts(path) if part.compiler]
    assert {part.target for part in parts} == {"x86_64_v2"}
    assert len({part.compiler for part in parts}) == 1


def test_quick_stack_is_locked_for_the_distributions_that_are_named() -> None:
    assert [path.stem for path in DISTRIBUTIONS] == ["debian12", "debian13", "ubuntu22.04", "ubuntu24.04"]
    assert sorted(QUICK.glob("spack.*lock")) == [QUICK / f"spack.{path.stem}.lock" for path in DISTRIBUTIONS]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda path: path.stem)
def test_quick_stack_builds_few_parts_and_takes_the_libraries_from_the_system(distribution: Path) -> None:
    """At most 25 parts: the time that a newcomer waits."""
    nodes = stack.read_lock(QUICK / f"spack.{distribution.stem}.lock")["concrete_specs"].values()
    built = {node["name"] for node in nodes if not node.get("external")}
    benchmarks = {"benchio", "fio", "h5bench", "ior"}
    assert built == benchmarks | {"darshan-runtime", "darshan-util", "compiler-wrapper", "gcc-runtime"}
    assert len(nodes) <= 25


def listed_externals(distribution: Path) -> dict[str, External]:
    """The packages that the files of a distribution list, by name."""
    listed: dict[str, External] = {}
    for path in with_nested_includes([distribution]):
        for package in read_mapping(path)["packages"].values():
            for entry in package.get("externals", ()):
                external = _parse_external(entry)
                assert external is not None
                assert external.name not in listed
                listed[external.name] = external
    return listed


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda path: path.stem)
def test_lock_of_a_distribution_has_the_packages_of_its_list(distribution: Path) -> None:
    """Perl is used by build tools only; the C library is the one that Spack found."""
    lock = QUICK / f"spack.{distribution.stem}.lock"
    locked = {external.name: external for external in externals_of_lock(lock)}
    glibc = locked.pop("glibc")
    assert glibc.prefix == "/usr"
    listed = listed_externals(distribution)
    assert listed.pop("perl").prefix == "/usr"
    assert locked == listed
    nodes = stack.read_lock(lock)["concrete_specs"].values()
    assert {node["arch"]["platform_os"] for node in nodes} == {distribution.stem}


def test_locks_of_the_distributions_build_the_same_parts() -> None:
    """Only the operating system's part differs: versions and variants of what is built are those of spack.yaml."""
    built = []
    for distribution in DISTRIBUTIONS:
        parts = stack.read_lock_parts(QUICK / f"spack.{distribution.stem}.lock")
        built.append({part.name: (part.version, part.variants) for part in parts if not part.prefix})
    without_compiler = [{name: part for name, part in parts.items() if name != "gcc-runtime"} for parts in built]
    assert all(parts == without_compiler[0] for parts in without_compiler)


@pytest.mark.parametrize("path", [path for path in LOCKS if label(path) in REQUIRED_STACKS], ids=lock_label)
def test_stack_has_the_required_versions(path: Path) -> None:
    name = label(path)
    stack = stack_from_lock(path, name, "local")
    versions = {part.name: part.version for part in stack.parts}
    assert {part: versions[part] for part in REQUIRED_STACKS[name]} == REQUIRED_STACKS[name]


@pytest.mark.parametrize(
    "path", [*MANIFESTS, *EXAMPLES, *LOCKS, *CONFIGURATION], ids=lambda path: str(path.relative_to(ROOT))
)
def test_files_contain_no_path_of_one_machine(path: Path) -> None:
    """Paths are relative, variables, in /usr, of every Cray, or mount points printed in a source."""
    text = path.read_text(encoding="utf-8").replace("/opt/cray/", "/")
    assert re.findall(r"/(?:home|root|tmp|opt|var|builds?|workspace)/[\w/.-]+", text) == []
    assert str(ROOT) not in text
