"""Who decides: the name that git would write, else the login name."""

from __future__ import annotations

import getpass
import subprocess

from iowatch.errors import UsageError


def author() -> str:
    """Name of the person at the keyboard.

    Raises:
        UsageError: neither git nor the machine knows one, as in a container with a bare user number.
    """
    try:
        found = subprocess.run(
            ["git", "config", "user.name"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        found = ""
    try:
        return found or getpass.getuser()
    except (KeyError, OSError) as error:
        raise UsageError("nobody knows your name", hint="Add --by NAME, or set git's user.name.") from error
