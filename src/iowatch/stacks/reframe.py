"""ReFrame environments of the stacks of a system; `systems/<name>/reframe.py` calls this."""

from __future__ import annotations

import re
import shlex
from typing import Any

from iowatch.errors import InputError, MachineError
from iowatch.stacks.activate import materialise
from iowatch.stacks.discover import discover
from iowatch.stacks.model import Stack


def environment_name(stack: str) -> str:
    """ReFrame's name of a stack: it takes letters, digits, `-` and `_` only, and no digit first."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", stack)
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


def environment(stack: Stack) -> dict[str, Any]:
    """ReFrame's description of one installed stack.

    Its `prepare_cmds` source `activate.sh` in every job and build; `extras` name the files of the stack and the
    versions of its parts.
    """
    directory = materialise(stack)
    return {
        "name": environment_name(stack.name),
        "cc": "mpicc",
        "cxx": "mpicxx",
        "ftn": "mpifort",
        "prepare_cmds": [f". {shlex.quote(str(directory / 'activate.sh'))}"],
        "features": ["mpi", *stack.features],
        "extras": {
            "stack": stack.name,
            "activate": str(directory / "activate.sh"),
            "stack_json": str(directory / "stack.json"),
            "versions": {part.name: part.version for part in stack.parts},
        },
    }


def environments(system: str) -> list[dict[str, Any]]:
    """ReFrame's `environments` of every usable stack of a system.

    Raises:
        MachineError: there is none.
        InputError: two of them would have the same name in ReFrame (`a.1` and `a_1`).
    """
    usable = [stack for stack in discover(system) if stack.status == "installed"]
    if not usable:
        raise MachineError(
            f"system '{system}' has no usable stack",
            hint=f"`iowatch stack list --system {system}` tells why, `iowatch doctor` what to install.",
        )
    named: dict[str, str] = {}
    for stack in usable:
        other = named.setdefault(environment_name(stack.name), stack.name)
        if other != stack.name:
            raise InputError(
                f"the stacks '{other}' and '{stack.name}' of '{system}' have the same name in ReFrame",
                hint="Rename one of them: ReFrame knows letters, digits, - and _ only.",
            )
    return [environment(stack) for stack in usable]
