"""`iowatch stack install`: builds a stack from its committed lock and writes what jobs need of it.

Spack runs here, once; jobs and compute nodes source `activate.sh` and never see it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from iowatch.errors import MachineError, UsageError
from iowatch.stacks import environment as environments
from iowatch.stacks import lock, tool
from iowatch.stacks.activate import materialise
from iowatch.stacks.discover import REFERENCE, load, source
from iowatch.stacks.environment import Say
from iowatch.stacks.model import Part, Stack
from iowatch.stacks.probe import CRAY, ask
from iowatch.stacks.system import TOOLS, features, mpi_settings

# Built from the checkout: its sources change without its recipe, so it is built again every time.
OWN_PACKAGE = "benchio"
_DONE = re.compile(r"^\[[+e]\] (?:\S+ \(external |\S*/)?(?P<part>[\w.-]+?)(?:-[a-z0-9]{32})?\)?(?: .*)?$")
# Of a file with another checksum Spack prints the beginning, in hundreds of characters.
_WIDEST = 300
# Parts whose programs are measured: the libraries that they load are checked on activation.
_MEASURED = (OWN_PACKAGE, "ior", "h5bench", "darshan-util")


def _spack(bootstrap: bool, say: Say) -> str:
    program = tool.spack_command()
    if program is None and bootstrap:
        say(f"cloning Spack {tool.pinned_version()} into {tool.bootstrap_directory()}")
        program = tool.bootstrap()
    if program is None:
        raise MachineError(
            "no Spack found: SPACK_ROOT is not set and spack is not on PATH",
            hint=f"Add --bootstrap to clone Spack {tool.pinned_version()}, or set SPACK_ROOT.",
        )
    found = (tool.spack_version() or "").partition(" ")[0]
    if found != tool.pinned_version():
        say(f"this is Spack {found}; the locks were made with {tool.pinned_version()}")
    return program


def _lines(command: list[str]) -> Iterator[str]:
    """Lines that a program prints, as they come.

    Raises:
        MachineError: it failed; the last lines are in the message.
    """
    tail: list[str] = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            tail = [*tail[-11:], line.rstrip()[:_WIDEST]]
            yield line.rstrip()
    if process.returncode:
        text = "\n    ".join(line for line in tail if line)
        raise MachineError(f"Spack failed with exit code {process.returncode}:\n    {text}")


def _build(spack: str, environment: Path, stack: str, jobs: int | None, say: Say) -> None:
    """`spack install`, with the number of parts that are ready."""
    total = len(lock.read_lock(environment / "spack.lock")["concrete_specs"])
    base = [spack, "--color", "never", "-e", str(environment), "install"]
    options = ["--only-concrete", "--fail-fast", *(["--jobs", str(jobs)] if jobs else [])]
    stale = any(f"/{OWN_PACKAGE}-" in prefix for prefix in _prefixes(spack, environment).values())
    ready = 0
    for line in _lines([*base, *options]):
        done = _DONE.match(line)
        if done:
            ready += 1
            say(f"{stack}: {ready} of {total} parts: {done['part']}")
        elif line.startswith(("==> Installing", "==> Error")):
            say(f"{stack}: {line.removeprefix('==> ')}")
    if stale:
        say(f"{stack}: building {OWN_PACKAGE} again from this checkout")
        for _ in _lines([*base, *options, "--overwrite", "--yes-to-all", OWN_PACKAGE]):
            pass


def _prefixes(spack: str, environment: Path) -> dict[str, str]:
    """Hash to directory of every installed part."""
    command = [spack, "--color", "never", "-e", str(environment), "find", "--no-groups", "--format"]
    rows = (line.split(maxsplit=1) for line in _lines([*command, "{hash} {prefix}"]))
    return {row[0]: row[1] for row in rows if len(row) == 2 and row[1].startswith("/")}


def _loaded(prefix: Path) -> set[str]:
    """Libraries that the programs of a part load, wherever they are."""
    listings = (ask("ldd", str(program)) for program in (prefix / "bin").glob("*"))
    return {path for listing in listings for path in re.findall(r"=> (/\S+)", listing)}


def _files(part: Part) -> tuple[str, ...]:
    """What has to be there for a part to work: its directory, its libraries, and those that it loads."""
    if part.prefix is None:
        return ()
    prefix = Path(part.prefix)
    # /usr and the like are not this part's own; its tools are checked instead.
    if prefix in (Path("/usr"), Path("/usr/local"), Path("/")):
        return ()
    libraries = {str(path) for folder in ("lib", "lib64") for path in (prefix / folder).glob("lib*.so")}
    libraries |= _loaded(prefix) if part.name in _MEASURED else set()
    return (str(prefix), *sorted(libraries))


def _tools(parts: tuple[Part, ...]) -> dict[str, str]:
    """Names that jobs use to programs, for an MPI that Spack did not build: its tools are in no view."""
    for part in parts:
        if part.name in ("openmpi", "mpich", CRAY) and part.prefix and not Path(part.prefix, ".spack").is_dir():
            found = {name: _external_tool(part, name) for name in TOOLS}
            return {name: path for name, path in found.items() if path}
    return {}


def _external_tool(part: Part, name: str) -> str | None:
    """Debian's variant of a tool where there is one, since the plain name may belong to another MPI."""
    directory = Path(str(part.prefix)) / "bin"
    candidates = (directory / f"{name}.{part.name}", directory / name)
    return next((str(path) for path in candidates if path.exists()), None)


def _describe(stack: str, system: str, environment: Path, prefixes: dict[str, str]) -> Stack:
    parts = lock.parts(environment / "spack.lock", prefixes)
    parts = tuple(replace(part, files=_files(part)) for part in parts)
    view = environment / ".spack-env" / "view"
    mpi = next((part.name for part in parts if part.name in ("openmpi", "mpich")), "")
    return Stack(
        name=stack,
        system=system,
        kind="spack",
        status="installed",
        parts=parts,
        features=features(parts),
        settings=mpi_settings(mpi),
        paths={
            "PATH": (str(view / "bin"),),
            "CMAKE_PREFIX_PATH": (str(view),),
            "PKG_CONFIG_PATH": (str(view / "lib" / "pkgconfig"), str(view / "lib64" / "pkgconfig")),
        },
        tools=_tools(parts),
    )


def install(
    stack: str,
    system: str,
    *,
    bootstrap: bool = False,
    concretize: bool = False,
    jobs: int | None = None,
    say: Say = lambda _: None,
) -> tuple[Stack, Path]:
    """Build a Spack stack and write its `activate.sh` and `stack.json`.

    Args:
        stack, system: which.
        bootstrap: clone the pinned Spack where none is given.
        concretize: resolve the versions on this machine instead of taking the committed lock.
        jobs: parallel compile jobs.
        say: is told how far it is.

    Returns:
        The installed stack and the directory of its files.

    Raises:
        UsageError: no such stack, or not one of Spack.
        InputError: no lock file, or one that does not belong to its spack.yaml.
        MachineError: no Spack, or Spack failed.
    """
    from iowatch.systems import load as load_system

    retired = load_system(system).retired
    if retired:
        raise UsageError(f"nothing can be installed for system '{system}': {retired}")
    known = load(stack, system)
    if known.kind != "spack":
        raise UsageError(f"stack '{stack}' is made of {known.kind} parts: there is nothing to install")
    environment = environments.resolved(stack, system, concretize, say)
    spack = _spack(bootstrap, say)
    if concretize:
        say(f"{stack}: resolving versions; this takes a minute or two")
        for line in _lines([spack, "--color", "never", "-e", str(environment), "concretize", "--force"]):
            if line.startswith("==>"):
                say(f"{stack}: {line.removeprefix('==> ')}")
        if stack != REFERENCE:  # its lock is that of every system
            say(f"{stack}: resolved; to keep it: cp {environment / 'spack.lock'} {source(system, stack)}")
    _build(spack, environment, stack, jobs, say)
    prefixes = _prefixes(spack, environment)
    described = _describe(stack, system, environment, prefixes)
    return described, materialise(described)
