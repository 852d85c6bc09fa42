"""Environments of searches and gates with a mock-up of Spack: resolved and built once, kept up to a size."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch.core import MachineError, UsageError
from iowatch.experiments.common.builds import find_build, recorded_stack
from iowatch.experiments.common.spack_environments import SpackEnvironment, write_environment
from iowatch.site import Stack, StackPart
from iowatch.site.stack.install import pinned_spack_version

from .spack_specs import all_specs, spec

MPI = spec("openmpi", "4.1.4", external="/usr")


@pytest.fixture
def spack(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mock-up of Spack: `concretize` succeeds if the environment names no `bad`, `install` if no `unbuildable`.

    It resolves every environment to hdf5 on Open MPI, whose hash is the version in the first spec, and appends its
    commands to `asked`.
    """
    root = tmp_path / "spack"
    (root / "bin").mkdir(parents=True)
    (root / "lib" / "spack" / "spack").mkdir(parents=True)
    (root / "lib" / "spack" / "spack" / "__init__.py").write_text(f'__version__ = "{pinned_spack_version()}"\n')
    hdf5 = {**spec("hdf5", "VERSION", MPI), "hash": "VERSION"}
    lock = {
        "_meta": {"lockfile-version": 6},
        "roots": [{"hash": "VERSION", "spec": "hdf5@VERSION"}],
        "concrete_specs": all_specs(hdf5),
    }
    (root / "lock").write_text(json.dumps(lock))
    (root / "bin" / "spack").write_text(
        f"""#!/bin/sh
echo "$@" >> {root}/asked
env= store={var}/build/spack/store/linux
for word; do [ "$previous" = -e ] && env=$word; previous=$word; done
case " $* " in
*' python '*) echo {tmp_path}/opt ;;
*' concretize '*) grep -q bad $env/spack.yaml && echo '==> Error: failed for these reasons:' && seq 20 && exit 1
  version=$(sed -n 's/.*hdf5[@\\/]//p' $env/spack.yaml); sed "s/VERSION/$version/g" {root}/lock > $env/spack.lock ;;
*' install '*) grep -q unbuildable $env/spack.yaml && echo '==> Error: ProcessError: make failed' && exit 1
  version=$(sed -n 's/.*hdf5[@\\/]//p' $env/spack.yaml); mkdir -p $store/hdf5-x-$version/.spack
  head -c 1000 /dev/zero > $store/hdf5-x-$version/lib ;;
*' find '*) version=$(sed -n 's/.*hdf5[@\\/]//p' $env/spack.yaml); echo $version $store/hdf5-x-$version ;;
*' uninstall '*) for word; do case $word in /?.*) rm -r $store/hdf5-x-${{word#/}} ;; esac; done ;;
esac
"""
    )
    (root / "bin" / "spack").chmod(0o755)
    monkeypatch.setenv("SPACK_ROOT", str(root))
    monkeypatch.setattr("iowatch.site.stack.install.External.here", lambda self: self.version)
    return root


@pytest.fixture
def make(spack: Path) -> Callable[[str], SpackEnvironment]:
    def made(text: str) -> SpackEnvironment:
        def write(target: Path) -> None:
            write_environment(target, {"spack": {"specs": [text]}})

        return SpackEnvironment("local", f"bisect-{text.rpartition('@')[2]}", write)

    return made


Make = Callable[[str], SpackEnvironment]


def _asked(root: Path, word: str) -> int:
    return sum(f" {word}" in line for line in (root / "asked").read_text().splitlines())


def test_environment_is_resolved_and_built_once(make: Make, spack: Path) -> None:
    locked = make("hdf5@1.2").resolved()
    assert (locked.status, [part.name for part in locked.parts]) == ("locked", ["hdf5", "openmpi"])
    assert _asked(spack, "install ") == 0
    built = make("hdf5@1.2").stack()
    assert built.status == "installed"
    assert "hdf5" in built.features
    assert make("hdf5@1.2").stack() == built
    assert (_asked(spack, "concretize"), _asked(spack, "install ")) == (1, 1)


def test_store_of_the_account_is_only_read(make: Make, spack: Path, var: Path, tmp_path: Path) -> None:
    make("hdf5@1.2").stack()
    scope = var / "build" / "spack" / "scope"
    assert f"root: {var}/build/spack/store" in (scope / "config.yaml").read_text()
    assert f"install_tree: {tmp_path}/opt" in (scope / "upstreams.yaml").read_text()
    assert all(f"-C {scope}" in line for line in (spack / "asked").read_text().splitlines()[1:])


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("bad@1.1", "Spack cannot resolve it: failed for these reasons: 1"),
        ("unbuildable hdf5@1.1", "Spack cannot build it: ProcessError: make failed"),
    ],
)
def test_what_spack_cannot_do_is_the_note_of_a_broken_stack(make: Make, text: str, note: str) -> None:
    found = make(text).stack()
    assert (found.status, found.note) == ("broken", note)


def test_oldest_unused_environment_is_removed_beyond_the_size(
    make: Make, var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three packages of 1000 bytes, where two fit; the one that was used last week is removed, another one kept."""
    monkeypatch.setenv("IOWATCH_BUILD_CACHE_SIZE", "2100")
    stacks, store = var / "stacks" / "local", var / "build" / "spack" / "store" / "linux"
    for version, days in (("1.1", 3), ("1.2", 7)):
        make(f"hdf5@{version}").stack()
        used = time.time() - days * 86400
        os.utime(stacks / f"bisect-{version}" / "used", (used, used))
    make("hdf5@1.3").stack()
    assert sorted(path.name for path in stacks.iterdir()) == ["bisect-1.1", "bisect-1.3"]
    assert sorted(path.name for path in store.iterdir()) == ["hdf5-x-1.1", "hdf5-x-1.3"]


def test_environment_of_today_is_kept_whatever_the_size(make: Make, var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side of a gate that runs."""
    monkeypatch.setenv("IOWATCH_BUILD_CACHE_SIZE", "1")
    for version in ("1.1", "1.2"):
        make(f"hdf5@{version}").stack()
    assert len([*(var / "stacks" / "local").iterdir()]) == 2


def test_gate_builds_a_spec_once(spack: Path) -> None:
    build = find_build("local", "spack:hdf5@1.4")
    assert build.stack.part("hdf5") is not None
    assert build.stack.name.startswith("gate-")
    assert build.label == "hdf5@1.4"
    assert find_build("local", "spack:hdf5@1.4").stack == build.stack
    assert find_build("local", "spack:hdf5@1.5").stack.name != build.stack.name
    assert _asked(spack, "concretize") == 2


def _recorded(key: str) -> Stack:
    """As another clone recorded it; the mock-up's hash is the version."""
    prefix = f"/other/clone/opt/hdf5-x-{key}"
    parts = (
        StackPart("hdf5", key, hash=key, prefix=prefix, files=(prefix,)),
        StackPart("openmpi", "4.1.4", hash="other", prefix="/usr"),
    )
    return Stack("nightly", "local", "spack", "installed", parts, ("hdf5",), {"OMPI_MCA_io": "ompio"})


def test_recorded_packages_that_are_gone_are_installed_again_by_hash(spack: Path, var: Path) -> None:
    found = recorded_stack("local", _recorded("1.4"))
    assert found.name.startswith("recorded-nightly-")
    assert found.settings == {"OMPI_MCA_io": "ompio"}
    assert [part.prefix for part in found.parts] == [f"{var}/build/spack/store/linux/hdf5-x-1.4", "/usr"]
    (path,) = var.glob("stacks/local/recorded-*/env/spack.yaml")
    assert "- hdf5/1.4\n" in path.read_text()
    assert "openmpi" not in path.read_text(), "it is the machine's"
    assert recorded_stack("local", _recorded("1.4")) == found
    assert _asked(spack, "install ") == 1


def test_recorded_packages_that_cannot_be_installed_again_are_named(
    spack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"hdf5-x-bad is missing, and Spack cannot resolve it: failed for these"):
        recorded_stack("local", _recorded("bad"))
    monkeypatch.setattr("iowatch.site.stack.install.External.here", lambda _: "5.0")
    with pytest.raises(UsageError, match=r"and it needs openmpi 4\.1\.4 \(/usr\), which this machine does not have"):
        recorded_stack("local", _recorded("1.4"))
    assert _asked(spack, "install ") == 0


def test_gate_refuses_a_spec_that_spack_cannot_resolve(spack: Path) -> None:
    with pytest.raises(UsageError, match="cannot be run: Spack cannot resolve it: failed for these reasons: 1"):
        find_build("local", "spack:bad@1")


def test_gate_without_spack_says_how_to_get_it(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPACK_ROOT", raising=False)
    monkeypatch.setattr("iowatch.site.stack.install.shutil.which", lambda _: None)
    with pytest.raises(MachineError, match="no Spack found"):
        find_build("local", "spack:hdf5@1.4")
