"""Removal of user names and paths from traces, and which logs a site may keep."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iowatch.core import InputError, artefacts, files, settings
from iowatch.darshan.trace import Trace

# Names that Darshan itself assigns.
_PUBLIC_NAMES = ("<STDIN>", "<STDOUT>", "<STDERR>", "heatmap:")
_KEPT_METADATA = ("lib_ver", "h")


def site_key() -> bytes:
    """Return the key for this site's hashes, created at first use in `var/privacy.key`, readable only by its owner.

    Raises:
        InputError: the key was lost or replaced, as `var/privacy.sha256` shows: with another one the same names have
            other hashes, and logs that were read before would be counted again.
    """
    path = settings.var_directory() / "privacy.key"
    digest_path = path.with_suffix(".sha256")
    if not path.exists():
        if digest_path.exists():
            raise _lost_key_error(path, digest_path, "is lost")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = files.new_draft(path)
        draft.touch(mode=0o600)
        draft.write_bytes(secrets.token_bytes(32))
        # Linking fails if another process was first; then its key is used.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    key = path.read_bytes()
    digest = hashlib.sha256(key).hexdigest()
    # Written after the key, which a kill in between leaves without its digest.
    if not digest_path.exists():
        files.write_atomically(digest_path, f"{digest}\n")
    elif digest_path.read_text(encoding="ascii", errors="replace").strip() != digest:
        raise _lost_key_error(path, digest_path, "was replaced")
    return key


def _lost_key_error(path: Path, digest_path: Path, what: str) -> InputError:
    return InputError(
        f"the key of this site's hashes, {path}, {what}",
        hint=f"Restore it from a backup. Without one remove {digest_path}: hashes of then and now cannot be compared.",
    )


@dataclass(frozen=True)
class _NameFilter:
    """Replaces names by keyed hashes; without a key it drops them."""

    key: bytes | None

    def replace_name(self, prefix: str, name: Any) -> str | None:
        """Return `prefix-3f2a…`; None for a name that is dropped, or not in the log."""
        if name is None or self.key is None:
            return None
        digest = hashlib.blake2b(str(name).encode(), key=self.key, digest_size=6)
        return f"{prefix}-{digest.hexdigest()}"

    def replace_path(self, path: str | None) -> str | None:
        """Return the replacement of a path; the names of standard streams and heatmaps are kept."""
        if path and path.startswith(_PUBLIC_NAMES):
            return path
        return self.replace_name("file", path)

    def replace_job(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of a job without its program, its user, and what the user's program stored."""
        metadata = {name: value for name, value in job["metadata"].items() if name in _KEPT_METADATA}
        names = {"exe": self.replace_name("exe", job["exe"]), "uid": self.replace_name("user", job["uid"])}
        return {**job, **names, "metadata": metadata}

    def replace_derived(self, derived: Mapping[str, Any]) -> dict[str, Any]:
        """Return the derived figures without paths."""
        slowest = {}
        for module, slowest_rank in derived["slowest"].items():
            slowest[module] = {**slowest_rank, "file": self.replace_path(slowest_rank["file"])}
        targets = []
        for comparison in derived["targets"]:
            targets.append({**comparison, "file_system": self.replace_name("mount", comparison["file_system"])})
        slowest_file = self.replace_path(derived["slowest_file"])
        return {**derived, "slowest_file": slowest_file, "slowest": slowest, "targets": targets}

    def replace_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row of a file without its path and mount point."""
        return {**row, "path": self.replace_path(row["path"]), "mount": self.replace_name("mount", row["mount"])}


def anonymise_trace(trace: Trace, mode: str, key: bytes | None = None) -> Trace:
    """Return a trace without user names and paths.

    `drop` removes names; `hash` replaces them by a keyed hash (`file-3f2a…`), so that the same file has the same name
    in all traces of a site, and guesses cannot be verified without the key. Counters, file system types, the standard
    streams, times and numbers of ranks are kept.

    Args:
        trace: as read.
        mode: `keep`, `hash` or `drop`.
        key: key for the hashes, at most 64 bytes; by default that of the site.
    """
    if mode == "keep" or trace.status == "unreadable":
        return trace
    names = _NameFilter(key=None)
    if mode == "hash":
        names = _NameFilter(key or site_key())
    return replace(
        trace,
        job=names.replace_job(trace.job),
        derived=names.replace_derived(trace.derived),
        files=[names.replace_row(row) for row in trace.files],
    )


def privacy_mode() -> str:
    """Return the setting `darshan_privacy`: `keep` (the default), `hash` or `drop`.

    Raises:
        UsageError: any other value in the environment. InputError: in `site.yaml`.
    """
    return settings.site_settings().darshan_privacy


def keep_darshan_log(log: Path) -> artefacts.StoredFile | None:
    """Store a log in the artefact store; return None if the site hides names.

    A log cannot be anonymised: it also identifies each file by Darshan's own unkeyed hash of the path.
    """
    if privacy_mode() != "keep":
        return None
    return artefacts.store_artefact(log)
