"""Writing a site: beside the old one, page by page, switched at once; unchanged pages are taken over."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from iowatch.errors import MachineError, UsageError

# Lies in the site, so that it is switched with it.
LEDGER = "ledger.json"
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")


def slug(name: str) -> str:
    """A name from outside as the name of a file: itself where that is harmless, else a digest of it."""
    if _SAFE.fullmatch(name):
        return name
    return f"x{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


@dataclass
class Ledger:
    """What the files of a site were made from.

    Attributes:
        digests: of what each file was made from.
        parts: files that belong to a page (outputs, Darshan's pictures) and go where it goes.
    """

    digests: dict[str, str] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Writer:
    """Collects the files of one build.

    Attributes:
        place: the directory being filled.
        previous: the directory of the site in force, or None.
        known: ledger of the previous site; ledger: of this one.
        written: files made anew; kept: files taken over unchanged.
    """

    place: Path
    previous: Path | None
    known: Ledger = field(default_factory=Ledger)
    ledger: Ledger = field(default_factory=Ledger)
    written: int = 0
    kept: int = 0
    _page: str | None = None
    # Files to take over, as long as nothing is new: a site without news needs none of their links.
    _waiting: dict[str, None] | None = field(default_factory=dict)

    def fresh(self, name: str, digest: str) -> bool:
        """Whether the previous site has the file made from the same; it and its parts are then taken over.

        Raises:
            UsageError: `name` would leave the site.
        """
        self._note(name, digest)
        if self.previous is None or self.known.digests.get(name) != digest or not self._link(name):
            return False
        for part in self.known.parts.get(name, ()):
            if self._link(part):
                self.ledger.digests[part] = self.known.digests.get(part, "")
                self.ledger.parts.setdefault(name, []).append(part)
        return True

    def make(self, name: str, digest: str, maker: Callable[[], str | bytes]) -> None:
        """Take a page over if it was made from the same, else make it; what `maker` adds are its parts."""
        if not self.fresh(name, digest):
            self._page = name
            try:
                content = maker()
            finally:
                self._page = None
            self.write(name, content)

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file of the site.

        Raises:
            UsageError: `name` would leave the site.
        """
        data = content.encode("utf-8", "replace") if isinstance(content, str) else content
        self.settle()
        self._target(name).write_bytes(data)
        self.written += 1

    def target(self, name: str) -> Path:
        """Where another program shall write a file of the site; counts it as written."""
        self.settle()
        self.written += 1
        return self._target(name)

    def copy(self, name: str, source: Path) -> None:
        """Put a copy of a file into the site; the same size and time of change are the same file."""
        facts = source.stat()
        if not self.fresh(name, f"copy {facts.st_size} {facts.st_mtime_ns}"):
            self.settle()
            target = self._target(name)
            # Never through a link into the previous site.
            target.unlink(missing_ok=True)
            shutil.copyfile(source, target)
            self.written += 1

    def settle(self) -> None:
        """Link what was taken over so far, and from now on at once: something is new.

        To be called before other processes write: what they link is not known here.
        """
        waiting, self._waiting = self._waiting, None
        for name in waiting or ():
            self._link_now(name)

    @property
    def news(self) -> bool:
        """Whether this site differs from the previous one."""
        return self._waiting is None or self.ledger.digests.keys() != self.known.digests.keys()

    def _note(self, name: str, digest: str) -> None:
        self.ledger.digests[name] = digest
        if self._page is not None:
            self.ledger.parts.setdefault(self._page, []).append(name)

    def _link(self, name: str) -> bool:
        if self._waiting is None:
            return self._link_now(name, count=True)
        assert self.previous is not None
        if not (self.previous / name).is_file():
            return False
        self.kept += name not in self._waiting
        self._waiting[name] = None
        return True

    def _link_now(self, name: str, count: bool = False) -> bool:
        assert self.previous is not None
        try:
            os.link(self.previous / name, self._target(name))
        except FileExistsError:
            return True
        except FileNotFoundError:
            return False
        self.kept += count
        return True

    def _target(self, name: str) -> Path:
        target = (self.place / name).absolute()
        if ".." in Path(name).parts or not target.is_relative_to(self.place):
            raise UsageError(f"'{name}' would lie outside the site")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


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
    if previous is not None and previous.parent != versions.resolve():
        raise UsageError(
            f"{site} is a link to {previous}, which is not a dashboard of iowatch",
            hint="Choose another with --output.",
        )
    _remove(versions, keep=previous)
    number = int(previous.name) + 1 if previous and previous.name.isdigit() else 1
    place = versions / str(number)
    place.mkdir()
    writer = Writer(place.absolute(), previous, _ledger(previous))
    yield writer
    if previous is not None and not writer.news:
        shutil.rmtree(place)
        return
    writer.settle()
    (place / LEDGER).write_text(json.dumps(asdict(writer.ledger)), encoding="utf-8")
    link = versions / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(place, site.parent))
    link.replace(site)


def _remove(versions: Path, keep: Path | None) -> None:
    """What killed builds left, and the version before the one in force."""
    for leftover in versions.iterdir():
        if leftover.is_dir() and not leftover.is_symlink() and leftover.resolve() != keep:
            shutil.rmtree(leftover, ignore_errors=True)


def _ledger(previous: Path | None) -> Ledger:
    """That of the previous site; an empty one where it cannot be read, which only costs time."""
    if previous is None:
        return Ledger()
    try:
        return Ledger(**json.loads((previous / LEDGER).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Ledger()
