"""Reads `spack.yaml` and `spack.lock` without Spack: what a stack asks for, and what that was resolved to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iowatch.errors import InputError
from iowatch.stacks.model import Part

LOCKFILE_VERSIONS = (5, 6)
_VERSION = re.compile(r"^(?P<name>[a-z0-9][a-z0-9_-]*)(?:@=?(?P<version>[\w.-]+))?")
_LANGUAGES = {"c", "cxx", "fortran"}
# Flags are lists that are mostly empty, and the build system says nothing about what runs.
_UNINTERESTING = {"build_system", "cflags", "cppflags", "cxxflags", "fflags", "ldflags", "ldlibs"}


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping.

    Raises:
        InputError: not readable, not YAML, or not a mapping.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        document = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable: {error}") from error
    except YAMLError as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise InputError(f"{path}: expected a mapping, found {type(document).__name__}")
    return document


def root_specs(path: Path) -> tuple[str, ...]:
    """The specs that a `spack.yaml` asks for, in its order.

    Raises:
        InputError: not a Spack environment.
    """
    document = read_yaml(path)
    try:
        specs = document["spack"]["specs"]
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: no 'spack: specs:'") from error
    return tuple(str(spec) for spec in specs)


def pinned(spec: str) -> tuple[str, str | None]:
    """(package, version) of a spec such as `hdf5@1.14.6 +hl`; None where no version is given.

    Raises:
        InputError: not a spec.
    """
    match = _VERSION.match(spec)
    if match is None:
        raise InputError(f"'{spec}' is not a spec of Spack")
    return match["name"], match["version"]


def read_lock(path: Path) -> dict[str, Any]:
    """The document of a `spack.lock`.

    Raises:
        InputError: not readable, not JSON, or of a format that is not known.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document["_meta"]["lockfile-version"]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable as a lock file of Spack: {error}") from error
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: not a lock file of Spack: no _meta: lockfile-version") from error
    if version not in LOCKFILE_VERSIONS:
        known = ", ".join(map(str, LOCKFILE_VERSIONS))
        hint = "Write it again with the pinned Spack."
        raise InputError(f"{path}: lock file version {version}, expected one of {known}", hint=hint)
    return dict(document)


def _variant(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _compiler(node: Mapping[str, Any], nodes: Mapping[str, Any]) -> str | None:
    """`gcc@12.2.0` of the dependency that is this node's compiler."""
    for dependency in node.get("dependencies", ()):
        if _LANGUAGES & set(dependency["parameters"].get("virtuals", ())):
            found = nodes[dependency["hash"]]
            return f"{found['name']}@{found['version']}"
    return None


def _target(node: Mapping[str, Any]) -> str:
    target = node["arch"]["target"]
    return str(target["name"] if isinstance(target, dict) else target)


def _part(node: Mapping[str, Any], nodes: Mapping[str, Any], prefixes: Mapping[str, str]) -> Part:
    variants = {k: _variant(v) for k, v in node["parameters"].items() if k not in _UNINTERESTING}
    external = node.get("external") or {}
    return Part(
        name=node["name"],
        version=str(node["version"]),
        variants=dict(sorted(variants.items())),
        hash=node["hash"],
        prefix=prefixes.get(node["hash"]) or external.get("path"),
        compiler=_compiler(node, nodes),
        target=_target(node),
    )


def _running(document: Mapping[str, Any]) -> set[str]:
    """Hashes of what runs: the roots, what they link or run, and their compilers; build tools are left out."""
    nodes = document["concrete_specs"]
    waiting = [root["hash"] for root in document["roots"]]
    found: set[str] = set()
    while waiting:
        key = waiting.pop()
        if key in found:
            continue
        found.add(key)
        for dependency in nodes[key].get("dependencies", ()):
            parameters = dependency["parameters"]
            runs = {"link", "run"} & set(parameters["deptypes"])
            if runs or _LANGUAGES & set(parameters.get("virtuals", ())):
                waiting.append(dependency["hash"])
    return found


def parts(path: Path, prefixes: Mapping[str, str] | None = None) -> tuple[Part, ...]:
    """Every part of a stack that runs, of its `spack.lock`, sorted by name.

    Args:
        path: the lock file.
        prefixes: hash to directory, of an installed stack.

    Raises:
        InputError: not a lock file, or a damaged one.
    """
    document = read_lock(path)
    try:
        nodes = document["concrete_specs"]
        found = [_part(nodes[key], nodes, prefixes or {}) for key in _running(document)]
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged lock file: {error!r}", hint="Write it again with Spack.") from error
    return tuple(sorted(found, key=lambda part: (part.name, part.hash or "")))


def matches(manifest: Path, lock: Path) -> bool:
    """Whether a lock file was made from this `spack.yaml`: same roots.

    Raises:
        InputError: one of them is damaged.
    """
    try:
        roots = sorted(str(root["spec"]) for root in read_lock(lock)["roots"])
    except (KeyError, TypeError) as error:
        raise InputError(f"{lock}: damaged lock file: {error!r}", hint="Write it again with Spack.") from error
    return roots == sorted(_normal(spec) for spec in root_specs(manifest))


def _normal(spec: str) -> str:
    """A spec as Spack prints it back: no blanks before variants."""
    return re.sub(r"\s+(?=[+~])", "", spec)
