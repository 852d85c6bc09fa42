"""The lock and the list of packages that belong to an operating system, and what others get."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from iowatch.core import InputError
from iowatch.core.yamlfile import read_mapping
from iowatch.site.stack import distributions
from iowatch.site.stack import install as stack_install
from iowatch.site.stack.distributions import included_files, lock_file, operating_system, with_nested_includes
from iowatch.site.stack.install import ABSENT, External, prepare_environment
from iowatch.site.stack.load import load_stack, manifest_directory

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ROOT / "systems" / "local"
QUICK = LOCAL / "stacks" / "quick"


def run_on(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make the operating system of this machine one with this name in Spack."""
    monkeypatch.setattr(distributions, "operating_system", lambda: name)


@pytest.mark.parametrize(
    ("identity", "version", "expected"),
    [
        # VERSION_ID of /etc/os-release, and what `spack arch --operating-system` of Spack 1.1.0 prints.
        ("debian", "12", "debian12"),
        ("debian", "13", "debian13"),
        ("ubuntu", "22.04", "ubuntu22.04"),
        ("ubuntu", "24.04", "ubuntu24.04"),
        ("rocky", "9.4", "rocky9"),
        ("arch", None, "arch"),
    ],
)
def test_operating_system_has_the_name_of_spack(
    monkeypatch: pytest.MonkeyPatch, identity: str, version: str | None, expected: str
) -> None:
    release = {"ID": identity}
    if version is not None:
        release["VERSION_ID"] = version
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    assert operating_system() == expected


def test_operating_system_without_description_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[str, str]:
        raise OSError("Unable to read files /etc/os-release, /usr/lib/os-release")

    monkeypatch.setattr(platform, "freedesktop_os_release", fail)
    assert operating_system() == "unknown"


@pytest.mark.parametrize("name", ["debian12", "debian13", "ubuntu22.04", "ubuntu24.04"])
def test_listed_operating_system_uses_its_lock_and_its_list(
    monkeypatch: pytest.MonkeyPatch, var: Path, name: str
) -> None:
    run_on(monkeypatch, name)
    monkeypatch.setattr(External, "here", lambda self: self.version)
    assert lock_file(QUICK) == QUICK / f"spack.{name}.lock"
    assert LOCAL / "distributions" / f"{name}.yaml" in included_files(QUICK / "spack.yaml")
    environment = prepare_environment("quick", "local", False)
    assert (environment / "spack.lock").read_bytes() == lock_file(QUICK).read_bytes()
    assert str(LOCAL / "distributions" / f"{name}.yaml") in read_mapping(environment / "spack.yaml")["spack"]["include"]
    assert load_stack("quick").status == "locked"


def test_other_stacks_have_one_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    run_on(monkeypatch, "debian13")
    assert lock_file(LOCAL / "stacks" / "debian") == LOCAL / "stacks" / "debian" / "spack.lock"
    assert lock_file(ROOT) == ROOT / "spack.lock"


def test_lock_that_a_site_made_for_a_stack_with_locks_of_distributions_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_on(monkeypatch, "rocky9")
    (tmp_path / "spack.debian12.lock").write_text("{}")
    assert lock_file(tmp_path) == tmp_path / "spack.rocky9.lock"
    (tmp_path / "spack.lock").write_text("{}")
    assert lock_file(tmp_path) == tmp_path / "spack.lock"


def test_operating_system_without_list_resolves_with_its_own_packages(
    monkeypatch: pytest.MonkeyPatch, var: Path, messages: list[str]
) -> None:
    """Debian 14, say: the list of Debian 12 with the versions that are here, of both files."""
    run_on(monkeypatch, "debian14")
    here = {"gcc": "15.2.0", "hdf5": "1.14.6"}
    monkeypatch.setattr(External, "here", lambda self: here.get(self.name, self.version))
    assert load_stack("quick").note == "not resolved; iowatch stack install quick --system local --concretize"
    with pytest.raises(InputError, match=r"spack\.debian14\.lock: no such file") as error:
        prepare_environment("quick", "local", False)
    assert "--concretize" in (error.value.hint or "")
    environment = prepare_environment("quick", "local", True)
    includes = read_mapping(environment / "spack.yaml")["spack"]["include"]
    assert includes == [
        str(environment / "debian12.yaml"),
        str(environment / "externals.yaml"),
        str(QUICK / "packages.yaml"),
        str(ROOT / "benchmarks" / "spack_repo" / "common.yaml"),
    ]
    libraries = read_mapping(environment / "debian12.yaml")
    assert libraries["packages"]["hdf5"]["externals"][0]["spec"] == "hdf5@1.14.6 +mpi +hl +shared"
    # Spack would read the list of Debian 12 once more, with its GCC.
    assert "include" not in libraries
    packages = read_mapping(environment / "externals.yaml")["packages"]
    assert packages["gcc"]["externals"][0]["spec"] == "gcc@15.2.0 languages:='c,c++,fortran'"
    assert messages == [
        "debian12.yaml: hdf5 is 1.14.6 here, not 1.10.8",
        "externals.yaml: gcc is 15.2.0 here, not 12.2.0",
    ]


@pytest.mark.parametrize("missing", ["gcc", "openmpi", "hdf5"])
def test_missing_package_is_refused_although_another_file_forbids_to_build_it(
    monkeypatch: pytest.MonkeyPatch, var: Path, missing: str
) -> None:
    """The lists of the distributions name versions; `buildable: false` is in the file of the stack."""
    run_on(monkeypatch, "debian13")
    monkeypatch.setattr(External, "here", lambda self: ABSENT if self.name == missing else self.version)
    with pytest.raises(InputError, match=rf"debian13\.yaml: no {missing} .* and it is not buildable"):
        prepare_environment("quick", "local", True)


def test_two_lists_of_the_same_name_are_both_adapted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`externals.yaml` of a site's stack and that of its system."""
    monkeypatch.setattr(External, "here", lambda self: "9.9")
    paths = []
    for name in ("hdf5", "cmake"):
        path = tmp_path / name / "externals.yaml"
        path.parent.mkdir()
        path.write_text(json.dumps({"packages": {name: {"externals": [{"spec": f"{name}@1.0", "prefix": "/usr"}]}}}))
        paths.append(path)
    target = tmp_path / "env"
    target.mkdir()
    environment: dict[str, list[str]] = {}
    stack_install.adapt_to_machine(environment, paths, target, {})
    adapted: dict[str, str] = {}
    for path in environment["include"]:
        for name, package in read_mapping(Path(path))["packages"].items():
            adapted[name] = package["externals"][0]["spec"]
    assert adapted == {"hdf5": "hdf5@9.9", "cmake": "cmake@9.9"}


def test_nested_includes_follow_their_file_once() -> None:
    """The list of Debian 12 begins with that of all stacks."""
    list_of_debian = LOCAL / "distributions" / "debian12.yaml"
    expected = [list_of_debian, LOCAL / "externals.yaml"]
    assert with_nested_includes([list_of_debian, LOCAL / "externals.yaml"]) == expected


def test_lock_of_other_specs_names_the_command_that_renews_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, var: Path
) -> None:
    """Spack writes spack.lock; the lock of an operating system has another name."""
    run_on(monkeypatch, "debian13")
    monkeypatch.setattr(stack_install, "lock_matches_manifest", lambda _manifest, _lock: False)
    folder = manifest_directory("local", "quick")
    with pytest.raises(InputError, match="their specs differ") as error:
        prepare_environment("quick", "local", False)
    assert f"concretize --force && mv {folder}/spack.lock {folder}/spack.debian13.lock" in (error.value.hint or "")
