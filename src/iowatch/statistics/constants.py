"""What several methods use: types of arrays, and constants that mean the same in each of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DAY_S = 86_400
"""Seconds of a day."""

LEAST_SCATTER = 0.01
"""Smallest scatter of a series (ln): clocks and rounding; a constant series would otherwise have none. Half or twice as
much changes no figure (docs/detection-scores.md)."""

MAD_TO_SD = 1.4826
"""Standard deviation of normal noise / its median absolute deviation, which is the 75 % quantile of the normal
distribution for a standard deviation of 1."""
