"""Who decides: the name that git would write, else the login name."""

from __future__ import annotations

import getpass
import subprocess


def author() -> str:
    """Name of the person at the keyboard."""
    try:
        found = subprocess.run(
            ["git", "config", "user.name"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return getpass.getuser()
    return found.stdout.strip() or getpass.getuser()
