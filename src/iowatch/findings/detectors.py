"""Detectors by name: those of the statistics, then those that plugins of a site add.

The registry is not part of the statistics, which know nothing of sites and plugins.
"""

from __future__ import annotations

import hashlib

from iowatch.core import UsageError, plugins, suggest_name
from iowatch.statistics import METHODS, Detector

DETECTORS = plugins.Registry(Detector, METHODS.values())


def get_detector(name: str) -> Detector:
    """Return the detector of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in DETECTORS:
        raise UsageError(f"no detection method '{name}'", hint=suggest_name(name, [*DETECTORS]))
    return DETECTORS[name]


def runs_in_workers(detector: Detector) -> bool:
    """Whether worker processes can use a detector.

    They import its function by the name of the module. The modules of plugins exist only where plugins were loaded,
    and the function of a plugin may be one that no other process can import, for example a lambda or a method. So
    detectors of plugins run in this process, which loaded them: slower for a long history, and never wrong.
    """
    return detector.name in METHODS


# Longest name and version of a detector in the key of a stored detection: the column has 40 characters.
_KEY_CHARACTERS = 10


def detector_key(detector: Detector) -> str:
    """Return name and version of a detector as a key that is short enough for the history."""
    key = f"{detector.name}-{detector.version}"
    if len(key) <= _KEY_CHARACTERS:
        return key
    return hashlib.sha256(key.encode()).hexdigest()[:_KEY_CHARACTERS]
