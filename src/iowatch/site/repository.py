"""`iowatch init`: a site's own repository, with the layout that `iowatch.core.settings` reads."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

from iowatch.core import UsageError, roots, settings
from iowatch.site import machine
from iowatch.site.system import SYSTEM_PLACEHOLDER

_FOLDERS = ("systems", "suites", "workloads", "stacks", "reference/bandwidth", "events", "reviews", "maps")
# Files of an empty repository of a code host.
_ALLOWED = {".git", "README.md", "LICENSE"}
# Lines of its template that have the title and the time zone.
_TITLE, _ZONE = "title: iowatch\n", "timezone: UTC\n"
# Words of ci/recipes for the directory of the site and the program.
_SITE_DIRECTORY, _PROGRAM = "/srv/iowatch", re.compile(r"\biowatch (?=nightly |pulse )")


def write_site(directory: Path, *, title: str | None = None, timezone: str | None = None) -> list[Path]:
    """Write the repository of a site; return its files.

    Args:
        directory: new or empty, without blanks in its path (ReFrame does not support them).
        title: of the pages. timezone: IANA name; None for that of this machine, if it is known.

    Raises:
        UsageError: the directory has other files, or its path has blanks.
    """
    site = directory.absolute()
    if any(character.isspace() for character in str(site)):
        raise UsageError(f"'{site}' has a blank in its path", hint="ReFrame does not support it; choose another.")
    if (site / roots.SITE_FILE).exists():
        raise UsageError(f"{site} is the repository of a site already", hint="Edit its site.yaml.")
    if site.exists() and not _is_empty_repository(site):
        raise UsageError(
            f"{site} is not empty", hint="Expected a new or an empty directory, for example ~/iowatch-site."
        )
    if not timezone:
        detected = machine.detect_time_zone()
        if detected:
            timezone = detected.name
    files = []
    for name, text in _site_texts(site, title, timezone).items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(text, encoding="utf-8")
        files.append(path)
    for name in _FOLDERS:
        (site / name).mkdir(parents=True, exist_ok=True)
        (site / name / ".gitkeep").touch()  # git keeps no empty folders
    return files


def _is_empty_repository(directory: Path) -> bool:
    if not directory.is_dir():
        return False
    return {path.name for path in directory.iterdir()} <= _ALLOWED


def _site_texts(site: Path, title: str | None, timezone: str | None) -> dict[str, str]:
    """Text by name of each file of a new site."""
    template = settings.product_root() / "systems/_site"
    texts = {path.relative_to(template).as_posix(): path.read_text(encoding="utf-8") for path in template.rglob("*.*")}
    texts[".gitignore"] = (template / "gitignore").read_text(encoding="utf-8")
    # site.yaml has the answers.
    site_file = texts[roots.SITE_FILE]
    if title is not None:
        site_file = site_file.replace(_TITLE, f"title: {json.dumps(title, ensure_ascii=False)}\n")
    if timezone:
        site_file = site_file.replace(_ZONE, f"timezone: {timezone}\n")
    texts[roots.SITE_FILE] = site_file
    for path in sorted((settings.product_root() / "ci/recipes").iterdir()):
        text = path.read_text(encoding="utf-8").replace(_SITE_DIRECTORY, str(site))
        if path.suffix != ".md":
            text = _with_program(text)
        texts[f"ci/{path.name}"] = text
    return texts


_SYSTEM_OPTION = re.compile(rf"(?<=--system[ =]){SYSTEM_PLACEHOLDER}\b")


def name_system_in_recipes(system: str) -> list[Path]:
    """Write the name of a system into the files for schedulers of the site where they have none yet; return these.

    They have the placeholder until the first system is described. iowatch's own files are not changed.
    """
    directory = settings.site_root() / "ci"
    if settings.site_root() == settings.product_root() or not directory.is_dir():
        return []
    named_files: list[Path] = []
    for path in sorted(directory.iterdir()):
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        named = _SYSTEM_OPTION.sub(system, text)
        if named != text:
            path.write_text(named, encoding="utf-8")
            named_files.append(path)
    return named_files


def fill_recipe(recipe: str, site: Path, system: str) -> str:
    """Return a file for a scheduler with the directory of the site, this installation of iowatch, and the system."""
    text = _with_program(recipe.replace(_SITE_DIRECTORY, str(site)))
    return _SYSTEM_OPTION.sub(system, text)


def _with_program(recipe: str) -> str:
    """Return a recipe that starts this installation of iowatch; its comments are unchanged."""
    started_as = Path(sys.argv[0]).absolute()
    program = shlex.quote(str(started_as))
    if started_as.name == "__main__.py":
        program = f"{shlex.quote(sys.executable)} -m iowatch"
    lines = []
    for line in recipe.splitlines(keepends=True):
        if not line.startswith("#"):
            line = _PROGRAM.sub(lambda _: f"{program} ", line)
        lines.append(line)
    return "".join(lines)
