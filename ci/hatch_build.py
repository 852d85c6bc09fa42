"""Build hook of hatchling: writes the commit to `iowatch._version`, for `iowatch --version` of an installed wheel.

That of hatch-vcs knows the commit of versions between tags only.
"""

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "src/iowatch/_version.py"


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """In a source distribution, which is no clone, the file exists already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file, and add it to the distribution although git ignores it."""
        place, words = Path(self.root, NAME), ["describe", "--always", "--dirty", "--exclude=*", "--abbrev=9"]
        if Path(self.root, ".git").exists():
            done = subprocess.run(["git", "-C", self.root, *words], capture_output=True, text=True, check=True)
            place.write_text(f'commit_id: str | None = "{done.stdout.strip()}"\n')
        if place.exists():
            build_data["artifacts"].append(f"/{NAME}")
