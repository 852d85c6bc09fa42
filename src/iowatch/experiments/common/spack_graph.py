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
    specs: dict[str, Node] = {}
    for package in stack.parts:
        for node in _installed_specs(package.prefix):
            specs[node["hash"]] = node
    # The records also have packages that were only used to build.
    runtime_hashes = {package.hash for package in stack.parts if package.hash and package.hash in specs}
    return graph_of_specs(specs, runtime_hashes, stack.name)


def graph_of_specs(specs: Mapping[str, Node], hashes: Collection[str], name: str) -> SpackGraph:
    """Return the packages of a stack from concrete specs.

    Args:
        specs: by hash, with those that were only used to build.
        hashes: of the runtime packages.
        name: of the stack, for messages.

    Raises:
        UsageError: the stack has a package twice, or one from a source directory.
    """
    nodes = {specs[package_hash]["name"]: specs[package_hash] for package_hash in hashes}
    from_sources = [package for package, node in nodes.items() if node["parameters"].get("dev_path")]
    if from_sources:
        raise UsageError(
            f"stack '{name}' builds {', '.join(from_sources)} from a source directory: hybrids cannot be resolved "
            "from it",
            hint="`iowatch bisect --package NAME --git DIR GOOD..BAD` bisects commits.",
        )
    if len(nodes) < len(hashes):
        raise UsageError(f"stack '{name}' contains a package twice: hybrids cannot be resolved from it")
    # Dependencies between runtime packages, each with the name of the package that is needed.
    edges: list[tuple[Node, str]] = []
    for node in nodes.values():
        for edge in _edges(node):
            if edge["hash"] in hashes:
                edges.append((edge, specs[edge["hash"]]["name"]))
    needed: set[str] = set()
    for edge, package in edges:
        is_at_run_time = bool({"link", "run"} & set(edge["parameters"]["deptypes"]))
        # Compilers are needed by the virtual packages (`c`) that they provide.
        if is_at_run_time or edge["parameters"].get("virtuals"):
            needed.add(package)
    build_tools = [node for key, node in specs.items() if key not in hashes and node.get("external")]
    return SpackGraph(nodes, tuple(build_tools), tuple(sorted(nodes.keys() - needed)), _providers(edges))


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
    edges: Sequence[Node] = node.get("dependencies", ())
    return edges


def _providers(edges: Iterable[tuple[Node, str]]) -> dict[str, str]:
    """Return virtual package -> the package that provides it, where all use the same one."""
    packages: dict[str, set[str]] = {}
    for edge, name in edges:
        for virtual in edge["parameters"].get("virtuals", ()):
            packages.setdefault(virtual, set()).add(name)
    providers = {}
    for virtual, names in sorted(packages.items()):
        if len(names) == 1 and not names & _INJECTED:
            (providers[virtual],) = names
    return providers


def package_changes(good: SpackGraph, bad: SpackGraph) -> tuple[PackageChange, ...]:
    """Return what differs, without what follows from it.

    A package that is only rebuilt on another dependency is no change, nor is a dependency that only one side needs.
    """
    # Packages that replace each other: another MPI, another zlib.
    virtuals_by_swap: dict[tuple[str, str], list[str]] = {}
    for virtual in sorted(good.providers.keys() & bad.providers.keys()):
        swap = good.providers[virtual], bad.providers[virtual]
        if swap[0] != swap[1]:
            virtuals_by_swap.setdefault(swap, []).append(virtual)
    changes: list[PackageChange] = []
    swapped: set[str] = set()
    for swap, virtuals in virtuals_by_swap.items():
        changes.append(PackageChange(", ".join(virtuals), *swap, tuple(virtuals)))
        swapped.update(swap)
    # Packages of one name that differ, and those of which only one stack has any, if the user asked for them.
    for name in sorted({*good.nodes, *bad.nodes} - _INJECTED - swapped):
        if name not in bad.nodes:
            if name in good.roots:
                changes.append(PackageChange(name, name, None))
        elif name not in good.nodes:
            if name in bad.roots:
                changes.append(PackageChange(name, None, name))
        elif _identity(good.nodes[name]) != _identity(bad.nodes[name]):
            changes.append(PackageChange(name, name, name))
    return tuple(changes)


def describe_change(change: PackageChange, good: SpackGraph, bad: SpackGraph) -> tuple[str | None, str | None]:
    """Return both sides in words: version, and the variants that differ; the name where that differs, too."""
    good_node = good.nodes[change.good] if change.good else None
    bad_node = bad.nodes[change.bad] if change.bad else None
    return _describe_node(good_node, bad_node, change.virtuals), _describe_node(bad_node, good_node, change.virtuals)


def _describe_node(node: Node | None, other: Node | None, virtuals: Sequence[str]) -> str | None:
    if node is None:
        return None
    if virtuals:
        return f"{node['name']} {node['version']}"
    if other is None:
        return str(node["version"])
    words = [str(node["version"])]
    if bool(node.get("external")) != bool(other.get("external")):
        words.append("of the machine" if node.get("external") else "built")
    other_words = set(_words(other))
    words += [word for word in _words(node) if word not in other_words]
    return " ".join(words)


def hybrid_environment(
    good: SpackGraph, bad: SpackGraph, changes: Sequence[PackageChange], includes: Sequence[str]
) -> dict[str, Any]:
    """Return the `spack.yaml` of GOOD with some changes of BAD: every version and variant is required, none resolved.

    Spack's requirements hold for a package wherever it is needed, so that packages which nothing needs any more are
    left out, and those that only a chosen change needs are taken from BAD. Installed packages are used where they fit.

    Args:
        includes: files with the package repositories; their settings of packages are not used.
    """
    # GOOD's packages; BAD's where a change exchanges them, and where GOOD has none.
    nodes = {**bad.nodes, **good.nodes}
    providers = {**bad.providers, **good.providers}
    roots = set(good.roots)
    for change in changes:
        if change.good:
            roots.discard(change.good)
        for virtual in change.virtuals:
            providers[virtual] = bad.providers[virtual]
    for change in changes:
        if change.bad:
            nodes[change.bad] = bad.nodes[change.bad]
            if change.bad in (*good.roots, *bad.roots):
                roots.add(change.bad)
    # Requirements.
    packages: dict[str, Any] = {virtual: {"require": [name]} for virtual, name in providers.items()}
    packages["all"] = {"target": sorted({_target(node) for node in nodes.values()})}
    for name, node in nodes.items():
        if name not in _INJECTED:
            packages[name] = _package_settings(node)
    for tool in (*good.build_tools, *bad.build_tools):
        if tool["name"] not in {*nodes, *_INJECTED}:
            settings = packages.setdefault(tool["name"], {"externals": [], "buildable": False})
            external = _external(tool)
            if external not in settings["externals"]:
                settings["externals"].append(external)
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


def _package_settings(node: Node) -> dict[str, Any]:
    """An entry of `packages:` that allows nothing but this package."""
    version = f"@={node['version']}"
    if node.get("external"):
        return {"require": [version], "externals": [_external(node)], "buildable": False}
    return {"require": [" ".join([version, *_words(node)])]}


def _identity(node: Node) -> tuple[str, ...]:
    external = node.get("external") or {}
    return (str(node["version"]), external.get("path", ""), *_words(node))


def _target(node: Node) -> str:
    target = node["arch"]["target"]
    if isinstance(target, Mapping):
        target = target["name"]
    return str(target)


def _words(node: Node) -> Iterator[str]:
    """Variants, flags and target in Spack's syntax."""
    for name, value in sorted(node["parameters"].items()):
        if name in _NO_CHOICE or value == []:
            continue
        if isinstance(value, bool):
            yield f"{'+' if value else '~'}{name}"
        elif name.endswith("flags") or name == "ldlibs":
            yield f'{name}="{" ".join(value)}"'
        elif isinstance(value, list):
            yield f"{name}:={','.join(map(str, value))}"
        else:
            yield f"{name}={value}"
    yield f"target={_target(node)}"


def _external(node: Node) -> dict[str, Any]:
    """An entry of `externals:`."""
    external = node["external"]
    words = [word for word in _words(node) if not word.startswith(("target=", "build_system="))]
    entry = {"spec": " ".join([f"{node['name']}@={node['version']}", *words]), "prefix": external["path"]}
    if external.get("module"):
        entry["modules"] = external["module"]
    if external.get("extra_attributes"):
        entry["extra_attributes"] = external["extra_attributes"]
    return entry
