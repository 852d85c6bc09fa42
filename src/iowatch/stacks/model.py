"""Records of a stack: the pinned libraries that a ReFrame environment stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from iowatch.errors import InputError

FORMAT = 1

Kind = Literal["system", "modules", "spack"]
Status = Literal["installed", "locked", "declared", "broken"]


@dataclass(frozen=True)
class Part:
    """One library or program of a stack.

    Attributes:
        name: Spack's name of the package (`openmpi`, `hdf5`, `netcdf-c`, `parallel-netcdf`, `ior`…).
        version: as the part itself or the lock file states it.
        variants: Spack variants, or what the part says of its configuration.
        hash: Spack's hash, or None for a part that Spack did not build.
        prefix: where it is installed, or None for a stack that is only a lock file.
        compiler, target: as known.
        files: what must exist for the part to work; checked on activation.
    """

    name: str
    version: str
    variants: Mapping[str, str] = field(default_factory=dict)
    hash: str | None = None
    prefix: str | None = None
    compiler: str | None = None
    target: str | None = None
    files: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "variants": dict(self.variants), "files": list(self.files)}


@dataclass(frozen=True)
class Stack:
    """A named set of parts and what a job has to set to use them.

    Attributes:
        name: name of the ReFrame environment.
        system: the system that it belongs to.
        kind: `system` (packages of the operating system), `modules` (environment modules) or `spack`.
        status: `installed` (ready), `locked` (a lock file only), `declared` (not even that), `broken`.
        parts: every library and program, sorted by name.
        features: what checks can ask for: `openmpi`, `mpich`, `hdf5`, `netcdf4`, `pnetcdf`, `ior`, `mdtest`,
            `h5bench`, `darshan`.
        settings: environment variables to set.
        paths: environment variables to prepend directories to.
        modules: environment modules to load first.
        tools: names that jobs use (`mpicc`) to programs (`/usr/bin/mpicc.openmpi`), where the two differ.
        note: why it is not `installed`, or what else is worth knowing.
    """

    name: str
    system: str
    kind: Kind
    status: Status
    parts: tuple[Part, ...]
    features: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None

    def part(self, name: str) -> Part | None:
        """The part of that name, or None."""
        return next((part for part in self.parts if part.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """The document of `stack.json`; `from_json` reads it back."""
        plain = {
            **vars(self),
            "parts": [part.to_json() for part in self.parts],
            "features": list(self.features),
            "settings": dict(self.settings),
            "paths": {name: list(directories) for name, directories in self.paths.items()},
            "modules": list(self.modules),
            "tools": dict(self.tools),
        }
        return {"format": FORMAT, **plain}


def from_json(document: Mapping[str, Any], where: str) -> Stack:
    """A stack of its `stack.json`.

    Args:
        document: the parsed file.
        where: its path, for messages.

    Raises:
        InputError: another format, or a field that is missing or unknown.
    """
    found = document.get("format")
    if found != FORMAT:
        raise InputError(
            f"{where}: field 'format' is {found!r}, expected {FORMAT}", hint="Install the stack again."
        )
    fields = {name: value for name, value in document.items() if name != "format"}
    try:
        parts = tuple(Part(**{**p, "files": tuple(p.get("files", ()))}) for p in fields.pop("parts"))
        for name in ("features", "modules"):
            fields[name] = tuple(fields.get(name, ()))
        fields["paths"] = {name: tuple(listing) for name, listing in fields.get("paths", {}).items()}
        return Stack(parts=parts, **fields)
    except (KeyError, TypeError) as error:
        raise InputError(f"{where}: not a stack: {error}", hint="Install the stack again.") from error
