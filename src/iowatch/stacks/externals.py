"""Whether what Spack takes from the machine (compiler, MPI, tools) is what a lock or a list of externals names.

Spack believes what `externals:` say: on a machine with another GCC at the same place it would build with that
one and record the other, in every hash and in every stack.json.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from iowatch.stacks import lock, probe
from iowatch.stacks.system import flavours

# Tools that only build: a program of theirs, and the arguments that make it tell its version.
_BUILD_TOOLS = {
    "autoconf": ("autoconf", "--version"),
    "automake": ("automake", "--version"),
    "cmake": ("cmake", "--version"),
    "gmake": ("make", "--version"),
    "libtool": ("libtoolize", "--version"),
    "m4": ("m4", "--version"),
    "perl": ("perl", "-e", "print $^V"),
    "pkgconf": ("pkgconf", "--version"),
}
_PROGRAMS = {**_BUILD_TOOLS, "slurm": ("sinfo", "--version"), "lustre": ("lfs", "--version")}
# Spack has versions of its own for it: 23-11-7-1 is what Slurm calls 23.11.7.
_OTHER_VERSIONS = ("slurm",)
_LIBRARIES: Mapping[str, Callable[[probe.Flavour], Any]] = {
    "hdf5": probe.hdf5,
    "netcdf-c": probe.netcdf,
    "parallel-netcdf": probe.pnetcdf,
}
_COMPILERS = {"gcc": "-dumpfullversion", "llvm": "-dumpversion"}
_MPIS = ("openmpi", "mpich")
ABSENT = ""


@dataclass(frozen=True)
class External:
    """Something of the machine's own that Spack uses.

    Attributes:
        compiler: path of the C compiler, where it is one.
    """

    name: str
    version: str
    prefix: str
    compiler: str | None = None

    @property
    def builds_only(self) -> bool:
        """Whether it leaves no trace in what runs."""
        return self.name in _BUILD_TOOLS

    def here(self) -> str | None:
        """Its version on this machine; `ABSENT`, or None where that cannot be asked."""
        if self.name in _COMPILERS:
            return _version(probe.ask(self.compiler, _COMPILERS[self.name])) if self.compiler else None
        if self.name in _MPIS:
            return _mpi(self.name, Path(self.prefix))
        if self.name == "glibc":
            return platform.libc_ver()[1] or None
        if self.name in _LIBRARIES:
            return _library(self.name)
        if self.name in _PROGRAMS:
            program, *arguments = _PROGRAMS[self.name]
            answer = probe.ask(str(Path(self.prefix) / "bin" / program), *arguments)
            return None if answer and self.name in _OTHER_VERSIONS else _version(answer)
        return None

    @property
    def is_true(self) -> bool:
        """Whether the machine has it in this version, as far as it can be asked."""
        found = self.here()
        return found is None or found == self.version or found.startswith(f"{self.version}.")

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.compiler or self.prefix})"


def _version(answer: str) -> str:
    """The first version in what a program prints."""
    match = re.search(r"\d+(?:\.\d+)+", answer)
    return match.group() if match else ABSENT


def _mpi(name: str, prefix: Path) -> str:
    for program in (prefix / "bin" / f"mpirun.{name}", prefix / "bin" / "mpirun"):
        known = probe.identify_mpi(str(program)) if program.exists() else None
        if known and known[0] == name:
            return known[1]
    return ABSENT


@cache
def _library(name: str) -> str:
    found = (_LIBRARIES[name](flavour) for flavour in flavours())
    return next((part.version for part in found if part), ABSENT)


def of_lock(path: Path) -> list[External]:
    """What a `spack.lock` takes from the machine that it was made for.

    Raises:
        InputError: not a lock file.
    """
    found = []
    for node in lock.read_lock(path)["concrete_specs"].values():
        external = node.get("external") or {}
        if external.get("path"):
            compilers = (external.get("extra_attributes") or {}).get("compilers") or {}
            found.append(External(node["name"], str(node["version"]), external["path"], compilers.get("c")))
    return found


def _of_entry(entry: Mapping[str, Any]) -> External | None:
    """One entry of `externals:`; None where it is not of the usual form."""
    name, version = lock.pinned(str(entry.get("spec", "")))
    if version is None or not entry.get("prefix"):
        return None
    compilers = (entry.get("extra_attributes") or {}).get("compilers") or {}
    return External(name, version, str(entry["prefix"]), compilers.get("c"))


@dataclass(frozen=True)
class Corrected:
    """A list of externals as they are on this machine.

    Attributes:
        document: the list: another version stands in the place of the named one; what is not here is left out.
        told: in words, what is not as the list says.
        refused: the same of what is not here and must not be built.
        only: packages that must not be built, with the version that is here.
    """

    document: dict[str, Any]
    told: list[str]
    refused: list[str]
    only: dict[str, str]


def corrected(document: Mapping[str, Any]) -> Corrected:
    """What of a list of externals (a mapping with `packages:`) is true here."""
    result = Corrected(deepcopy(dict(document)), [], [], {})
    for package in (result.document.get("packages") or {}).values():
        if isinstance(package, dict) and package.get("externals"):
            _correct(package, result)
    return result


def _correct(package: dict[str, Any], result: Corrected) -> None:
    kept = []
    for entry in package["externals"]:
        named = _of_entry(entry)
        found = named.here() if named else None
        if named is None or found is None or named.is_true:
            kept.append(entry)
        elif found != ABSENT:
            result.told.append(f"{named.name} is {found} here, not {named.version}")
            if not package.get("buildable", True):
                result.only[named.name] = found
            kept.append({**entry, "spec": str(entry["spec"]).replace(f"@{named.version}", f"@{found}", 1)})
        elif package.get("buildable", True) or named.builds_only:
            result.told.append(f"no {named} here: Spack builds it")
        else:
            result.refused.append(f"no {named} here, and it is not to be built")
    package["externals"] = kept
    if not kept:
        del package["externals"]
        package.pop("buildable", None)
