"""`iowatch init`: a site's own repository, with the layout that `iowatch.core.settings` reads."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from iowatch.core import UsageError, roots, settings
from iowatch.site import machine

_FOLDERS = ("systems", "suites", "workloads", "stacks", "reference/bandwidth", "events", "reviews", "maps")
# Files of an empty repository of a code host.
_ALLOWED = {".git", "README.md", "LICENSE"}
_TITLE, _ZONE = "title: iowatch\n", "timezone: UTC\n"
# Words of ci/recipes for the directory of the site and the program.
_PLACE, _PROGRAM = "/srv/iowatch", "iowatch nightly"


def write_site(directory: Path, *, title: str | None = None, timezone: str | None = None) -> list[Path]:
    """Write the repository of a site; return its files.

    Args:
        directory: new or empty, without blanks in its path (ReFrame does not support them).
        title: of the pages. timezone: IANA name; None for that of this machine, if it is known.

    Raises:
        UsageError: the directory has other files, or its path has blanks.
    """
    place = directory.absolute()
    if any(character.isspace() for character in str(place)):
        raise UsageError(f"'{place}' has a blank in its path", hint="ReFrame does not support it; choose another.")
    if (place / roots.SITE_FILE).exists():
        raise UsageError(f"{place} is the repository of a site already", hint="Edit its site.yaml.")
    if place.exists() and (not place.is_dir() or {path.name for path in place.iterdir()} - _ALLOWED):
        raise UsageError(
            f"{place} is not empty", hint="Expected a new or an empty directory, for example ~/iowatch-site."
        )
    found = machine.detect_time_zone()
    zone = timezone or (found[0] if found else None)
    texts = {place / name: text for name, text in _site_texts(place, title, zone).items()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(text, encoding="utf-8")
    for name in _FOLDERS:
        (place / name).mkdir(parents=True, exist_ok=True)
        (place / name / ".gitkeep").touch()  # git keeps no empty folders
    return list(texts)


def _site_texts(place: Path, title: str | None, timezone: str | None) -> dict[str, str]:
    """Text by name of each file of a new site."""
    template, recipes = (settings.product_root() / name for name in ("systems/_site", "ci/recipes"))
    texts = {path.relative_to(template).as_posix(): path.read_text(encoding="utf-8") for path in template.rglob("*.*")}
    texts[".gitignore"] = (template / "gitignore").read_text(encoding="utf-8")
    settings_text = texts[roots.SITE_FILE]
    if title is not None:
        settings_text = settings_text.replace(_TITLE, f"title: {json.dumps(title, ensure_ascii=False)}\n")
    texts[roots.SITE_FILE] = settings_text.replace(_ZONE, f"timezone: {timezone}\n") if timezone else settings_text
    here = Path(sys.argv[0]).absolute()  # `__main__.py` with `python -m iowatch`
    program = f"{shlex.quote(sys.executable)} -m iowatch" if here.name == "__main__.py" else shlex.quote(str(here))
    for path in sorted(recipes.iterdir()):
        lines = path.read_text(encoding="utf-8").replace(_PLACE, str(place)).splitlines(keepends=True)
        own = (line if line.startswith("#") else line.replace(_PROGRAM, f"{program} nightly") for line in lines)
        texts[f"ci/{path.name}"] = "".join(lines if path.suffix == ".md" else own)
    return texts
