"""The Spack environment under var/ that a stack is installed from: its lock, or resolved for this machine."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from iowatch import paths
from iowatch.errors import InputError
from iowatch.stacks import externals, lock
from iowatch.stacks.activate import home
from iowatch.stacks.discover import REFERENCE, source

Say = Callable[[str], None]
OWN_EXTERNALS = "externals.yaml"


def resolved(stack: str, system: str, concretize: bool, say: Say) -> Path:
    """Write the environment of a stack, with the committed lock or ready to be resolved.

    Args:
        concretize: leave the lock out; what the machine has stands in the place of what the externals say.
        say: is told what is not as the lock or the externals say.

    Raises:
        InputError: no lock, one of another environment or machine, or externals that are not here.
    """
    folder = source(system, stack)
    manifest, committed = folder / "spack.yaml", folder / "spack.lock"
    target = home(system, stack) / "env"
    if not concretize:
        _check_lock(manifest, committed, say)
    document = lock.read_yaml(manifest)
    includes = [(manifest.parent / path).resolve() for path in document["spack"].get("include", [])]
    target.mkdir(parents=True, exist_ok=True)
    if concretize:
        pinned = dict(map(lock.pinned, lock.root_specs(manifest)))
        includes = [_as_here(path, target, pinned, say) for path in [*_of_system(stack, system), *includes]]
        if (processor := platform.machine()) != "x86_64":
            # Over what the shared settings require: locks and binaries for any x86_64.
            document["spack"]["packages"] = {"all": {"require": f"target={processor}"}}
    document["spack"]["include"] = [str(path) for path in includes]
    _write_yaml(target / "spack.yaml", document)
    if not concretize:
        shutil.copyfile(committed, target / "spack.lock")
    return target


def _of_system(stack: str, system: str) -> list[Path]:
    """What the reference stack takes from the system where it is resolved; other stacks name it themselves."""
    own = paths.root() / "systems" / system / OWN_EXTERNALS
    return [own] if stack == REFERENCE and own.is_file() else []


def _write_yaml(path: Path, document: dict[str, Any]) -> None:
    from ruamel.yaml import YAML

    with path.open("w", encoding="utf-8") as handle:
        YAML(typ="safe").dump(document, handle)


def _check_lock(manifest: Path, committed: Path, say: Say) -> None:
    """Refuse a lock that is absent, is another environment's, or names what this machine does not have."""
    folder = manifest.parent
    if not committed.is_file():
        raise InputError(
            f"{committed}: no such file", hint="Add --concretize to resolve the stack on this machine."
        )
    if not lock.matches(manifest, committed):
        message = f"{committed} was not made from {manifest.name}: their specs differ"
        raise InputError(message, hint=f"Write it again: spack -e {folder} concretize --force")
    false = [external for external in externals.of_lock(committed) if not external.is_true]
    words = {external: f"{external}, here {external.here() or 'absent'}" for external in false}
    vital = [words[e] for e in false if not (e.builds_only and e.here()) and e.name != "glibc"]
    if vital:
        raise InputError(
            f"{committed} was made for another machine: it takes {'; '.join(vital)}",
            hint="Add --concretize: the versions in spack.yaml stay, compiler and tools are this machine's.",
        )
    if false:
        say(f"the lock was made on a machine with other tools: {'; '.join(words.values())}")


def _as_here(include: Path, target: Path, pinned: Mapping[str, str | None], say: Say) -> Path:
    """An included file, or a copy with its externals as they are on this machine.

    Args:
        pinned: versions that the stack asks for.

    Raises:
        InputError: something that must not be built is not here, or not in the version that the stack asks for.
    """
    result = externals.corrected(lock.read_yaml(include))
    if result.refused:
        raise InputError(
            f"{include}: {'; '.join(result.refused)}",
            hint="Correct its version and prefix, or take it out; `spack external find NAME` looks for it.",
        )
    other = [f"{name}@{pinned[name]}, here {v}" for name, v in result.only.items() if pinned.get(name, v) != v]
    if other:
        raise InputError(
            f"the stack asks for {'; '.join(other)}; {include} says that it is not to be built",
            hint="Copy the stack's folder to one of your own, with the versions that are here in spack.yaml.",
        )
    if not result.told:
        return include
    for what in result.told:
        say(f"{include.name}: {what}")
    copy = target / include.name
    _write_yaml(copy, result.document)
    return copy
