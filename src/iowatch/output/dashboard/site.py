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

_T = TypeVar("_T")
# Names that are safe as a file name and in an address.
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")
OLDER_SAMPLES_FOLDER = "samples"
# Directories of a site whose files later builds link.
_REUSED = ("output", "darshan", OLDER_SAMPLES_FOLDER)
_LINKED = re.compile(rf'(?:href|src)="(?:\.\./)*((?:{"|".join(_REUSED)})/[^"#?]+)"'.encode())
# Starting a process takes longer than writing fewer pages.
_MIN_ITEMS = 200


def safe_file_name(name: str) -> str:
    """File name from an untrusted name: unchanged if it is safe, else a digest."""
    if _SAFE.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"x{digest[:24]}"


def shorten_text(text: object, most: int = 160) -> str:
    """Truncate a text to `most` characters; names are untrusted and may have 4 KB."""
    full = str(text)
    if len(full) <= most:
        return full
    return f"{full[: most - 1]}…"


def embed_json(document: Any) -> Markup:
    """JSON of any content, escaped for a `<script type="application/json">` element."""
    text = _to_json(document)
    # Control characters and the like are rare: nearly all documents are written once.
    if "\\" in text or not text.isascii() or not text.isprintable():
        text = _to_json(escape_texts(document))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # Every character that could end the element is escaped above.
    return Markup(text)  # noqa: S704  # nosec B704


def _to_json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True)
class PreviousSite:
    """The site that a build replaces. Its files are linked into the new one where they would be equal.

    Attributes:
        directory: of its files.
        file_digests: SHA-256 of the files that may be linked, by name.
        page_inputs: digest of all that a page was made of, by its name, of the pages that may be linked.
    """

    directory: Path
    file_digests: Mapping[str, str]
    page_inputs: Mapping[str, str]


@dataclass
class SiteWriter:
    """Collects the files of one build.

    Attributes:
        directory: the directory being filled.
        previous: the current site, or None.
        page_inputs: as `PreviousSite.page_inputs`, of this build.
        written: number of new files; kept: number of files that were linked from the previous site.
    """

    directory: Path
    previous: PreviousSite | None
    page_inputs: dict[str, str] = field(default_factory=dict)
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
        if self.previous is None:
            return False
        source = self.previous.directory / name
        if not source.is_file():
            return False
        # A link to a file that was damaged since would damage every later site.
        if files.file_sha256(source) != self.previous.file_digests.get(name):
            return False
        # Another process of this build may link it at this moment.
        with suppress(FileExistsError):
            os.link(source, target)
            self.kept += 1
        return True

    def reuse_page(self, name: str, inputs: str) -> bool:
        """Link a page of the previous site that was made of the same, and what it shows; else the caller writes it.

        Args:
            inputs: digest of everything that the page is made of, code and templates included.
        """
        self.page_inputs[name] = inputs
        if self.previous is None or self.previous.page_inputs.get(name) != inputs:
            return False
        if not self.reuse(name):
            return False
        # The page is complete only with the artefacts and drawings that it shows.
        page = self._path(name)
        if all(self.reuse(linked_name) for linked_name in _linked_files(page.read_bytes())):
            return True
        # Removed before the caller writes it: the file is that of the previous site, too.
        page.unlink()
        self.kept -= 1
        return False

    def _path(self, name: str) -> Path:
        """Path of a file of this build, whose directory exists."""
        path = (self.directory / name).absolute()
        if ".." in Path(name).parts or not path.is_relative_to(self.directory):
            raise UsageError(f"'{name}' would lie outside the site")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


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
    is_dashboard = site.is_symlink() and site.resolve().parent == versions.resolve()
    if site.exists() and not is_dashboard:
        raise UsageError(f"{site} exists and is not a dashboard of iowatch", hint="Choose another with --output.")
    try:
        versions.mkdir(parents=True, exist_ok=True)
        # One build at a time; another one waits.
        with (versions / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            previous = _read_previous_site(site)
            _remove_old_versions(versions, keep=previous.directory if previous else None)
            directory = versions / str(_next_version_number(previous))
            directory.mkdir()
            writer = SiteWriter(directory, previous)
            yield writer
            _write_digests(writer)
            # A rename replaces the link in one step.
            new_link = versions / "link"
            new_link.unlink(missing_ok=True)
            new_link.symlink_to(os.path.relpath(directory, site.parent))
            new_link.replace(site)
    except OSError as error:
        raise MachineError(f"cannot write the dashboard {site}: {error.strerror}: {error.filename}") from error


def _next_version_number(previous: PreviousSite | None) -> int:
    """Number of the new version; versions are named by numbers."""
    if previous is None or not previous.directory.name.isdigit():
        return 1
    return int(previous.directory.name) + 1


def _linked_files(page: bytes) -> set[str]:
    """Files in the directories `_REUSED` that a page links to or shows; their names have no special characters."""
    # Nearly all pages have none, and the regular expression takes longer than this search.
    if not any(f"{folder}/".encode() in page for folder in _REUSED):
        return set()
    return {name.decode() for name in _LINKED.findall(page)}


def _digest_file(version: Path) -> Path:
    """File beside the directory of a version, with the digests for the next build."""
    return version.with_name(f"{version.name}.json")


def _read_previous_site(site: Path) -> PreviousSite | None:
    """The current version of a site with the digests of what the next build may link; None without one."""
    if not site.is_dir():
        return None
    directory = site.resolve()
    try:
        document = json.loads(_digest_file(directory).read_text(encoding="utf-8"))
        return PreviousSite(directory, dict(document["files"]), dict(document["inputs"]))
    except (OSError, ValueError, TypeError, KeyError):
        # Without digests nothing is linked: everything is written again.
        return PreviousSite(directory, {}, {})


def _write_digests(writer: SiteWriter) -> None:
    """Write the SHA-256 of all files that the next build may link, and the inputs of its pages."""
    paths: list[Path] = []
    for folder in _REUSED:
        paths += [path for path in (writer.directory / folder).rglob("*") if path.is_file()]
    paths += [writer.directory / name for name in writer.page_inputs]
    digests: dict[str, str] = {}
    for path in paths:
        name = str(path.relative_to(writer.directory))
        # The digest of a linked file was verified by this build: it is not read again.
        digest = _digest_of_linked_file(writer.previous, name, path)
        if digest is None:
            digest = files.file_sha256(path)
        digests[name] = digest
    write_atomically(_digest_file(writer.directory), json.dumps({"files": digests, "inputs": writer.page_inputs}))


def _digest_of_linked_file(previous: PreviousSite | None, name: str, path: Path) -> str | None:
    """SHA-256 of a file that is linked from the previous site; None if it is a new one."""
    if previous is None or name not in previous.file_digests:
        return None
    source = previous.directory / name
    if not source.exists() or not path.samefile(source):
        return None
    return previous.file_digests[name]


def _remove_old_versions(versions: Path, keep: Path | None) -> None:
    """Remove directories of killed builds, and the version before the current one."""
    for entry in versions.iterdir():
        is_directory = entry.is_dir() and not entry.is_symlink()
        if is_directory and entry.resolve() != keep:
            shutil.rmtree(entry, ignore_errors=True)
            _digest_file(entry).unlink(missing_ok=True)


@dataclass(frozen=True)
class _FileCounts:
    """Numbers of files that a process wrote and linked."""

    written: int
    kept: int


# Functions with closures cannot be sent to a process, but a fork inherits this variable.
_task: Callable[[int], _FileCounts] | None = None


def write_in_processes(
    history: History, writer: SiteWriter, write: Callable[[Sequence[_T]], None], items: Sequence[_T]
) -> None:
    """Call `write` with all `items`, or with halves of them in two processes.

    The processes are forks: they share all data in memory, and open separate connections. In a process that is itself
    one of several, the other processors have work already.
    """
    global _task
    workers = min(2, os.cpu_count() or 1)
    is_worker = multiprocessing.parent_process() is not None
    if len(items) < _MIN_ITEMS or workers < 2 or is_worker:
        write(items)
        return

    def write_share(start: int) -> _FileCounts:
        # Two processes must not share a connection: the child drops the inherited ones.
        history.engine.dispose(close=False)
        writer.written = writer.kept = 0
        write(items[start::workers])
        return _FileCounts(writer.written, writer.kept)

    _task = write_share
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
            shares = [pool.submit(_run_task, start) for start in range(workers)]
            for share in shares:
                counts = share.result()
                # The child counted in its own copy of the writer.
                writer.written += counts.written
                writer.kept += counts.kept
    finally:
        _task = None


def _run_task(start: int) -> _FileCounts:
    assert _task is not None
    return _task(start)
