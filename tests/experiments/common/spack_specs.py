"""Concrete specs as Spack writes them for installed packages, for tests without Spack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from iowatch.site import Stack, StackPart

Spec = dict[str, Any]


def spec(
    name: str, version: str, *uses: Spec, virtuals: dict[str, str] | None = None, external: str | None = None,
    deptypes: tuple[str, ...] = ("build", "link"), **variants: object,
) -> Spec:  # fmt: skip
    """A package linked against others; its hash depends on all of it.

    Args:
        virtuals: name of a used package -> the virtual package that it provides here.
    """
    edges = [
        {
            "name": one["name"],
            "hash": one["hash"],
            "parameters": {"deptypes": [*deptypes], "virtuals": [(virtuals or {})[one["name"]]]}
            if one["name"] in (virtuals or {})
            else {"deptypes": [*deptypes], "virtuals": []},
        }
        for one in uses
    ]
    node: Spec = {
        "name": name,
        "version": version,
        "arch": {"target": "x86_64_v2"},
        "parameters": {"build_system": "cmake", "cflags": [], **variants},
        "dependencies": edges,
        "below": [*uses],
    }
    if external:
        node["external"] = {"path": external, "module": None, "extra_attributes": {}}
    place = json.dumps([name, version, external, sorted(map(str, variants.items())), [one["hash"] for one in uses]])
    return {**node, "hash": f"{name}{abs(hash(place)) % 10**12}"}


def all_specs(*tops: Spec) -> dict[str, Spec]:
    """All specs by hash, without the helper field."""
    found: dict[str, Spec] = {}
    for top in tops:
        found |= all_specs(*top["below"])
        found[top["hash"]] = {key: value for key, value in top.items() if key != "below"}
    return found


def installed_stack(root: Path, name: str, *tops: Spec, **settings: str) -> Stack:
    """A stack whose packages are in directories with Spack's record of them."""
    parts, known = [], all_specs(*tops)
    for key, node in known.items():
        external = (node.get("external") or {}).get("path")
        prefix = Path(external or root / f"{node['name']}-{node['version']}-{key}")
        if not external:
            (prefix / ".spack").mkdir(parents=True, exist_ok=True)
            nodes = {"spec": {"_meta": {"version": 5}, "nodes": [*known.values()]}}
            (prefix / ".spack" / "spec.json").write_text(json.dumps(nodes))
        parts.append(StackPart(node["name"], node["version"], hash=key, prefix=str(prefix)))
    return Stack(name, "local", "spack", "installed", tuple(sorted(parts, key=lambda p: p.name)), settings=settings)
