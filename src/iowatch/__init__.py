"""iowatch: regression and performance monitoring for parallel I/O on HPC systems."""

import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Return the version when it is first used; to import the metadata of packages takes longer than this one."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("iowatch")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"


def describe_version() -> str:
    """Return version and commit: of the clone, as git describes it now, or of the build (`0.2.0, commit 1a2b3c4`)."""
    number = __getattr__("__version__")
    clone = Path(__file__).parents[2]
    if (clone / ".git").exists():
        words = ["git", "-C", str(clone), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=9"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            return f"{number}, commit unknown"
        return f"{number.partition('+')[0]}, commit {done.stdout.strip()}"
    try:
        commit = import_module("iowatch._version").commit_id  # written by the build
    except ImportError:
        commit = None
    found = commit or next(iter(re.findall(r"\+g?([0-9a-f]{7,})", number)), "unknown")
    return f"{number.partition('+')[0]}, commit {str(found).removeprefix('g')}"
