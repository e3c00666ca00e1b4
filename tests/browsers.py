"""A headless browser for tests of the report: Debian's chromium with its driver, behind selenium."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
IS_DRAWN = "return document.querySelectorAll('.plot')[arguments[0]].wasDrawn"
LOCAL = ("file:", "data:", "blob:", "about:", "chrome:")


@contextmanager
def chromium():
    """A `Browser` that ends with the block; without the programs the test is skipped, in CI on Linux it fails."""
    driver = shutil.which("chromedriver")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if driver is None or program is None:
        absent = (
            "no headless browser: on Debian apt-get install chromium chromium-driver, or run .ci/browser pytest -m long"
        )
        (pytest.fail if os.environ.get("CI") and sys.platform == "linux" else pytest.skip)(absent)
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="the browser is driven by selenium: pip install selenium"
    )
    with tempfile.TemporaryDirectory(prefix="rbr-browser-", ignore_cleanup_errors=True) as folder:
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for option in (*OPTIONS, f"--user-data-dir={folder}/profile"):
            options.add_argument(option)
        downloads = Path(folder, "downloads")
        downloads.mkdir()
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        own = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            yield Browser(own, downloads)
        finally:
            own.quit()


class Browser:
    """Opens reports, and knows what they asked for and complained of."""

    def __init__(self, driver, downloads: Path):
        self.driver, self.downloads = driver, downloads

    def open(self, file: Path, *, width=1280, height=900, theme="light") -> None:
        """Open a report and wait until it is built."""
        from selenium.webdriver.support.ui import WebDriverWait

        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(file.as_uri())
        WebDriverWait(self.driver, 60).until(lambda _: self.run("return document.documentElement.dataset.ready"))

    def run(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def run_async(self, script: str, *arguments):
        """The value of a promise."""
        done = "const done = arguments[arguments.length - 1];"
        return self.driver.execute_async_script(f"{done} (async () => {{ {script} }})().then(done);", *arguments)

    def show(self, selector: str) -> None:
        """Scroll an element into view and wait until its picture is drawn."""
        from selenium.webdriver.support.ui import WebDriverWait

        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        drawn = "const own = document.querySelector(arguments[0]); return own.wasDrawn && !own.isStale"
        WebDriverWait(self.driver, 30).until(lambda _: self.run(drawn, selector))

    def show_all(self) -> None:
        """Scroll through the page, so that every picture is drawn."""
        from selenium.webdriver.support.ui import WebDriverWait

        for k in range(self.run("return document.querySelectorAll('.plot').length")):
            self.run("document.querySelectorAll('.plot')[arguments[0]].scrollIntoView({block: 'center'})", k)
            WebDriverWait(self.driver, 30).until(lambda _, k=k: self.run(IS_DRAWN, k))

    def complaints(self) -> list[str]:
        """What the console says since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses outside of the file that the page has asked for."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        asked = (e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent")
        return [url for url in asked if not url.startswith(LOCAL)]

    def downloaded(self, name: str) -> Path:
        """A file that the page has saved, once it is whole."""
        from selenium.webdriver.support.ui import WebDriverWait

        file = self.downloads / name
        WebDriverWait(self.driver, 30).until(lambda _: file.exists())
        return file.rename(self.downloads / f"{len(list(self.downloads.iterdir()))}-{name}")
