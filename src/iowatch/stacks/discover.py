"""Finds the stacks of a system: what is installed, what is only locked, what the machine itself offers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from iowatch import paths
from iowatch.errors import InputError, UsageError, near_miss
from iowatch.stacks import lock, modules
from iowatch.stacks.activate import home
from iowatch.stacks.model import Stack, from_json
from iowatch.stacks.system import features, system_stacks

# The environment at the top of the checkout.
REFERENCE = "reference"


def read_stack_json(path: Path) -> Stack:
    """A stack of its `stack.json`.

    Raises:
        InputError: unreadable, not JSON, or of another format.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: not readable as stack.json: {error}", hint="Install the stack again."
        ) from error
    return from_json(document, str(path))


def _checked(stack: Stack) -> Stack:
    """The stack, or the same marked broken where a file of one of its parts is gone."""
    missing = [path for part in stack.parts for path in part.files if not Path(path).exists()]
    return replace(stack, status="broken", note=f"missing: {', '.join(missing)}") if missing else stack


def source(system: str, name: str) -> Path:
    """The folder of a stack's `spack.yaml`: the top one for `reference`, else one of the system."""
    return paths.root() if name == REFERENCE else paths.root() / "systems" / system / "stacks" / name


def _installed(system: str, name: str) -> Stack | None:
    path = home(system, name) / "stack.json"
    stack = read_stack_json(path) if path.is_file() else None
    return _checked(stack) if stack and stack.kind == "spack" else None


def from_lock(path: Path, name: str, system: str) -> Stack:
    """A stack that is only a lock file.

    Raises:
        InputError: not a lock file.
    """
    parts = lock.parts(path)
    note = f"not installed; iowatch stack install {name} --system {system}"
    return Stack(name, system, "spack", "locked", parts, features=features(parts), note=note)


def _spack_stack(system: str, name: str) -> Stack:
    installed = _installed(system, name)
    if installed:
        return installed
    path = source(system, name) / "spack.lock"
    if path.is_file():
        return from_lock(path, name, system)
    note = f"not resolved; iowatch stack install {name} --system {system} --concretize"
    return Stack(name, system, "spack", "declared", (), note=note)


def _names(system: str, file: str) -> list[str]:
    return sorted(path.parent.name for path in (paths.root() / "systems" / system / "stacks").glob(f"*/{file}"))


def discover(system: str) -> list[Stack]:
    """All stacks of a system: usable ones first, of these the one that offers most first.

    Those of the operating system's packages count where `system.yaml` says `system_stacks: true`.

    Args:
        system: a name of `iowatch.systems.names()`.

    Raises:
        UsageError: no such system.
        InputError: a file that describes a stack is damaged.
    """
    from iowatch.systems import load as load_system

    facts = load_system(system)
    stacks = system_stacks(system) if facts.system_stacks else []
    stacks += [_checked(modules.load(system, path)) for path in _module_files(system)]
    if facts.retired is None:
        stacks += [_spack_stack(system, name) for name in [*_names(system, "spack.yaml"), REFERENCE]]
    return sorted(stacks, key=lambda stack: (stack.status != "installed", -len(stack.features), stack.name))


def _module_files(system: str) -> list[Path]:
    folder = paths.root() / "systems" / system / "stacks"
    return [folder / name / modules.FILE for name in _names(system, modules.FILE)]


def load(name: str, system: str = "local") -> Stack:
    """One stack of a system; only those of the operating system have to be looked for.

    Args:
        name: a name, or the path of a `spack.lock` or `stack.json`.

    Raises:
        UsageError: no such system or stack.
        InputError: its file is damaged.
    """
    path = Path(name)
    if path.suffix == ".lock":
        return replace(from_lock(path, name, system), note="a lock file; only stacks of a system are installed")
    if path.suffix == ".json":
        return read_stack_json(path)
    if (source(system, name) / "spack.yaml").is_file():
        return _spack_stack(system, name)
    stacks = discover(system)
    for stack in stacks:
        if stack.name == name:
            return stack
    hint = near_miss(name, [stack.name for stack in stacks])
    raise UsageError(f"no stack '{name}' for system '{system}'", hint=hint)
