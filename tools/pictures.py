"""The pictures of the documentation, each made by the commands that it shows.

    python tools/pictures.py [NAME ...]     renews docs/images, or only these

Pages are photographed in Chromium after the commands have run in an empty directory.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# In the place of tools/, to import from tests/.
sys.path[0] = str(ROOT)

from PIL import Image  # noqa: E402
from tests.output.dashboard.browser import Browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"


@dataclass(frozen=True)
class Picture:
    """A picture of a page of the dashboard after `iowatch` ran with these words; or a file that a program draws."""

    commands: tuple[str, ...]
    page: str = ""
    height: int = 0


_BUILD = "dashboard build --db var/demo-{0}.db"
PICTURES = {
    "status-franklin.png": Picture(("demo franklin", _BUILD.format("franklin")), "index.html", 860),
    "heat-map-edison.png": Picture(("demo edison", _BUILD.format("edison")), "overview/edison.html", 640),
    "edison-shared-reads.svg": Picture(("bench/statistics/detect_edison.py --plot",)),
    "edison-per-process-writes.svg": Picture(("bench/statistics/detect_edison.py --plot",)),
    "panel-reliability.svg": Picture(("bench/statistics/panels.py",)),
}
WIDTH = 1280


def make_picture(name: str, picture: Picture) -> None:
    """Run the commands and write docs/images/NAME."""
    if not picture.page:
        subprocess.run([sys.executable, *shlex.split(picture.commands[0])], cwd=ROOT, check=True)
        return
    with tempfile.TemporaryDirectory() as site, Browser() as browser:
        Path(site, "site.yaml").write_text("title: iowatch\n")
        for command in picture.commands:
            print(f"iowatch {command}", file=sys.stderr)
            words = [sys.executable, "-m", "iowatch", "--quiet", *shlex.split(command)]
            settings = {key: value for key, value in os.environ.items() if not key.startswith("IOWATCH_")}
            subprocess.run(words, cwd=site, env=settings, check=True, stdout=subprocess.DEVNULL)
        browser.resize(WIDTH, picture.height)
        browser.open(Path(site, "var", "site", picture.page))
        browser.wait("return document.readyState === 'complete' && !document.querySelector('[data-drawn=no]')")
        browser.driver.save_screenshot(str(IMAGES / name))
    # 256 colours: a third of the size.
    with Image.open(IMAGES / name) as taken:
        taken.convert("RGB").quantize(256).save(IMAGES / name, optimize=True)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or PICTURES:
        make_picture(chosen, PICTURES[chosen])
