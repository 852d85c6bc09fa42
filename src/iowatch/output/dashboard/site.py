"""Writing of a site to a new directory that replaces the old one atomically, in two processes for many pages."""

from __future__ import annotations

import fcntl
import hashlib
import json
import multiprocessing
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from markupsafe import Markup

from iowatch.core import MachineError, UsageError, escape_texts, files, write_atomically
from iowatch.store import History

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")


def safe_file_name(name: str) -> str:
    """File name from an untrusted name: unchanged if it is safe, else a digest."""
    if _SAFE.fullmatch(name):
        return name
    return f"x{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def shorten_text(text: object, most: int = 160) -> str:
    """Truncate a text to `most` characters; names are untrusted and may have 4 KB."""
    plain = str(text)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def embed_json(document: Any) -> Markup:
    """JSON of any content, escaped for a `<script type="application/json">` element."""
    text = _to_json(document)
    if "\\" in text or not (text.isascii() and text.isprintable()):  # rarely
        text = _to_json(escape_texts(document))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # Every character that could end the element is escaped above.
    return Markup(text)  # noqa: S704  # nosec B704


def _to_json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass
class SiteWriter:
    """Collects the files of one build.

    Attributes:
        place: the directory being filled.
        previous: the directory of the current site, or None.
        digests: SHA-256 of the files of the current site that may be reused.
        previous_inputs, inputs: digests of all that a page is made of, by its name, of those that may be reused: in
            the current site and in the new one.
        written: number of new files; kept: number of files that were linked from the previous site.
    """

    place: Path
    previous: Path | None
    digests: Mapping[str, str] = field(default_factory=dict)
    previous_inputs: Mapping[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    written: int = 0
    kept: int = 0

    def write(self, name: str, content: str) -> None:
        """Write a file of the site.

        Raises:
            UsageError: `name` is outside the site.
        """
        self.target(name).write_bytes(content.encode("utf-8", "replace"))

    def target(self, name: str) -> Path:
        """Path for a new file of the site, which the caller writes.

        Raises:
            UsageError: `name` is outside the site.
        """
        self.written += 1
        return self._path(name)

    def reuse(self, name: str) -> bool:
        """Reuse a file of this build or link one of the previous site; False if neither contains it undamaged.

        For artefacts and drawings of them (`_REUSED`): their names contain a digest of what they are made of, so that
        files of equal names have equal content.
        """
        target = self._path(name)
        if target.exists():
            return True
        if self.previous is None or not (self.previous / name).is_file():
            return False
        if files.file_sha256(self.previous / name) != self.digests.get(name):
            return False  # damaged since: a link would damage every later site
        with suppress(FileExistsError):  # another process linked it meanwhile
            os.link(self.previous / name, target)
            self.kept += 1
        return True

    def reuse_page(self, name: str, inputs: str) -> bool:
        """Link a page of the previous site that was made of the same, and what it shows; else the caller writes it.

        Args:
            inputs: digest of everything that the page is made of, code and templates included.
        """
        self.inputs[name] = inputs
        if self.previous is None or self.previous_inputs.get(name) != inputs or not self.reuse(name):
            return False
        if all(self.reuse(linked) for linked in _linked_files((self.place / name).read_bytes())):
            return True
        (self.place / name).unlink()  # it is the file of the previous site, too
        self.kept -= 1
        return False

    def _path(self, name: str) -> Path:
        target = (self.place / name).absolute()
        if ".." in Path(name).parts or not target.is_relative_to(self.place):
            raise UsageError(f"'{name}' would lie outside the site")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


@contextmanager
def site_build(site: Path) -> Iterator[SiteWriter]:
    """Yield a writer for a new version of `site`, which replaces the old version at the end of the block.

    `site` is a symbolic link to a directory next to it, so that the replacement is one rename: readers get the old
    or the new site, and a killed build leaves the old one unchanged.

    Raises:
        UsageError: `site` exists and is not a dashboard.
        MachineError: the directory cannot be written.
    """
    site = site.absolute()
    versions = site.with_name(f".{site.name}.versions")
    if site.exists() and not (site.is_symlink() and site.resolve().parent == versions.resolve()):
        raise UsageError(f"{site} exists and is not a dashboard of iowatch", hint="Choose another with --output.")
    try:
        versions.mkdir(parents=True, exist_ok=True)
        with (versions / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            previous = site.resolve() if site.is_dir() else None
            _remove_old_versions(versions, keep=previous)
            number = int(previous.name) + 1 if previous and previous.name.isdigit() else 1
            place = versions / str(number)
            place.mkdir()
            writer = SiteWriter(place, previous, *(_read_digests(previous) if previous else ({}, {})))
            yield writer
            _write_digests(writer)
            link = versions / "link"
            link.unlink(missing_ok=True)
            link.symlink_to(os.path.relpath(place, site.parent))
            link.replace(site)
    except OSError as error:
        raise MachineError(f"cannot write the dashboard {site}: {error.strerror}: {error.filename}") from error


OLDER_SAMPLES_FOLDER = "samples"
# Directories of a site whose files later builds reuse.
_REUSED = ("output", "darshan", OLDER_SAMPLES_FOLDER)
_LINKED = re.compile(rf'(?:href|src)="(?:\.\./)*((?:{"|".join(_REUSED)})/[^"#?]+)"'.encode())


def _linked_files(page: bytes) -> set[str]:
    """Files in the directories `_REUSED` that a page links to or shows; their names have no special characters."""
    if not any(f"{folder}/".encode() in page for folder in _REUSED):  # nearly all pages: a search takes longer
        return set()
    return {found.decode() for found in _LINKED.findall(page)}


def _digest_file(version: Path) -> Path:
    return version.with_name(f"{version.name}.json")


def _read_digests(version: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the files and of the inputs of the pages that the next build may reuse."""
    try:
        document = json.loads(_digest_file(version).read_text(encoding="utf-8"))
        return dict(document["files"]), dict(document["inputs"])
    except (OSError, ValueError, TypeError, KeyError):
        return {}, {}  # everything is written again


def _write_digests(writer: SiteWriter) -> None:
    """Write the SHA-256 of all files that the next build may reuse; those linked by this build are known."""
    found, version = {}, writer.place
    folders = (path for folder in _REUSED for path in (version / folder).rglob("*") if path.is_file())
    for path in (*folders, *(version / name for name in writer.inputs)):
        name = str(path.relative_to(version))
        linked = writer.previous / name if writer.previous is not None and name in writer.digests else None
        is_known = linked is not None and linked.exists() and path.samefile(linked)
        found[name] = writer.digests[name] if is_known else files.file_sha256(path)
    write_atomically(_digest_file(version), json.dumps({"files": found, "inputs": writer.inputs}))


def _remove_old_versions(versions: Path, keep: Path | None) -> None:
    """Remove directories of killed builds, and the version before the current one."""
    for leftover in versions.iterdir():
        if leftover.is_dir() and not leftover.is_symlink() and leftover.resolve() != keep:
            shutil.rmtree(leftover, ignore_errors=True)
            _digest_file(leftover).unlink(missing_ok=True)


_T = TypeVar("_T")
# Starting a process takes longer than writing fewer pages.
_MIN_ITEMS = 200


# Functions with closures cannot be sent to a process, but a fork inherits this variable.
_task: Callable[[int], tuple[int, int]] | None = None


def write_in_processes(
    history: History, writer: SiteWriter, write: Callable[[Sequence[_T]], None], items: Sequence[_T]
) -> None:
    """Call `write` with all `items`, or with halves of them in two processes.

    The processes are forks: they share all data in memory, and open separate connections. In a process that is itself
    one of several, the other processors have work already.
    """
    global _task
    workers = min(2, os.cpu_count() or 1)
    if len(items) < _MIN_ITEMS or workers < 2 or multiprocessing.parent_process() is not None:
        write(items)
        return

    def write_share(start: int) -> tuple[int, int]:
        # Two processes must not share a connection: the child drops the inherited ones.
        history.engine.dispose(close=False)
        writer.written = writer.kept = 0
        write(items[start::workers])
        return writer.written, writer.kept

    _task = write_share
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
            for done in [pool.submit(_run_task, start) for start in range(workers)]:
                written, kept = done.result()
                writer.written += written
                writer.kept += kept
    finally:
        _task = None


def _run_task(start: int) -> tuple[int, int]:
    assert _task is not None
    return _task(start)
