"""What starts a nightly session: the scheduler of this machine, and the lines for it that name a system.

The lines are those of `ci/recipes`, with the directories, the program and the system of this installation.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from iowatch.core import settings
from iowatch.site import repository

_CRON_PROGRAMS = ("cron", "crond", "fcron", "anacron")
_CRON_FILE, _SERVICE_FILES = "iowatch.cron", ("iowatch.service", "iowatch.timer")
# sd_booted(3)
_SYSTEMD_RUNS = Path("/run/systemd/system")
# A line of /etc/cron.d: five fields of time, the account, the command.
_CRON_LINE = re.compile(r"(?P<time>(?:\S+ ){5})\S+ (?P<command>cd .*)")


@dataclass(frozen=True, slots=True)
class NightlySchedule:
    """What a person enters once, so that iowatch runs every night.

    Attributes:
        scheduler: `cron`: a line for `crontab -e`; `systemd`: commands of the administrator.
        lines: ready to paste.
        edited: the file to look at before; None if there is none.
    """

    scheduler: Literal["cron", "systemd"]
    lines: tuple[str, ...]
    edited: str | None = None


def nightly_schedule(system: str) -> NightlySchedule | None:
    """Return what runs the nightly suite of a system on this machine: cron, or systemd where there is no cron.

    None without the recipe, for example with a part of a clone as `IOWATCH_ROOT`.
    """
    site_directory = settings.site_root() / "ci"
    unit_files = [str(site_directory / name) for name in _SERVICE_FILES]
    has_unit_files = all(Path(file).is_file() for file in unit_files)
    if shutil.which("crontab") is None and _SYSTEMD_RUNS.is_dir() and has_unit_files:
        copied = shlex.join(unit_files)
        return NightlySchedule(
            "systemd",
            (f"sudo cp {copied} /etc/systemd/system/", "sudo systemctl enable --now iowatch.timer"),
            edited=unit_files[0],
        )
    line = _cron_line(system)
    return None if line is None else NightlySchedule("cron", (line,))


def _cron_line(system: str) -> str | None:
    """Return the line of the recipe for the crontab of this account, which has no field for the account."""
    try:
        recipe = (settings.product_root() / "ci" / "recipes" / _CRON_FILE).read_text(encoding="utf-8")
    except OSError:
        return None
    text = repository.fill_recipe(recipe, settings.site_root().absolute(), system)
    for line in text.splitlines():
        match = _CRON_LINE.fullmatch(line)
        if match is not None:
            directory, separator, command = match["command"].partition(" && ")
            suggested = f"{match['time']}{directory}{separator}{_changed_settings()}{command}"
            # cron turns an unescaped % into a line break (crontab(5)).
            return suggested.replace("%", r"\%")
    return None


def _changed_settings() -> str:
    """Return assignments of what this environment sets otherwise than the site: `IOWATCH_VAR=/data `.

    The URL of a database is left out, because it may have a password.
    """
    site, stated = settings.site_root().absolute(), settings.stated_settings()
    paths: dict[str, Path] = {}
    var = settings.var_directory().absolute()
    if var != _in_site(site, stated.var):
        paths["IOWATCH_VAR"] = var
    database = settings.database_place()
    usual_databases = [var / "iowatch.db"]
    if stated.database is not None:
        usual_databases.append(_in_site(site, stated.database))
    if "://" not in database and Path(database).absolute() not in usual_databases:
        paths["IOWATCH_DB"] = Path(database).absolute()
    scratch = os.environ.get(settings.SCRATCH_VARIABLE)
    if scratch:
        paths[settings.SCRATCH_VARIABLE] = Path(scratch).absolute()
    assignments = [f"{variable}={shlex.quote(str(path))} " for variable, path in paths.items()]
    return "".join(assignments)


def _in_site(site: Path, stated: str) -> Path:
    """Return a path of `site.yaml`, which may be relative to the site and name variables."""
    return site / os.path.expandvars(Path(stated).expanduser())


def current_scheduler() -> str | None:
    """Return what started this process: `cron`, `Slurm`, `systemd` or `CI`; None for a person, or if it is unknown."""
    if any(name in _CRON_PROGRAMS for name in _names_of_ancestors()):
        return "cron"
    if os.environ.get("CI"):
        return "CI"
    if _has_terminal():
        return None
    if os.environ.get("SLURM_JOB_ID"):
        return "Slurm"
    # The last part is the unit of a service, while logins are in scopes.
    if os.environ.get("INVOCATION_ID") and _control_group().endswith(".service"):
        return "systemd"
    return None


def _names_of_ancestors() -> Iterator[str]:
    """Yield the program names of the parent of this process, of its parent, and so on."""
    process = os.getppid()
    while process > 0:
        try:
            text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        # `12 (cron) S 1 …`: the name may have blanks and parentheses; the parent is the second word after it.
        before, _, after = text.rpartition(")")
        yield before.partition("(")[2]
        process = int(after.split()[1])


def _has_terminal() -> bool:
    """Return whether the session of this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _control_group() -> str:
    """Return the control group of this process, as in /proc/self/cgroup; empty if unknown."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return lines[-1].rpartition(":")[2] if lines else ""
