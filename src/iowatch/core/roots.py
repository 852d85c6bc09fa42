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
        UsageError: `IOWATCH_SITE` is not a directory or an empty one, or others can write the directory that was found.
    """
    if named := os.environ.get("IOWATCH_SITE"):
        named_site = Path(named).absolute()
        if not named_site.is_dir():
            raise UsageError(f"IOWATCH_SITE is {named}, which is not a directory", hint=f"iowatch init {named}")
        if not (named_site / SITE_FILE).is_file() and not _may_lack_site_file(named_site):
            raise UsageError(
                f"IOWATCH_SITE is {named}, which has no {SITE_FILE}",
                hint=f"Is its file system mounted? `iowatch init {named}` makes a new site there.",
            )
        return named_site
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
    return _personal_site()


def _personal_site() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "iowatch"


def _may_lack_site_file(directory: Path) -> bool:
    """Whether a directory is a site without `site.yaml`: a clone, a site of an account, or one of systems only.

    An empty directory is none: it is the mount point of a site that is not mounted.
    """
    if directory in (product_root().absolute(), _personal_site()):
        return True
    return any(directory.iterdir())


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
