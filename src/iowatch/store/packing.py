"""Samples as bytes (little-endian float64, 8 bytes a sample, exact), and digests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pack(samples: Sequence[float]) -> bytes:
    """Samples to bytes."""
    return np.asarray(samples, dtype="<f8").tobytes()


_HEXADECIMAL = frozenset("0123456789abcdef")


def pack_digest(text: str) -> bytes:
    """A SHA-256 in hexadecimal as 33 bytes, the first of them 1; any other text as itself after a byte 0."""
    if len(text) == 64 and set(text) <= _HEXADECIMAL:
        return b"\1" + bytes.fromhex(text)
    return b"\0" + text.encode("utf-8", "surrogatepass")


def unpack_digest(blob: bytes) -> str:
    """The text of `pack_digest`."""
    return blob[1:].hex() if blob[:1] == b"\1" else blob[1:].decode("utf-8", "surrogatepass")


def unpack(blob: bytes) -> tuple[float, ...]:
    """Bytes to samples."""
    return tuple(np.frombuffer(blob, dtype="<f8").tolist())
