"""Directories of the product's own files and of the site's, and which of their code may run.

Apart from the settings because `iowatch --help` needs them to find plugins, and pydantic takes long to import.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from iowatch.core import files
from iowatch.core.errors import MachineError, UsageError

SITE_FILE = "site.yaml"


def _is_product(directory: Path) -> bool:
    return (directory / "systems").is_dir() and (directory / "benchmarks").is_dir()


def product_root() -> Path:
    """Return the directory of the product's own files: the clone, or `iowatch/data` of an installed wheel.

    Raises:
        MachineError: `IOWATCH_ROOT` names another directory, or the installation is incomplete.
    """
    if named := os.environ.get("IOWATCH_ROOT"):
        if not _is_product(Path(named)):
            raise MachineError(f"IOWATCH_ROOT is {named}, which has no systems/ and benchmarks/", hint="Unset it.")
        return Path(named)
    return _installed_root()


@cache
def _installed_root() -> Path:
    """The directory beside this package, looked up once: every page asks for it a thousand times."""
    package = Path(__file__).resolve().parents[1]
    for directory in (package / "data", package.parents[1]):
        if _is_product(directory):
            return directory
    raise MachineError(f"the installation in {package} is incomplete: no data/", hint="Install iowatch again.")


def is_clone() -> bool:
    """Whether the product's files are those of a clone, not of an installed wheel."""
    return product_root().name != "data"


def site_root() -> Path:
    """Return the directory of the site's files.

    It is `IOWATCH_SITE`, or the nearest parent of the working directory with a `site.yaml`, or the clone from which
    iowatch runs, or `iowatch` in `XDG_DATA_HOME` (`~/.local/share`).

    Raises:
        UsageError: `IOWATCH_SITE` is not a directory, or others can write the directory that was found.
    """
    if named := os.environ.get("IOWATCH_SITE"):
        if not Path(named).is_dir():
            raise UsageError(f"IOWATCH_SITE is {named}, which is not a directory", hint=f"iowatch init {named}")
        return Path(named).absolute()
    here = Path.cwd()
    site = next((directory for directory in (here, *here.parents) if (directory / SITE_FILE).is_file()), None)
    if site is not None and not os.environ.get("IOWATCH_ROOT"):
        # A site.yaml names programs, databases and directories; anybody could put one into a parent such as /tmp.
        reason = files.writable_by_others(site)
        if reason and os.environ.get("IOWATCH_TRUSTED_SITE") != str(site):
            hint = f"If that is intended, set IOWATCH_TRUSTED_SITE={site}; IOWATCH_SITE names another repository."
            raise UsageError(f"{site / SITE_FILE} is not used: {site} {reason}", hint=hint)
        return site
    if is_clone():
        return product_root()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "iowatch"


def untrusted_reason(path: Path) -> str | None:
    """Return why code of the site's repository must not be executed, or None.

    Whoever can write it could run programs as this user, for example with a `site.yaml` in /tmp. The file, and the
    directories from the repository on, must belong to this account or root, and no other account may write them;
    `IOWATCH_TRUSTED_SITE` names a repository for which that is intended.
    """
    site = site_root()
    if path.is_relative_to(product_root()):  # its other code runs already
        return None
    if not path.is_relative_to(site) or os.environ.get("IOWATCH_TRUSTED_SITE") == str(site):
        return None
    parents_in_site = [parent for parent in path.parents if parent.is_relative_to(site)]
    for examined in (path, *parents_in_site):
        reason = files.writable_by_others(examined)
        if reason:
            return f"{path} is not executed: {examined} {reason}; if that is intended, set IOWATCH_TRUSTED_SITE={site}"
    return None
