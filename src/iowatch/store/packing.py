"""Samples as bytes: little-endian float64, 8 bytes a sample, exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pack(samples: Sequence[float]) -> bytes:
    """Samples to bytes."""
    return np.asarray(samples, dtype="<f8").tobytes()


def unpack(blob: bytes) -> tuple[float, ...]:
    """Bytes to samples."""
    return tuple(np.frombuffer(blob, dtype="<f8").tolist())
