"""Lasting changes, transients and drift in a noisy series of nights: arrays in, frozen records out.

`detect` judges one series, `detect_many` many at once (much faster than a loop). docs/detection.md describes
the method, its assumptions, its limits and its measured scores.
"""

from iowatch.detect.detector import VERSION, detect, detect_many
from iowatch.detect.records import Change, Detection, Drift, Level, Transient
from iowatch.detect.settings import Settings

__all__ = [
    "VERSION",
    "Change",
    "Detection",
    "Drift",
    "Level",
    "Settings",
    "Transient",
    "detect",
    "detect_many",
]
