"""The Spack to use: the one that is given, or a clone of the pinned release."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from iowatch import paths
from iowatch.errors import MachineError

SPACK_URL = "https://github.com/spack/spack.git"


def bootstrap_directory() -> Path:
    """Where `--bootstrap` puts its clone."""
    return paths.var() / "spack"


def common_file() -> Path:
    """The file that holds the pins and what all stacks share."""
    return paths.root() / "benchmarks" / "spack_repo" / "common.yaml"


def pinned_version() -> str:
    """The release of Spack that the stacks are made for, of `benchmarks/spack_repo/common.yaml`.

    Raises:
        MachineError: the file is absent or pins nothing.
    """
    from ruamel.yaml import YAML

    try:
        document = YAML(typ="safe").load(common_file().read_text(encoding="utf-8"))
        return str(document["packages"]["spack"]["require"]).lstrip("@")
    except (OSError, KeyError, TypeError) as error:
        raise MachineError(f"{common_file()}: no pin 'packages: spack: require': {error}") from error


def spack_command() -> str | None:
    """Path of Spack: of `SPACK_ROOT`, of an earlier `--bootstrap`, or of PATH; None where there is none.

    Raises:
        MachineError: SPACK_ROOT is set and is no Spack.
    """
    roots = [Path(root) for root in (os.environ.get("SPACK_ROOT"),) if root]
    for candidate in [*roots, bootstrap_directory()]:
        program = candidate / "bin" / "spack"
        if program.is_file():
            return str(program)
        if candidate in roots:
            raise MachineError(
                f"SPACK_ROOT is {candidate}, which has no bin/spack", hint="Correct or unset it."
            )
    return shutil.which("spack")


def spack_version() -> str | None:
    """`1.1.0 (path)` of the Spack to use, or None where there is none.

    Read from its sources, because starting Spack takes a second.
    """
    program = spack_command()
    if program is None:
        return None
    source = Path(program).resolve().parents[1] / "lib" / "spack" / "spack" / "__init__.py"
    try:
        lines = source.read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"unknown version ({program})"
    version = next(
        (line.split('"')[1] for line in lines if line.startswith("__version__ =")), "unknown version"
    )
    return f"{version} ({program})"


def bootstrap() -> str:
    """Clone the pinned Spack, once.

    Returns:
        Path of its program.

    Raises:
        MachineError: git is missing or cannot reach the repository.
    """
    target = bootstrap_directory()
    program = target / "bin" / "spack"
    if program.is_file():
        return str(program)
    tag = f"v{pinned_version()}"
    try:
        subprocess.run(
            ["git", "clone", "--quiet", "--depth", "1", "--branch", tag, SPACK_URL, str(target)],
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        raise MachineError("git is not installed", hint="Install git, or set SPACK_ROOT to a Spack.") from error
    except subprocess.CalledProcessError as error:
        shutil.rmtree(target, ignore_errors=True)
        reason = (error.stderr or "").strip().splitlines()
        hint = f"Set SPACK_ROOT to a Spack {pinned_version()} that is already here."
        message = f"cannot clone {SPACK_URL} at {tag}: {reason[-1] if reason else error}"
        raise MachineError(message, hint=hint) from error
    return str(program)
