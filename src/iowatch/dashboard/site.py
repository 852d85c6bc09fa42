"""Writing a site: beside the old one, page by page, switched at once; unchanged pages are taken over."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from iowatch.errors import MachineError, UsageError


@dataclass
class Writer:
    """Collects the files of one build.

    Attributes:
        place: the directory being filled.
        previous: the directory of the site in force, or None.
        written: files made anew; kept: files taken over unchanged.
    """

    place: Path
    previous: Path | None
    written: int = 0
    kept: int = 0

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file of the site; one with the same content is linked from the previous site.

        Raises:
            UsageError: `name` would leave the site.
        """
        target = self._target(name)
        data = content.encode() if isinstance(content, str) else content
        old = self.previous / name if self.previous else None
        if old is not None and old.is_file() and _same(old, data):
            os.link(old, target)
            self.kept += 1
            return
        target.write_bytes(data)
        self.written += 1

    def copy(self, name: str, source: Path) -> None:
        """Put a copy of a file into the site."""
        target = self._target(name)
        old = self.previous / name if self.previous else None
        if old is not None and old.is_file() and old.stat().st_size == source.stat().st_size:
            os.link(old, target)
            self.kept += 1
            return
        shutil.copyfile(source, target)
        self.written += 1

    def keep(self, name: str) -> bool:
        """Take a file over from the previous site; False where it has none."""
        old = self.previous / name if self.previous else None
        if old is None or not old.is_file():
            return False
        os.link(old, self._target(name))
        self.kept += 1
        return True

    def _target(self, name: str) -> Path:
        target = (self.place / name).absolute()
        if ".." in Path(name).parts or not target.is_relative_to(self.place):
            raise UsageError(f"'{name}' would lie outside the site")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


def _same(path: Path, data: bytes) -> bool:
    return (
        path.stat().st_size == len(data)
        and hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(data).digest()
    )


@contextmanager
def building(site: Path) -> Iterator[Writer]:
    """A writer for a new version of `site`; at the end of the block the new version is switched in.

    `site` is a symbolic link to a directory beside it, so that the switch is one rename: a reader sees the old
    site or the new one, and a killed build leaves the old one.

    Raises:
        UsageError: `site` exists and is not a dashboard.
        MachineError: the directory cannot be written.
    """
    site = site.absolute()
    if site.exists() and not site.is_symlink():
        raise UsageError(
            f"{site} exists and is not a dashboard of iowatch", hint="Choose another with --output."
        )
    versions = site.with_name(f".{site.name}.versions")
    try:
        versions.mkdir(parents=True, exist_ok=True)
        with (versions / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield from _one_build(site, versions)
    except OSError as error:
        raise MachineError(f"cannot write the dashboard {site}: {error.strerror}: {error.filename}") from error


def _one_build(site: Path, versions: Path) -> Iterator[Writer]:
    previous = site.resolve() if site.is_dir() else None
    for leftover in versions.iterdir():
        if leftover.is_dir() and leftover.resolve() != previous:
            shutil.rmtree(leftover, ignore_errors=True)
    number = int(previous.name) + 1 if previous and previous.name.isdigit() else 1
    place = versions / str(number)
    place.mkdir()
    yield Writer(place.absolute(), previous)
    link = versions / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(place, site.parent))
    link.replace(site)
