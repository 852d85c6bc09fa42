"""The packages of two installed Spack stacks, in what they differ, and the environment of a hybrid (docs/bisect.md).

Spack keeps the concrete spec of every installed package, with all its dependencies, in `.spack/spec.json` of its
directory, so neither Spack nor the lock file is needed to compare stacks, also not for a stack that a run recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch.core import InputError, UsageError, parse_json
from iowatch.site.stack.records import Stack

Node = Mapping[str, Any]
# Spack adds them to whatever a compiler builds: they follow from the compiler and the C library.
_INJECTED = {"gcc-runtime", "intel-oneapi-runtime", "glibc", "musl", "compiler-wrapper"}
# Parameters that are no choices: patches follow from the version.
_NO_CHOICE = {"patches", "dev_path"}


@dataclass(frozen=True)
class SpackGraph:
    """The concrete packages of a stack.

    Attributes:
        nodes: runtime packages by name, as in Spack's lock files.
        build_tools: external packages that were used to build them.
        roots: runtime packages on which no other one depends.
        providers: virtual package (`mpi`, `zlib-api`, `c`) -> the package that provides it to all others.
    """

    nodes: Mapping[str, Node]
    build_tools: tuple[Node, ...]
    roots: tuple[str, ...]
    providers: Mapping[str, str]


@dataclass(frozen=True)
class PackageChange:
    """A package that differs, or two packages that provide the same to others; the packages are None if absent."""

    name: str
    good: str | None
    bad: str | None
    virtuals: tuple[str, ...] = ()


def read_graph(stack: Stack) -> SpackGraph:
    """Return the packages of an installed Spack stack.

    Raises:
        InputError: the record of an installed package is missing or damaged.
        UsageError: as `graph_of_specs`.
    """
    known = {node["hash"]: node for part in stack.parts for node in _installed_specs(part.prefix)}
    return graph_of_specs(known, {part.hash for part in stack.parts if part.hash} & known.keys(), stack.name)


def graph_of_specs(known: Mapping[str, Node], hashes: Collection[str], name: str) -> SpackGraph:
    """Return the packages of a stack from concrete specs.

    Args:
        known: specs by hash, with those that were only used to build.
        hashes: of the runtime packages.
        name: of the stack, for messages.

    Raises:
        UsageError: the stack has a package twice, or one from a source directory.
    """
    nodes = {known[key]["name"]: known[key] for key in hashes}
    twice = len(nodes) < len(hashes)
    sources = [name for name, node in nodes.items() if node["parameters"].get("dev_path")]
    if twice or sources:
        why = f"builds {', '.join(sources)} from a source directory" if sources else "contains a package twice"
        raise UsageError(
            f"stack '{name}' {why}: hybrids cannot be resolved from it",
            hint="`iowatch bisect --package NAME --git DIR GOOD..BAD` bisects commits." if sources else None,
        )
    edges = [
        (edge, known[edge["hash"]]["name"]) for key in hashes for edge in _edges(known[key]) if edge["hash"] in hashes
    ]
    used = {name for edge, name in edges if {"link", "run"} & set(edge["parameters"]["deptypes"])}
    compilers = {name for edge, name in edges if edge["parameters"].get("virtuals")}
    tools = [node for key, node in known.items() if key not in hashes and node.get("external")]
    return SpackGraph(nodes, tuple(tools), tuple(sorted({*nodes} - used - compilers)), _providers(edges))


def _installed_specs(prefix: str | None) -> list[Node]:
    path = Path(prefix or "/", ".spack", "spec.json")
    if not path.parent.is_dir():  # a package of the machine: those that use it describe it
        return []
    try:
        return list(parse_json(path.read_text(encoding="utf-8"))["spec"]["nodes"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not readable as a spec of Spack: {error}", hint="Install the stack again."
        ) from error


def _edges(node: Node) -> Sequence[Node]:
    found: Sequence[Node] = node.get("dependencies", ())
    return found


def _providers(edges: Iterable[tuple[Node, str]]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for edge, name in edges:
        for virtual in edge["parameters"].get("virtuals", ()):
            found.setdefault(virtual, set()).add(name)
    return {
        virtual: next(iter(names))
        for virtual, names in sorted(found.items())
        if len(names) == 1 and not names & _INJECTED
    }


def package_changes(good: SpackGraph, bad: SpackGraph) -> tuple[PackageChange, ...]:
    """Return what differs, without what follows from it.

    A package that is only rebuilt on another dependency is no change, nor is a dependency that only one side needs.
    """
    swaps: dict[tuple[str, str], list[str]] = {}
    for virtual in sorted(good.providers.keys() & bad.providers.keys()):
        pair = good.providers[virtual], bad.providers[virtual]
        if pair[0] != pair[1]:
            swaps.setdefault(pair, []).append(virtual)
    swapped = {name for pair in swaps for name in pair}
    changes = [PackageChange(", ".join(virtuals), *pair, tuple(virtuals)) for pair, virtuals in swaps.items()]
    for name in sorted({*good.nodes, *bad.nodes} - _INJECTED - swapped):
        old, new = good.nodes.get(name), bad.nodes.get(name)
        is_root = name in (good.roots if new is None else bad.roots)
        if (old and new and _identity(old) != _identity(new)) or ((old is None or new is None) and is_root):
            changes.append(PackageChange(name, name if old else None, name if new else None))
    return tuple(changes)


def describe_change(change: PackageChange, good: SpackGraph, bad: SpackGraph) -> tuple[str | None, str | None]:
    """Return both sides in words: version, and the variants that differ; the name where that differs, too."""
    nodes = good.nodes[change.good] if change.good else None, bad.nodes[change.bad] if change.bad else None
    return _describe_side(nodes[0], nodes[1], change.virtuals), _describe_side(nodes[1], nodes[0], change.virtuals)


def _describe_side(node: Node | None, other: Node | None, virtuals: Sequence[str]) -> str | None:
    if node is None:
        return None
    if virtuals:
        return f"{node['name']} {node['version']}"
    known = set() if other is None else {*_words(other)}
    words = [word for word in _words(node) if other is not None and word not in known]
    is_moved = other is not None and bool(node.get("external")) != bool(other.get("external"))
    place = ["of the machine" if node.get("external") else "built"] if is_moved else []
    return " ".join([str(node["version"]), *place, *words])


def hybrid_environment(
    good: SpackGraph, bad: SpackGraph, chosen: Sequence[PackageChange], includes: Sequence[str]
) -> dict[str, Any]:
    """Return the `spack.yaml` of GOOD with some changes of BAD: every version and variant is required, none resolved.

    Spack's requirements hold for a package wherever it is needed, so that packages which nothing needs any more are
    left out, and those that only a chosen change needs are taken from BAD. Installed packages are used where they fit.

    Args:
        includes: files with the package repositories; their settings of packages are not used.
    """
    left, taken = {one.good for one in chosen} - {None}, {one.bad for one in chosen} - {None}
    nodes = {**bad.nodes, **good.nodes, **{name: bad.nodes[name] for name in taken if name}}
    virtuals = [virtual for one in chosen for virtual in one.virtuals]
    providers = {**bad.providers, **good.providers, **{virtual: bad.providers[virtual] for virtual in virtuals}}
    roots = ({*good.roots} - left) | ({*good.roots, *bad.roots} & taken)
    packages: dict[str, Any] = {virtual: {"require": [name]} for virtual, name in providers.items()}
    packages["all"] = {"target": sorted({_target(node) for node in nodes.values()})}
    for name, node in nodes.items():
        if name not in _INJECTED:
            external = {"externals": [_external(node)], "buildable": False} if node.get("external") else {}
            require = f"@={node['version']}" if external else " ".join([f"@={node['version']}", *_words(node)])
            packages[name] = {"require": [require], **external}
    for tool in (*good.build_tools, *bad.build_tools):
        if tool["name"] not in {*nodes, *_INJECTED}:
            known = packages.setdefault(tool["name"], {"externals": [], "buildable": False})
            known["externals"] += [entry for entry in [_external(tool)] if entry not in known["externals"]]
    return {
        "spack": {
            "include": list(includes),
            "specs": sorted(roots),
            # `::` leaves out what the included files and the account require of packages.
            "packages:": packages,
            "concretizer": {"reuse": True, "unify": True},
            "view": True,
        }
    }


def _identity(node: Node) -> tuple[str, ...]:
    place = (node.get("external") or {}).get("path", "")
    return (str(node["version"]), place, *_words(node))


def _target(node: Node) -> str:
    target = node["arch"]["target"]
    return str(target["name"] if isinstance(target, Mapping) else target)


def _words(node: Node) -> Iterator[str]:
    """Variants, flags and target in Spack's syntax."""
    for name, value in sorted(node["parameters"].items()):
        if name in _NO_CHOICE or value == []:
            continue
        if isinstance(value, bool):
            yield f"{'+' if value else '~'}{name}"
        elif name.endswith("flags") or name == "ldlibs":
            yield f'{name}="{" ".join(value)}"'
        else:
            yield f"{name}:={','.join(map(str, value))}" if isinstance(value, list) else f"{name}={value}"
    yield f"target={_target(node)}"


def _external(node: Node) -> dict[str, Any]:
    """An entry of `externals:`."""
    found = node["external"]
    words = [word for word in _words(node) if not word.startswith(("target=", "build_system="))]
    entry = {"spec": " ".join([f"{node['name']}@={node['version']}", *words]), "prefix": found["path"]}
    modules, attributes = found.get("module"), found.get("extra_attributes")
    return {
        **entry,
        **({"modules": modules} if modules else {}),
        **({"extra_attributes": attributes} if attributes else {}),
    }
