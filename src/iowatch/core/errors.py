"""Errors that are reported to the user: what is wrong, where, and what to do about it.

Every error that a user can cause or encounter is an `IowatchError`; the command line prints it as one message
and exits with its `exit_code` (README.md: 2 wrong use or bad input, 3 a failure of the machine).
"""

from __future__ import annotations


class IowatchError(Exception):
    """Base of all errors that are reported to the user without a traceback.

    Args:
        message: what failed, where (file, line, field), what was found and what was expected.
        hint: what to do next; shown on a line of its own.
        reason: key under which such errors are counted, where many inputs are read.
    """

    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.reason = reason

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class UsageError(IowatchError):
    """Wrong use: an invalid option, name or combination."""

    exit_code = 2


class InputError(IowatchError):
    """Bad input: a file that is absent, unreadable, damaged or of another kind than stated."""

    exit_code = 2


class MachineError(IowatchError):
    """A resource of the machine failed or is missing: no MPI, disk full, database locked or foreign."""

    exit_code = 3


def suggest_name(word: str, known: list[str]) -> str:
    """Return a hint that lists the known names and, if there is one, the closest match.

    Args:
        word: the name that the user wrote.
        known: accepted names, in the order to show.
    """
    from difflib import get_close_matches

    listing = ", ".join(known) if known else "none"
    guess = get_close_matches(word, known, n=1)
    return f"Did you mean '{guess[0]}'? Known: {listing}." if guess else f"Known: {listing}."
