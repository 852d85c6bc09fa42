"""A real browser for tests: Debian's Chromium through Selenium; or the reason why it cannot be used."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime
from importlib import resources, util
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def unusable() -> str | None:
    """Why no browser can be used, or None."""
    if not any(_runs(name) for name in CHROMIUM):
        return "needs a browser: apt-get install chromium chromium-driver"
    if not _runs("chromedriver"):
        return "needs chromedriver: apt-get install chromium-driver"
    return None if util.find_spec("selenium") else "needs selenium (requirements-dev.lock)"


def _runs(name: str) -> bool:
    """Ubuntu's packages of Chromium are scripts that need a snap."""
    program = shutil.which(name)
    return program is not None and subprocess.run([program, "--version"], capture_output=True).returncode == 0


class Browser:
    """A headless Chromium that keeps what pages write to the console."""

    def __enter__(self) -> Browser:
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = next(path for name in CHROMIUM if _runs(name) and (path := shutil.which(name)))
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_script_timeout(60)
        self._clocks: list[str] = []
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def open(self, page: Path, fragment: str = "") -> None:
        """Open a page from the file system, without a web server."""
        self.driver.get("about:blank")
        self.driver.get(page.as_uri() + fragment)

    def run(self, script: str, *values: object) -> Any:
        """Run a script in the page and return its value."""
        return self.driver.execute_script(script, *values)

    def wait(self, script: str, *values: object) -> None:
        """Wait until the value of a script is true."""
        from selenium.webdriver.support.wait import WebDriverWait

        done: Callable[[Any], Any] = lambda driver: driver.execute_script(script, *values)  # noqa: E731
        WebDriverWait(self.driver, 60, 0.05).until(done)

    def messages(self) -> list[str]:
        """Console messages of pages since the last call: warnings, errors, violations of the policy."""
        log: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in log if entry["level"] in ("SEVERE", "WARNING")]

    def accessibility_faults(self, **rules: object) -> list[str]:
        """Violations that axe finds in the open page, each with its first element; `rules` limit what it looks for."""
        if util.find_spec("axe_core_python") is None:
            pytest.skip("needs axe-core-python (requirements-dev.lock)")
        self.run((resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
        found: list[str] = self.driver.execute_async_script(  # type: ignore[no-untyped-call]
            "const [rules, done] = arguments; axe.run({resultTypes: ['violations'], ...rules})"
            ".then(r => done(r.violations.map(v => `${v.id}: ${v.nodes[0].html}`)))",
            rules,
        )
        return found

    def resize(self, width: int, height: int) -> None:
        """Set the size of the page in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def clock(self, now: datetime | None) -> None:
        """Let pages that are opened from now on think that it is this moment; None: the true time."""
        for one in self._clocks:
            self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": one})
        self._clocks = []
        if now is not None:
            script = {"source": f"Date.now = () => {now.timestamp() * 1000:.0f}"}
            self._clocks = [self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", script)["identifier"]]

    def scheme(self, name: str) -> None:
        """Request light or dark colours."""
        features = {"features": [{"name": "prefers-color-scheme", "value": name}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)

    def picture(self, target: Path, width: int, most_height: int = 2400) -> None:
        """Save a screenshot of the page at a width, with the height of the page up to a limit."""
        self.resize(width, 900)
        height = min(int(self.run("return document.documentElement.scrollHeight")), most_height)
        self.resize(width, height)
        self.driver.save_screenshot(str(target))
