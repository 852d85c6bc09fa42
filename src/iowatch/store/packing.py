"""What fills the history, written small and read back exactly: samples and digests.

Samples are one blob a result, in one of two forms that their length tells apart:

    a multiple of 8 bytes    little-endian float64
    any other length         decimals: decimals << 4 | width, b, smallest in b bytes, offsets in width bytes

Most tools print two to six decimals, as IOR does: ten bandwidths then take 25 bytes instead of 80. Value i is
(smallest + offset i) / 10 ** decimals, all integers little-endian and unsigned. The decimal form is taken only
where it gives the very same float64 and is shorter; b may be one more than needed, to avoid a multiple of 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

_FLOAT_BYTES = 8
_TENS = 10.0 ** np.arange(7)
_WIDTHS = (1, 2, 4)
_EXACT = 2.0**53

Floats = NDArray[np.float64]


def pack(samples: Sequence[float]) -> bytes:
    """Samples to bytes."""
    values = np.asarray(samples, dtype="<f8")
    raw = values.tobytes()
    decimal = _decimal(values)
    return decimal if decimal is not None and len(decimal) < len(raw) else raw


def unpack(blob: bytes) -> tuple[float, ...]:
    """Bytes to samples."""
    return tuple(unpack_all([blob]).tolist())


def unpack_all(blobs: Sequence[bytes]) -> Floats:
    """Samples of many results, one result after the other."""
    if all(len(blob) % _FLOAT_BYTES == 0 for blob in blobs):
        return np.frombuffer(b"".join(blobs), dtype="<f8")
    # Results of a series that follow each other nearly always have one form.
    return np.concatenate([_of_form(list(alike)) for _, alike in groupby(blobs, key=_form)])


def number_of_samples(head: bytes, length: int) -> int:
    """Samples in a blob of `length` bytes that begins with the two bytes of `head`; -1 where it is damaged."""
    if length % _FLOAT_BYTES == 0:
        return length // _FLOAT_BYTES
    width, start = head[0] & 15, 2 + head[-1]
    sound = width in _WIDTHS and length >= start and (length - start) % width == 0
    return (length - start) // width if sound else -1


def as_floats(blob: bytes) -> bytes:
    """The same samples as float64, the only form before schema 0004."""
    return np.asarray(unpack(blob), dtype="<f8").tobytes()


def _decimal(values: Floats) -> bytes | None:
    """The decimal form with the fewest decimals, or None where there is none."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint(values * _TENS[:, None])
        same = (scaled / _TENS[:, None] == values) & (scaled < _EXACT) & ~np.signbit(values)
    decimals = int(np.argmax(same.all(axis=1)))
    if not values.size or not same[decimals].all():
        return None
    whole = scaled[decimals].astype(np.int64)
    smallest = int(whole.min())
    offsets = whole - smallest
    width = next((width for width in _WIDTHS if offsets.max() < 256**width), None)
    if width is None:
        return None
    base = smallest.to_bytes((smallest.bit_length() + 7) // 8, "little")
    if (2 + len(base) + width * len(offsets)) % _FLOAT_BYTES == 0:
        base += b"\0"
    head = bytes((decimals << 4 | width, len(base)))
    return head + base + bytes(offsets.astype(f"<u{width}").tobytes())


def _form(blob: bytes) -> tuple[bytes, int]:
    return (b"", 0) if len(blob) % _FLOAT_BYTES == 0 else (blob[:2], len(blob))


def _of_form(blobs: Sequence[bytes]) -> Floats:
    """Samples of results of one form."""
    if _form(blobs[0]) == (b"", 0):
        return np.frombuffer(b"".join(blobs), dtype="<f8")
    decimals, width = divmod(blobs[0][0], 16)
    start = 2 + blobs[0][1]
    rows = np.frombuffer(b"".join(blobs), dtype=np.uint8).reshape(len(blobs), -1)
    base = np.zeros((len(blobs), _FLOAT_BYTES), dtype=np.uint8)
    base[:, : start - 2] = rows[:, 2:start]
    offsets = np.ascontiguousarray(rows[:, start:]).view(f"<u{width}")
    found: Floats = ((base.view("<i8") + offsets.astype(np.int64)) / _TENS[decimals]).ravel()
    return found


_HEXADECIMAL = frozenset("0123456789abcdef")


def pack_digest(text: str) -> bytes:
    """A SHA-256 in hexadecimal as 33 bytes, the first of them 1; any other text as itself after a byte 0."""
    if len(text) == 64 and set(text) <= _HEXADECIMAL:
        return b"\1" + bytes.fromhex(text)
    return b"\0" + text.encode("utf-8", "surrogatepass")


def unpack_digest(blob: bytes) -> str:
    """The text of `pack_digest`."""
    return blob[1:].hex() if blob[:1] == b"\1" else blob[1:].decode("utf-8", "surrogatepass")
