"""Traces and logs without user names and paths.

`drop` takes them out; `hash` puts a keyed hash in their place, so that the same file has the same name in
every log of a site and nobody without the key can test a guess. Kept: what ran where and how long, mount
points' file system types, the standard streams, and every counter.

A log also identifies each file by Darshan's own 64-bit hash of the path, which has no key; it stays, because
the records of the modules refer to it. Whoever must not be able to test guessed paths gets the summary, not
the log.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from iowatch import paths
from iowatch.darshan.container import Header, Region, read_header, unpack
from iowatch.darshan.trace import Trace
from iowatch.errors import InputError

Mode = Literal["keep", "hash", "drop"]

# Names that Darshan makes up itself.
_HARMLESS = ("<STDIN>", "<STDOUT>", "<STDERR>", "heatmap:")
_KEPT_METADATA = ("lib_ver", "h")
_METADATA_BYTES = 1024
# The library wants more than its own job structure (1080 bytes) in the job region.
_LEAST_JOB_BYTES = 1112


def site_key() -> bytes:
    """The key of this site's hashes, made at first use and kept in `var/privacy.key`, readable by its owner."""
    path = paths.var() / "privacy.key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_bytes(secrets.token_bytes(32))
        # Linking fails where another process was first; then its key is the one.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_bytes()


def _hasher(mode: Mode, key: bytes) -> Callable[[str, str], str]:
    """(kind, name) to what stands in its place: `file-3f2a…`, or nothing."""
    if mode == "drop":
        return lambda kind, name: ""
    return lambda kind, name: f"{kind}-{hashlib.blake2b(name.encode(), key=key, digest_size=6).hexdigest()}"


def hide(trace: Trace, mode: str, key: bytes | None = None) -> Trace:
    """A trace without user names and paths.

    Args:
        trace: as read.
        mode: `keep`, `hash` or `drop`.
        key: of the hashes, at most 64 bytes; the site's by default.
    """
    if mode == "keep" or trace.status == "unreadable":
        return trace
    substitute = _hasher("hash" if mode == "hash" else "drop", (key or site_key()) if mode == "hash" else b"")

    def path(name: str | None) -> str | None:
        return name if name is None or name.startswith(_HARMLESS) else substitute("file", name) or None

    def row(file: Mapping[str, Any]) -> dict[str, Any]:
        mount = file["mount"]
        return {**file, "path": path(file["path"]), "mount": mount and (substitute("mount", mount) or None)}

    job = dict(trace.job)
    job["exe"] = substitute("exe", job["exe"]) or None
    job["uid"] = None if job["uid"] is None else substitute("user", str(job["uid"])) or None
    job["metadata"] = {k: v for k, v in job["metadata"].items() if k in _KEPT_METADATA}
    slowest = {name: {**one, "file": path(one["file"])} for name, one in trace.derived["slowest"].items()}
    derived = {**trace.derived, "slowest_file": path(trace.derived["slowest_file"]), "slowest": slowest}
    return replace(trace, job=job, derived=derived, files=[row(file) for file in trace.files])


def _hide_job(data: bytes, header: Header, substitute: Callable[[str, str], str]) -> bytes:
    """The job region: uid first, metadata last, then the command line and one line a mount."""
    fixed = (7 if header.version >= "3.41" else 5) * 8
    uid = struct.unpack_from(f"{header.byte_order}q", data)[0]
    hidden = substitute("user", str(uid))
    # 0 would be root.
    number = int(hidden.rpartition("-")[2], 16) if hidden else -1
    metadata = data[fixed : fixed + _METADATA_BYTES].split(b"\0")[0].decode("utf-8", "replace")
    kept = [line for line in metadata.splitlines() if line.partition("=")[0].strip() in _KEPT_METADATA]
    exe, mounts = _job_text(data, header)
    lines = [substitute("exe", exe)] + [
        f"{kind}\t{hidden}" for kind, _, hidden in _hide_mounts(mounts, substitute)
    ]
    packed = struct.pack(f"{header.byte_order}q", number) + data[8:fixed]
    packed += "".join(f"{line}\n" for line in kept).encode().ljust(_METADATA_BYTES, b"\0")
    return (packed + "\n".join(lines).encode() + b"\0").ljust(_LEAST_JOB_BYTES, b"\0")


def _job_text(data: bytes, header: Header) -> tuple[str, list[tuple[str, str]]]:
    """The command line, and (file system type, mount point) of each mount."""
    fixed = (7 if header.version >= "3.41" else 5) * 8
    text = data[fixed + _METADATA_BYTES :].split(b"\0")[0].decode("utf-8", "replace")
    exe, *lines = text.split("\n")
    parts = (line.partition("\t") for line in lines)
    return exe.strip(), [(kind, point) for kind, _, point in parts]


def _hide_mounts(
    mounts: list[tuple[str, str]], substitute: Callable[[str, str], str]
) -> list[tuple[str, str, str]]:
    """(type, mount point, what stands for it), longest mount point first; `/` stays."""
    ordered = sorted(mounts, key=lambda mount: -len(mount[1]))
    return [
        (kind, point, point if point in ("", "/") else "/" + (substitute("mount", point) or f"mount{i}"))
        for i, (kind, point) in enumerate(ordered)
    ]


def _names(data: bytes, header: Header) -> Iterator[tuple[bytes, str]]:
    """(record id, path) of the table of names, in either of its two formats."""
    position = 0
    while position + 9 <= len(data):
        record, position = data[position : position + 8], position + 8
        if header.version == "3.00":
            length = struct.unpack_from(f"{header.byte_order}I", data, position)[0]
            position, end = position + 4, position + 4 + length
            yield record, data[position:end].decode("utf-8", "replace")
            position = end
        else:
            end = data.index(b"\0", position)
            yield record, data[position:end].decode("utf-8", "replace")
            position = end + 1


def _hide_name(name: str, mounts: list[tuple[str, str, str]], substitute: Callable[[str, str], str]) -> str:
    """A name below what stands for its mount point, so that its file system is still known."""
    if name.startswith(_HARMLESS):
        return name
    word = substitute("file", name) or "dropped"
    inside = (hidden.rstrip("/") for _, point, hidden in mounts if name.startswith(point.rstrip("/") + "/"))
    return next((f"{mount}/{word}" for mount in inside), word)


def _hide_names(
    data: bytes, header: Header, mounts: list[tuple[str, str, str]], substitute: Callable[[str, str], str]
) -> bytes:
    packed = bytearray()
    for record, name in _names(data, header):
        hidden = _hide_name(name, mounts, substitute).encode()
        if header.version == "3.00":
            packed += record + struct.pack(f"{header.byte_order}I", len(hidden)) + hidden
        else:
            packed += record + hidden + b"\0"
    return bytes(packed)


def _moved(start: bytes, header: Header, shift: int, names: Region) -> bytes:
    """The header with the new place of the names, and every module moved by `shift` bytes.

    An empty region may have a place all the same, and the library takes the job to end there.
    """
    wide = header.version >= "3.41"
    table, slots = (32, 64) if wide else (24, 16)
    kind = f"{header.byte_order}{2 + 2 * slots}Q"
    numbers = list(struct.unpack_from(kind, start, table))
    if numbers[0]:
        numbers[0:2] = [names.offset_bytes, names.length_bytes]
    for i in range(2, len(numbers), 2):
        numbers[i] += shift if numbers[i] else 0
    return start[:table] + struct.pack(kind, *numbers) + start[table + struct.calcsize(kind) :]


def hide_log(source: Path, target: Path, mode: str, key: bytes | None = None) -> None:
    """Write a log again without user names and paths; every record stays byte for byte.

    Args:
        source: the log.
        target: file to write; not the same as source.
        mode: `hash` or `drop`.
        key: of the hashes; the site's by default.

    Raises:
        InputError: the log is damaged (a damaged log is not kept with half its names), or not compressed by
        zlib.
    """
    header = read_header(source)
    if header.compression != "zlib":
        raise InputError(f"{source}: compressed by {header.compression}; only zlib logs can be written again")
    substitute = _hasher("hash" if mode == "hash" else "drop", (key or site_key()) if mode == "hash" else b"")
    with source.open("rb") as file:
        start = file.read(header.size_bytes)
        try:
            facts = b"".join(unpack(file, header.job, "zlib"))
            table = b"".join(unpack(file, header.names, "zlib")) if header.names else b""
            job = _hide_job(facts, header, substitute)
            names = _hide_names(
                table, header, _hide_mounts(_job_text(facts, header)[1], substitute), substitute
            )
        except (InputError, ValueError, struct.error) as error:
            raise InputError(f"{source}: job or names are damaged ({error})") from error
        old_end = header.size_bytes + header.job.length_bytes
        old_end = (
            max(old_end, header.names.offset_bytes + header.names.length_bytes) if header.names else old_end
        )
        if any(region.offset_bytes < old_end for region in header.modules.values()):
            raise InputError(f"{source}: its regions are not in the order that Darshan writes")
        file.seek(old_end)
        modules = file.read()
    packed_job, packed_names = zlib.compress(job), zlib.compress(names) if header.names else b""
    at = header.size_bytes + len(packed_job)
    shift = at + len(packed_names) - old_end
    start = _moved(start, header, shift, Region(at, len(packed_names)))
    target.write_bytes(start + packed_job + packed_names + modules)
