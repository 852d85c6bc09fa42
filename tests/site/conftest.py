"""Builders: mock-ups of programs, lock files, and a separate checkout."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iowatch.site.stack import tool_query

Tool = Callable[[str, str], Path]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Put a shell program on a PATH that otherwise contains only `cat`."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "cat").symlink_to(shutil.which("cat") or "/bin/cat")
    monkeypatch.setenv("PATH", str(directory))
    tool_query.forget_answers()

    def make(name: str, body: str) -> Path:
        path = directory / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return make


def node(name: str, version: str, key: str, depends: dict[str, tuple[list[str], list[str]]] | None = None) -> Any:
    """One concrete spec of a lock file; `depends` maps hashes to (kinds of dependency, virtuals)."""
    return {
        "name": name,
        "version": version,
        "arch": {"platform": "linux", "platform_os": "debian12", "target": "x86_64_v2"},
        "parameters": {"build_system": "cmake", "shared": True, "cflags": []},
        "dependencies": [
            {"name": "", "hash": other, "parameters": {"deptypes": kinds, "virtuals": virtuals}}
            for other, (kinds, virtuals) in (depends or {}).items()
        ],
        "hash": key,
    }


def write_lock(path: Path, roots: list[tuple[str, str]], nodes: list[Any]) -> Path:
    """A lock file of (spec, hash) roots and nodes."""
    document = {
        "_meta": {"file-type": "spack-lockfile", "lockfile-version": 6},
        "roots": [{"spec": spec, "hash": key} for spec, key in roots],
        "concrete_specs": {one["hash"]: one for one in nodes},
    }
    path.write_text(json.dumps(document))
    return path
