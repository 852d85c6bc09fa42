"""Packages that only some commands need: the extras of pyproject.toml, and the error of a command that lacks one."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass

from iowatch.core.errors import UsageError


@dataclass(frozen=True)
class Extra:
    """An optional set of packages.

    Attributes:
        name: as pip has it in `iowatch[name]`.
        requirements: as in pyproject.toml; a test compares them.
    """

    name: str
    requirements: tuple[str, ...]

    @property
    def install_command(self) -> str:
        """The command that adds the packages to this Python, whatever iowatch was installed from."""
        return shlex.join([sys.executable, "-m", "pip", "install", *self.requirements])


# PyDarshan's report, and pictures of traces. Reading a log needs PyDarshan's library only (`iowatch.darshan.log`).
PAGES = Extra("pages", ("darshan>=3.4.7", "mako>=1.3", "matplotlib>=3.8", "pandas>=2.1"))


class MissingExtraError(UsageError):
    """A command needs packages of an extra that this installation does not have."""


def missing_extra_error(purpose: str, extra: Extra, error: ImportError) -> MissingExtraError:
    """Return the error of a command whose packages cannot be imported.

    Args:
        purpose: what needs them, as the subject of a sentence: `the timeline of a trace`.
        error: of the import; it names the first absent package.
    """
    package = (error.name or str(error)).partition(".")[0]
    return MissingExtraError(
        f"{purpose} needs {package}, which is not installed: it belongs to the extra iowatch[{extra.name}]",
        hint=f"Add it with: {extra.install_command}",
    )
