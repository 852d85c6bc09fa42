"""The stacks of a system: Spack stacks, stacks of environment modules (`modules.yaml`), and of the operating system."""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from iowatch.core import InputError, UsageError, parse_json, settings, suggest_name
from iowatch.core.yamlfile import CheckedModel, read_model
from iowatch.site import machine
from iowatch.site.stack import probe as stack_probe
from iowatch.site.stack.distributions import lock_file
from iowatch.site.stack.records import (
    Stack,
    StackKind,
    load_module_commands,
    prepend_commands,
    read_lock_parts,
    stack_directory,
    stack_from_json,
)
from iowatch.site.system import load_system

_LOG = logging.getLogger(__name__)
MODULES_FILE = "modules.yaml"
TIMEOUT_S = 240.0


def _require_text(value: object) -> object:
    # YAML reads `true` and `1.10` as a boolean and as the number 1.1, which are not valid names of modules or values.
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("expected a text; write it in quotes")
    return str(value)


_Text = Annotated[str, BeforeValidator(_require_text)]
_Variable = Annotated[_Text, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class ModulesFile(CheckedModel):
    """A `modules.yaml`: environment modules to load, environment variables to set, or only one of both."""

    docs = "docs/stacks.md#three-kinds"
    modules: list[_Text] = Field(default_factory=list)
    settings: dict[_Variable, _Text] | None = None

    @model_validator(mode="after")
    def _require_content(self) -> Self:
        if not self.modules and not self.settings:
            raise ValueError("neither 'modules' nor 'settings': it would be the system's own stack")
        return self


def load_module_stack(system: str, path: Path, programs: tuple[str, ...] = ()) -> Stack:
    """Return a stack of modules, described by its tools in a shell like that of a job, with the modules loaded.

    Args:
        programs: directories that are searched before the modules' PATH, here and in jobs.

    Raises:
        InputError: the file is damaged.
    """
    file = read_model(path, ModulesFile)
    paths = {"PATH": programs} if programs else {}
    return describe_loaded_stack(system, path.parent.name, tuple(file.modules), file.settings or {}, paths)


def describe_loaded_stack(
    system: str, name: str, modules: tuple[str, ...], settings: Mapping[str, str], paths: Mapping[str, tuple[str, ...]]
) -> Stack:
    """Return a stack, described by its tools in a shell like that of a job; broken, with the reason, if it has no MPI.

    Args:
        modules: loaded first.
        paths: environment variables to which directories are prepended then.
    """
    # -I: modules may include a Python, whose PYTHONHOME and PYTHONPATH would break this interpreter.
    program = "from iowatch.site.stack.probe import print_loaded_stack; print_loaded_stack()"
    describe = shlex.join([sys.executable, "-I", "-c", program, system])
    empty = Stack(name, system, "modules", "broken", (), modules=modules, settings=settings, paths=paths)
    try:
        # Not a login shell: what only works there fails in every job.
        script = "\n".join([*load_module_commands(modules), *prepend_commands(paths), f"exec {describe}"])
        done = machine.run_program("bash", "-c", script, timeout_s=TIMEOUT_S)
        document = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return replace(empty, note=f"its modules do not load: {error}")
    if document is None:
        reason = (done.stderr.strip().splitlines() or ["no MPI after loading them"])[-1]
        return replace(empty, note=f"its modules do not load: {reason}")
    described = stack_from_json(document, f"the stack '{name}'")
    # The messages of that shell are not shown.
    for remark in dict.fromkeys(described.unanswered.values()):
        _LOG.warning("stack %s: %s", name, remark)
    return replace(
        described,
        name=name,
        kind="modules",
        modules=modules,
        settings={**described.settings, **settings},
        paths=dict(paths),
    )


# The environment at the top of the checkout.
REFERENCE_STACK = "reference"
# The one on the operating system's libraries, for a system that has it (docs/stacks.md, "The quick stack").
QUICK_STACK = "quick"


def read_stack_json(path: Path) -> Stack:
    """Return the stack described by a `stack.json`.

    Raises:
        InputError: unreadable, not JSON, or of another format.
    """
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable as stack.json: {error}", hint="Reinstall the stack.") from error
    return stack_from_json(document, str(path))


def _mark_if_broken(stack: Stack) -> Stack:
    """Return the stack, marked broken if a file of one of its parts is missing."""
    missing: list[str] = []
    for part in stack.parts:
        missing += [path for path in part.files if not Path(path).exists()]
    if not missing:
        return stack
    return replace(stack, status="broken", note=f"missing: {', '.join(missing)}")


def _stack_folders(system: str) -> dict[str, Path]:
    """Folders of a system's stacks by name: those of the product, of all systems of the site, and of its own."""
    folders = {REFERENCE_STACK: settings.product_root()}
    for (name,), path in settings.list_files("shared_stack").items():
        folders[name] = path
    for (owner, name), path in settings.list_files("stack").items():
        if owner == system and path.is_dir():
            folders[name] = path
    return folders


def manifest_directory(system: str, name: str) -> Path:
    """Return the directory of a stack's `spack.yaml` or `modules.yaml`, which need not exist."""
    return _stack_folders(system).get(name) or settings.site_file("stack", system, name)


def stack_from_lock(path: Path, name: str, system: str) -> Stack:
    """Return a stack that is only a lock file.

    Raises:
        InputError: not a lock file.
    """
    parts = read_lock_parts(path)
    note = f"not installed; iowatch stack install {name} --system {system}"
    return Stack(name, system, "spack", "locked", parts, features=stack_probe.features_of_parts(parts), note=note)


def _spack_stack(system: str, name: str) -> Stack:
    description = stack_directory(system, name) / "stack.json"
    if description.is_file():
        installed = read_stack_json(description)
        if installed.kind == "spack":
            return _mark_if_broken(installed)
    lock = lock_file(manifest_directory(system, name))
    if lock.is_file():
        return stack_from_lock(lock, name, system)
    note = f"not resolved; iowatch stack install {name} --system {system} --concretize"
    return Stack(name, system, "spack", "declared", (), note=note)


def _folder_stack(system: str, name: str, folder: Path) -> Stack:
    """Return the stack of a folder; broken, with the reason, if its files do not describe one."""
    manifests = [file for file in (MODULES_FILE, "spack.yaml") if (folder / file).is_file()]
    try:
        if manifests == ["spack.yaml"] or name == REFERENCE_STACK:
            return _spack_stack(system, name)
        if manifests == [MODULES_FILE]:
            return _mark_if_broken(load_module_stack(system, folder / MODULES_FILE, load_system(system).programs))
        raise InputError(
            f"{folder}: expected {MODULES_FILE} or spack.yaml, found {' and '.join(manifests) or 'neither'}",
            hint="docs/stacks.md shows both.",
        )
    except InputError as error:
        stack_kind: StackKind = "modules" if MODULES_FILE in manifests else "spack"
        return Stack(name, system, stack_kind, "broken", (), note=" ".join(str(error).split()))


def discover_stacks(system: str) -> list[Stack]:
    """Return all stacks of a system: usable ones first, of these the one with most features first.

    Stacks of the operating system are included if `system.yaml` sets `system_stacks: true`. A stack with a damaged
    file is broken; it does not affect the others.

    Args:
        system: a name of `iowatch.site.system.system_names()`.

    Raises:
        UsageError: unknown system.
        InputError: its system.yaml is damaged.
    """
    facts = load_system(system)
    stacks: list[Stack] = []
    if facts.system_stacks:
        stacks += stack_probe.system_stacks(system, facts.programs)
    if facts.retired is None:
        stacks += [_folder_stack(system, name, folder) for name, folder in _stack_folders(system).items()]
    return sorted(stacks, key=lambda stack: (stack.status != "installed", -len(stack.features), stack.name))


def load_stack(name: str, system: str = "local") -> Stack:
    """Return one stack of a system; only stacks of the operating system are searched on the machine.

    Args:
        name: name of a stack, or path of a `spack.lock` or `stack.json`.

    Raises:
        UsageError: unknown system or stack.
        InputError: a file of the stack is damaged.
    """
    path = Path(name)
    if path.suffix == ".lock":
        return replace(stack_from_lock(path, name, system), note="lock file only; stacks are installed per system")
    if path.suffix == ".json":
        return read_stack_json(path)
    if (manifest_directory(system, name) / "spack.yaml").is_file():
        return _spack_stack(system, name)
    stacks = discover_stacks(system)
    for stack in stacks:
        if stack.name == name:
            return stack
    hint = suggest_name(name, [stack.name for stack in stacks])
    raise UsageError(f"no stack '{name}' for system '{system}'", hint=hint)
