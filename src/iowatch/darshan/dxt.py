"""Darshan eXtended Tracing: every access of every rank, from the DXT modules of a log.

PyDarshan 3.5.0 knows DXT_POSIX to version 1 and DXT_MPIIO to version 2, and leaves out newer ones without a
word; Darshan writes one version more since it keeps the thread of each access. The records are simple enough
to read here.

Source: `darshan-dxt-log-format.h`, `darshan-dxt-logutils.c`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iowatch.darshan.container import Header, unpack
from iowatch.errors import InputError

# The version of each module that added the thread, which is also the newest.
MODULES = {"DXT_POSIX": 2, "DXT_MPIIO": 3}

_RECORD_BYTES = 104


def _record_type(order: str) -> np.dtype[np.void]:
    fields = [
        ("id", "u8"),
        ("rank", "i8"),
        ("shared", "i8"),
        ("host", "S64"),
        ("writes", "i8"),
        ("reads", "i8"),
    ]
    return np.dtype([(name, kind if kind == "S64" else order + kind) for name, kind in fields])


def _segment_type(order: str, with_thread: bool) -> np.dtype[np.void]:
    fields = [("offset", "i8"), ("length", "i8"), ("start", "f8"), ("end", "f8")]
    return np.dtype([(n, order + k) for n, k in fields + ([("thread", "u8")] if with_thread else [])])


@dataclass(frozen=True)
class AccessTrace:
    """Every access of one rank to one file.

    Attributes:
        id: of the file, as in the other modules.
        rank: in the job.
        host: where the rank ran.
        writes, reads: structured arrays with `offset` and `length` in bytes (offset -1: not known), `start`
            and `end` in seconds since the job began.
    """

    id: int
    rank: int
    host: str
    writes: NDArray[np.void]
    reads: NDArray[np.void]


class _Bytes:
    """Read exactly n bytes at a time from a stream of pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._buffer = pieces, bytearray()

    def take(self, count: int) -> bytes:
        """At most `count` bytes: fewer only at the end."""
        while len(self._buffer) < count:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._buffer += piece
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


def read_traces(path: Path, header: Header, module: str) -> Iterator[AccessTrace]:
    """The records of one DXT module.

    Args:
        path: the log.
        header: of that log.
        module: one of MODULES that is in the log.

    Raises:
        InputError: the module is damaged, or of a version newer than this reader.
    """
    version = header.module_versions[module]
    if not 1 <= version <= MODULES[module]:
        raise InputError(f"format version {version} is not known (newest known: {MODULES[module]})")
    record_type = _record_type(header.byte_order)
    segment_type = _segment_type(header.byte_order, with_thread=version == MODULES[module])
    with path.open("rb") as file:
        data = _Bytes(unpack(file, header.modules[module], header.compression))
        while head := data.take(_RECORD_BYTES):
            if len(head) < _RECORD_BYTES:
                raise InputError("ends within a record")
            record = np.frombuffer(head, record_type)[0]
            writes, reads = int(record["writes"]), int(record["reads"])
            if writes < 0 or reads < 0:
                raise InputError("a record has a negative number of accesses")
            body = data.take((writes + reads) * segment_type.itemsize)
            if len(body) < (writes + reads) * segment_type.itemsize:
                raise InputError("ends within a record")
            segments = np.frombuffer(body, segment_type)
            host = bytes(record["host"]).decode("utf-8", "backslashreplace")
            yield AccessTrace(
                int(record["id"]), int(record["rank"]), host, segments[:writes], segments[writes:]
            )
