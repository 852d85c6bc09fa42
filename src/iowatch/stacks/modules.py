"""Stacks of environment modules: `modules.yaml` names them, the tools that they bring describe them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from iowatch.errors import InputError
from iowatch.stacks.lock import read_yaml
from iowatch.stacks.model import Stack, from_json

FILE = "modules.yaml"
TIMEOUT_S = 120.0
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read(path: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """(modules, environment settings) of a `modules.yaml`.

    Raises:
        InputError: another field, or the wrong kind of value.
    """
    document = read_yaml(path)
    unknown = sorted(set(document) - {"modules", "settings"})
    if unknown:
        raise InputError(f"{path}: unknown field '{unknown[0]}'", hint="Expected: modules, settings.")
    modules, settings = document.get("modules"), document.get("settings") or {}
    if not isinstance(modules, list) or not modules or not isinstance(settings, dict):
        raise InputError(f"{path}: expected 'modules' as a list of names and 'settings' as name: value")
    for value in (*modules, *settings.values()):
        # YAML reads `true` and `1.10` as a truth value and as the number 1.1: nobody's environment has these.
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InputError(f"{path}: {value!r} is no text", hint="Write it in quotes.")
    for name in settings:
        if not _VARIABLE.fullmatch(str(name)):
            raise InputError(f"{path}: '{name}' cannot name an environment variable")
    return tuple(map(str, modules)), {str(name): str(value) for name, value in settings.items()}


def load(system: str, path: Path) -> Stack:
    """A stack of modules, described by its tools in a shell that has the modules loaded.

    Raises:
        InputError: the file is damaged.
    """
    modules, settings = read(path)
    name = path.parent.name
    loading = " && ".join(f"module load {shlex.quote(module)}" for module in modules)
    # -I: modules may bring a Python, whose PYTHONHOME and PYTHONPATH are not for ours.
    describe = f"{shlex.quote(sys.executable)} -I -m iowatch.stacks.system {shlex.quote(system)}"
    empty = Stack(name, system, "modules", "broken", (), modules=modules, settings=settings)
    try:
        # A login shell: that is where sites define the function `module`.
        done = subprocess.run(
            ["bash", "-lc", f"{loading} && exec {describe}"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
        document = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return replace(empty, note=f"its modules do not load: {error}")
    if document is None:
        reason = (done.stderr.strip().splitlines() or ["no MPI after loading them"])[-1]
        return replace(empty, note=f"its modules do not load: {reason}")
    found = from_json(document, str(path))
    return replace(found, name=name, kind="modules", modules=modules, settings={**found.settings, **settings})
