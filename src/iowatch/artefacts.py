"""Files that runs left, kept once by content under `var/artefacts/<2 digits>/<sha256>`."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from iowatch import paths
from iowatch.errors import InputError


def path_of(sha256: str) -> Path:
    """Where the content with this SHA-256 lies.

    Raises:
        InputError: not 64 hexadecimal digits (it becomes part of a path).
    """
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise InputError(f"'{sha256}' is not a SHA-256")
    return paths.var() / "artefacts" / sha256[:2] / sha256


def keep(source: Path) -> tuple[str, int]:
    """Keep a copy of a file; returns its SHA-256 and its size in bytes. Keeping it twice costs nothing."""
    with source.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    target = path_of(digest)
    size = source.stat().st_size
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{digest}.{os.getpid()}")
        shutil.copyfile(source, beside)
        beside.replace(target)
    return digest, size
