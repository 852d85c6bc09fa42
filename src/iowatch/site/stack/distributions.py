"""Files of a Spack stack that belong to one operating system: lists of its packages, and locks made with them.

    /etc/os-release ──> operating_system(): debian13 ─┬─> included_files(): `$os` in `include:` of spack.yaml
                                                      └─> lock_file(): spack.debian13.lock, else spack.lock

An operating system is one with a file in the folder that `include:` names, `systems/local/distributions`.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from iowatch.core import yamlfile
from iowatch.site.stack.records import SPACK_DOCS

# Replaced by Spack, too.
_VARIABLE = "$os"
# Its list is corrected by what is on the machine, where the operating system has no list.
LISTED_OPERATING_SYSTEM = "debian12"


def operating_system() -> str:
    """Return the name that Spack gives this operating system: `debian13`, `ubuntu24.04`.

    It is `unknown` where no file describes the operating system.
    """
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "unknown"
    numbers = release.get("VERSION_ID", "").split(".")
    # Releases of Ubuntu have two numbers, those of Debian and the others one and updates.
    length = 2 if release["ID"] == "ubuntu" else 1
    return release["ID"] + ".".join(numbers[:length])


def lock_file(folder: Path) -> Path:
    """Return the path of a stack's lock for this operating system, which need not exist.

    Args:
        folder: the directory of its `spack.yaml`.
    """
    general_lock = folder / "spack.lock"
    lock_of_system = folder / f"spack.{operating_system()}.lock"
    if lock_of_system.is_file():
        return lock_of_system
    has_locks_of_systems = any(folder.glob("spack.*.lock"))
    if has_locks_of_systems and not general_lock.is_file():
        return lock_of_system
    return general_lock


def included_files(manifest: Path) -> list[Path]:
    """Return the absolute paths of the files that a `spack.yaml` includes, with those of this operating system.

    Raises:
        InputError: the file is damaged.
    """
    document = yamlfile.read_mapping(manifest, SPACK_DOCS)
    paths = []
    for include in document["spack"].get("include", []):
        path = manifest.parent / include.replace(_VARIABLE, operating_system())
        if _VARIABLE in include and not path.is_file():
            path = manifest.parent / include.replace(_VARIABLE, LISTED_OPERATING_SYSTEM)
        paths.append(path.resolve())
    return paths


def with_nested_includes(includes: Sequence[Path]) -> list[Path]:
    """Return included files, each followed by those that it includes itself, without repetitions.

    Raises:
        InputError: a file is damaged.
    """
    files: list[Path] = []
    for include in includes:
        nested = yamlfile.read_mapping(include, SPACK_DOCS).get("include") or []
        nested_paths = [(include.parent / path).resolve() for path in nested]
        for path in (include, *with_nested_includes(nested_paths)):
            if path not in files:
                files.append(path)
    return files
