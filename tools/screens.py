"""Screenshots of every kind of page on six mornings, for a person to look at, and what a browser can check of them.

    python tools/screens.py [MORNING ...]     writes var/screenshots/MORNING/PAGE-VARIANT.png

Variants: 1440 and 390 pixels wide, dark, print. A page that scrolls sideways on a phone, or writes to the console, is
reported, and the exit code is 1. Franklin and Edison are made by `iowatch demo`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# In the place of tools/, to import from tests/.
sys.path[0] = str(ROOT)

from tests.output.dashboard import mornings  # noqa: E402
from tests.output.dashboard.browser import Browser  # noqa: E402

# Width, colour scheme and medium of each variant.
VARIANTS = {
    "1440": (1440, "light", "screen"),
    "390": (390, "light", "screen"),
    "dark": (1440, "dark", "screen"),
    "print": (1000, "light", "print"),
}
_MOST_HEIGHT = 6000


def demonstration(name: str, place: Path) -> Path:
    """The site of a demonstration."""
    for words in (
        ("demo", name, "--db", "history.db"),
        ("dashboard", "build", "--db", "history.db", "--output", "site"),
    ):
        subprocess.run([sys.executable, "-m", "iowatch", "--quiet", *words], cwd=place, check=True, stdout=-3)
    return place / "site"


MORNINGS: dict[str, Callable[[Path], Path]] = {
    "first-session": partial(mornings.build, kind=mornings.first_session),
    "twenty-quiet-sessions": partial(mornings.build, kind=mornings.quiet),
    "first-bad-morning": partial(mornings.build, kind=mornings.first_bad_morning),
    "eight-systems": partial(mornings.build, kind=mornings.eight_systems),
    "franklin": partial(demonstration, "franklin"),
    "edison": partial(demonstration, "edison"),
}


def one_of_each(site: Path) -> Iterator[Path]:
    """All pages of the top folder, and the last page, by name, of each other folder: the newest session."""
    yield from sorted(site.glob("*.html"))
    for folder in sorted(path for path in site.iterdir() if path.is_dir() and path.name not in ("static", "darshan")):
        yield from sorted(folder.glob("*.html"))[-1:]


def built_at(site: Path) -> datetime:
    """Some hours after the newest session of the site: what an administrator sees in the morning."""
    text = (site / "index.html").read_text(encoding="utf-8")
    found = re.search(r'newest session <time datetime="([^"]+)"', text)
    if found is None:
        raise SystemExit(f"{site / 'index.html'} does not state its newest session")
    return datetime.fromisoformat(found[1]) + timedelta(hours=8)


def photograph(browser: Browser, page: Path, variant: str, target: Path) -> list[str]:
    """Save one picture; returns the faults."""
    width, scheme, medium = VARIANTS[variant]
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": features})
    browser.resize(width, 900)
    browser.open(page)
    if page.parent.name == "series":
        browser.wait("return document.documentElement.dataset.drawn === 'yes'")
    faults = [f"console: {message}" for message in browser.messages()]
    needed = browser.run("return document.documentElement.scrollWidth")
    faults += [f"{needed} pixels wide on {width}"] if needed > width and medium == "screen" else []
    target.parent.mkdir(parents=True, exist_ok=True)
    browser.picture(target, width, _MOST_HEIGHT)
    return faults


def main(names: list[str]) -> int:
    """Photograph the pages of these mornings; returns the exit code."""
    faults = 0
    for name in names:
        with tempfile.TemporaryDirectory() as place, Browser() as browser:
            site = MORNINGS[name](Path(place))
            browser.clock(built_at(site))
            for page in one_of_each(site):
                called = page.stem if page.parent == site else f"one-{page.parent.name}"
                for variant in VARIANTS:
                    target = ROOT / "var" / "screenshots" / name / f"{called}-{variant}.png"
                    for fault in photograph(browser, page, variant, target):
                        faults += 1
                        print(f"{name}: {page.relative_to(site)} ({variant}): {fault}")
        print(f"{name}: var/screenshots/{name}/", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(MORNINGS)))
