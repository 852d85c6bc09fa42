"""Tests that need the real Spack. Set SPACK_ROOT to a Spack 1.1; it must be able to download."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from iowatch.core.yamlfile import read_mapping
from iowatch.site import Stack
from iowatch.site.stack import install as stack_install
from iowatch.site.stack import records as stack
from iowatch.site.stack.distributions import lock_file

from .test_stack_committed import EXAMPLES, LOCKS, MANIFESTS, ROOT, label, lock_label

if not os.environ.get("SPACK_ROOT"):
    pytest.skip("needs SPACK_ROOT, a Spack 1.1 (the whole of tests/site/test_spack.py)", allow_module_level=True)

# One or two minutes per stack: one of each kind, or all of them.
SOME = [m for m in MANIFESTS if os.environ.get("IOWATCH_TEST_CONCRETIZE") or label(m) in ("debian", "netcdf-4.3.3.1")]
RECIPE = ROOT / "benchmarks" / "spack_repo" / "iowatch" / "packages" / "benchio" / "package.py"


def spack(*arguments: str) -> str:
    program = stack_install.spack_command()
    assert program is not None
    done = subprocess.run([program, "--color", "never", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(tmp_path: Path, manifest: Path) -> Path:
    """A copy of the environment of a spack.yaml, so that Spack writes nothing into the checkout."""
    text = manifest.read_text()
    for include in read_mapping(manifest)["spack"]["include"]:
        text = text.replace(f"- {include}\n", f"- {(manifest.parent / include).resolve()}\n")
    (tmp_path / "spack.yaml").write_text(text)
    return tmp_path


def test_spack_is_the_pinned_release() -> None:
    assert spack("--version").split()[0] == stack_install.pinned_spack_version()


def test_recipes_pass_the_audit(tmp_path: Path) -> None:
    target = environment(tmp_path, ROOT / "systems" / "local" / "stacks" / "debian" / "spack.yaml")
    names = [path.parent.name.replace("_", "-") for path in RECIPE.parents[1].glob("*/package.py")]
    assert "iowatch" in names
    answer = spack("-e", str(target), "audit", "packages", *names)
    assert "passed" in answer
    assert "failed" not in answer


@pytest.mark.parametrize("manifest", [*MANIFESTS, *EXAMPLES], ids=label)
def test_environments_are_valid_for_spack(tmp_path: Path, manifest: Path) -> None:
    """Spack validates an environment and all that it includes when it opens it."""
    target = environment(tmp_path, manifest)
    assert "x86_64_v2" in spack("-e", str(target), "config", "get", "packages")


@pytest.mark.parametrize("path", LOCKS, ids=lock_label)
def test_lock_is_readable_and_complete(tmp_path: Path, path: Path) -> None:
    """Spack reads the lock as concretized; nothing is left to resolve."""
    target = environment(tmp_path, path.parent / "spack.yaml")
    (target / "spack.lock").write_bytes(path.read_bytes())
    answer = spack("-e", str(target), "spec", "--long")
    for part in stack.read_lock(path)["roots"]:
        assert part["hash"][:7] in answer


@pytest.mark.parametrize("manifest", SOME, ids=label)
def test_environment_concretizes_to_the_committed_lock(tmp_path: Path, manifest: Path) -> None:
    target = environment(tmp_path, manifest)
    spack("-e", str(target), "concretize", "--force")
    assert stack.read_lock_parts(target / "spack.lock") == stack.read_lock_parts(lock_file(manifest.parent))


@pytest.mark.capability("experiments")
def test_hybrid_of_two_locks_has_the_chosen_packages_and_the_rest_of_good(var: Path) -> None:
    """Spack accepts every version and variant of the locks as a requirement; only dependencies may be rebuilt.

    HDF5 1.10 excludes the zlib-ng of GOOD, so neither can be exchanged without the other.
    """
    from iowatch.experiments.common import spack_graph
    from iowatch.experiments.common.spack_environments import SpackEnvironment, write_environment

    folder = ROOT / "systems" / "local" / "stacks"
    locks = [folder / name / "spack.lock" for name in ("netcdf-4.9", "hdf5-1.10")]
    sides = [{part.name: part for part in stack.read_lock_parts(lock)} for lock in locks]
    good, bad = (
        spack_graph.graph_of_specs(
            stack.read_lock(lock)["concrete_specs"], {str(part.hash) for part in parts.values()}, lock.parent.name
        )
        for lock, parts in zip(locks, sides, strict=True)
    )
    changes = {one.name: one for one in spack_graph.package_changes(good, bad)}

    def resolved(*names: str) -> Stack:
        common = ROOT / "benchmarks" / "spack_repo" / "common.yaml"
        document = spack_graph.hybrid_environment(good, bad, [changes[name] for name in names], [str(common)])
        return SpackEnvironment(
            "local", f"bisect-{'-'.join(names)}", lambda target: write_environment(target, document)
        ).resolved()

    assert "'zlib-ng' requires conflicting variant values" in (resolved("hdf5").note or "")
    expected = {**sides[0], "hdf5": sides[1]["hdf5"], "zlib-ng": sides[1]["zlib-ng"]}
    assert {part.name: (part.version, part.variants) for part in resolved("hdf5", "zlib-ng").parts} == {
        name: (part.version, part.variants) for name, part in expected.items()
    }


@pytest.mark.parametrize("manifest", EXAMPLES, ids=label)
def test_example_concretizes_with_the_externals_of_the_site(tmp_path: Path, manifest: Path) -> None:
    target = environment(tmp_path, manifest)
    spack("-e", str(target), "concretize", "--force")
    taken = {external.name: external.version for external in stack_install.externals_of_lock(target / "spack.lock")}
    assert taken["lustre"] == "2.15.4"
    parts = {part.name: part for part in stack.read_lock_parts(target / "spack.lock")}
    assert parts["ior"].variants["lustre"] == parts["darshan-runtime"].variants["lustre"] == "true"
    if label(manifest) == "cray":
        assert taken["cray-mpich"] == "8.1.30"
        return
    assert "slurm" in taken
    assert parts["openmpi"].variants["romio-filesystem"] == "lustre"
    assert parts["openmpi"].variants["schedulers"] == "slurm"


def test_iowatch_concretizes_with_the_requirements_of_the_wheel(tmp_path: Path) -> None:
    """The recipe requires what pyproject.toml does; Spack's repository and ours have it."""
    text = (ROOT / "benchmarks" / "spack_repo" / "common.yaml").resolve()
    (tmp_path / "spack.yaml").write_text(f"spack:\n  include: ['{text}']\n  specs: [iowatch+postgresql]\n")
    spack("-e", str(tmp_path), "concretize")
    found = {part.name: part.version for part in stack.read_lock_parts(tmp_path / "spack.lock")}
    assert found["iowatch"] == "main"


def test_recipe_builds_and_its_install_test_runs(var: Path) -> None:
    from iowatch.site.stack.install import install_stack

    installed = install_stack("debian", "local", jobs=1)
    directory = installed.directory
    assert installed.stack.status == "installed"
    answer = spack("-e", str(directory / "env"), "test", "run", "benchio")
    assert "1 passed of 1" in answer
    activate = f". {directory / 'activate.sh'} && benchio --version"
    done = subprocess.run(["bash", "-c", activate], capture_output=True, text=True)
    assert "pnetcdf: PnetCDF" in done.stdout
