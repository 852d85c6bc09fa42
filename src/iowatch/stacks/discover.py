"""Finds the stacks of a system: what is installed, what is only locked, what the machine itself offers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from iowatch import paths
from iowatch.errors import InputError, UsageError, near_miss
from iowatch.stacks.activate import home
from iowatch.stacks.model import Stack, from_json
from iowatch.stacks.system import system_stacks


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


def _installed(system: str) -> list[Stack]:
    """Spack stacks that were installed for this system."""
    found = []
    for path in sorted((paths.var() / "stacks" / system).glob("*/stack.json")):
        stack = read_stack_json(path)
        if stack.kind == "spack":
            found.append(_checked(stack))
    return found


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
    stacks = [*(system_stacks(system) if facts.system_stacks else []), *_installed(system)]
    return sorted(stacks, key=lambda stack: (stack.status != "installed", -len(stack.features), stack.name))


def load(name: str, system: str = "local") -> Stack:
    """One stack of a system.

    Raises:
        UsageError: no such system or stack.
    """
    stacks = discover(system)
    for stack in stacks:
        if stack.name == name:
            return stack
    hint = near_miss(name, [stack.name for stack in stacks])
    raise UsageError(f"no stack '{name}' for system '{system}'", hint=hint)


__all__ = ["discover", "home", "load", "read_stack_json"]
