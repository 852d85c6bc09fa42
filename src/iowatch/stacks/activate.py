"""What a job needs of a stack: `activate.sh` (plain environment settings) and `stack.json`, side by side.

Neither Spack nor Python runs in a job: the script tests that the files of the parts are there, and exports.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

from iowatch import paths
from iowatch.files import write_whole
from iowatch.stacks.model import Stack

# Jobs run in shells that are not login shells, but that is where sites define `module`.
_MODULES = """\
if ! command -v module >/dev/null 2>&1; then
  for _iowatch_file in "${LMOD_PKG:-}/init/sh" "${MODULESHOME:-}/init/sh" /etc/profile.d/modules.sh \\
    /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /usr/share/modules/init/sh \\
    /usr/share/lmod/lmod/init/sh; do
    if [ -r "$_iowatch_file" ]; then . "$_iowatch_file"; break; fi
  done
  unset _iowatch_file
  if ! command -v module >/dev/null 2>&1; then
    echo "iowatch: this stack is made of modules, and this shell has no command 'module': set MODULESHOME" >&2
    exit 1
  fi
fi
"""
_CHECK = """\
_iowatch_missing=
for _iowatch_file in {files}; do
  [ -e "$_iowatch_file" ] || _iowatch_missing="$_iowatch_missing $_iowatch_file"
done
if [ -n "$_iowatch_missing" ]; then
  echo {message}"$_iowatch_missing" >&2
  echo {hint} >&2
  # A job ends here; a person's shell stays open.
  case $- in *i*) return 1 ;; *) exit 1 ;; esac
fi
unset _iowatch_missing _iowatch_file
"""


def home(system: str, name: str) -> Path:
    """Where a stack's generated files live: `var/stacks/<system>/<stack>`."""
    return paths.var() / "stacks" / system / name


def _remedy(stack: Stack) -> str:
    if stack.kind == "spack":
        return f"  Install it again: iowatch stack install {stack.name} --system {stack.system}"
    return "  Install what is missing (iowatch doctor tells what), or load the stack's modules."


def script(stack: Stack, bin_directory: Path | None) -> str:
    """Text of `activate.sh`, to be sourced by sh or bash.

    Args:
        stack: an installed stack.
        bin_directory: directory of the tools that go by other names, or None.
    """
    needed = sorted({path for part in stack.parts for path in part.files})
    lines = [f"# Stack {stack.name} of {stack.system}; written by iowatch, to be sourced."]
    lines += [_MODULES.rstrip()] if stack.modules else []
    lines += [f"module load {shlex.quote(module)} || exit 1" for module in stack.modules]
    if needed:
        message = f"iowatch: stack '{stack.name}' is broken; missing:"
        text = _CHECK.format(
            files=" ".join(map(shlex.quote, needed)),
            message=shlex.quote(message),
            hint=shlex.quote(_remedy(stack)),
        )
        lines += [text.rstrip()]
    prepended = {name: list(directories) for name, directories in stack.paths.items()}
    if bin_directory:
        prepended["PATH"] = [str(bin_directory), *prepended.get("PATH", [])]
    for name, directories in sorted(prepended.items()):
        lines.append(f'export {name}={shlex.quote(":".join(directories))}"${{{name}:+:${name}}}"')
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(stack.settings.items())]
    lines.append(f"export IOWATCH_STACK={shlex.quote(stack.name)}")
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file at once, and only where it differs: other jobs may be reading it.

    Whatever the umask, the files of a stack are for everybody who runs it.
    """
    if path.is_symlink() or not path.is_file() or path.read_bytes() != text.encode():
        write_whole(path, text, mode)


def _link(path: Path, target: str) -> None:
    """The same for a link."""
    if path.is_symlink() and path.readlink() == Path(target):
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(path)


def _link_tools(stack: Stack, directory: Path) -> None:
    """Give tools the names that jobs use.

    Open MPI's wrappers find their settings by the name that they are called by, so they are linked; MPICH's
    launcher looks for its proxy beside itself, so the others are started by their own path.
    """
    directory.mkdir(parents=True, exist_ok=True)
    linked = any(part.name == "openmpi" for part in stack.parts)
    for name, target in stack.tools.items():
        if linked:
            _link(directory / name, target)
        else:
            _write(directory / name, f'#!/bin/sh\nexec {shlex.quote(target)} "$@"\n', 0o755)


def materialise(stack: Stack) -> Path:
    """Write `activate.sh`, `stack.json` and the tools' other names of an installed stack.

    Returns:
        The directory that holds them.
    """
    directory = home(stack.system, stack.name)
    bin_directory = directory / "bin" if stack.tools else None
    if bin_directory:
        _link_tools(stack, bin_directory)
    _write(directory / "activate.sh", script(stack, bin_directory))
    _write(directory / "stack.json", json.dumps(stack.to_json(), indent=2, sort_keys=True) + "\n")
    return directory
