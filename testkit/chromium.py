"""A headless Chromium, driven through chromedriver by Selenium: opens a page, waits, reads, clicks, takes pictures."""

import base64
import importlib.util
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """Return the path of Chromium, None where it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def missing() -> str:
    """Return what is missing to run the browser, "" for nothing."""
    if program() is None or shutil.which("chromedriver") is None:
        return "no chromium and chromedriver on the PATH (`make debian` installs Debian's)"
    return "" if importlib.util.find_spec("selenium") else "selenium is not installed"


class Browser:
    """One window; no network is needed and none is used."""

    def __init__(self, width: int = 1100, height: int = 900) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = program() or ""
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                         "--disable-background-networking", f"--window-size={width},{height}"):  # fmt: skip
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_script_timeout(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.driver.quit()

    def view(self, *, width: int = 1100, dark: bool = False) -> None:
        """Set the width of the screen (below 600: a phone) and the system's colours."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def open(self, path: Path) -> None:
        """Open a page and draw every figure of it."""
        self.driver.get(path.resolve().as_uri())
        if path.suffix == ".html":
            self.draw_all()

    def draw_all(self) -> None:
        """Draw the figures that are still below the fold, and wait until all are there."""
        self.run("for (const source of document.querySelectorAll('script.figure')) draw(source)")
        self.wait("[...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('.main-svg'))")

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, timeout_s: float = 100) -> None:
        """Wait until a JavaScript expression holds."""
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, timeout_s, poll_frequency=0.05).until(lambda _: self.run(f"return {condition}"))

    def complaints(self) -> list[str]:
        """Return what the console said since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def mouse(self, kind: str, x: float, y: float, buttons: int = 0) -> None:
        """Send a mouse event (mousePressed, mouseMoved, mouseReleased) at a place of the screen."""
        button = "left" if buttons or kind == "mouseReleased" else "none"
        self.driver.execute_cdp_cmd(
            "Input.dispatchMouseEvent",
            {"type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1},
        )

    def hover(self, plot: str, name: str) -> str:
        """Point at the first measured bar of this name in a timeline, a JavaScript expression; return what it tells."""
        self.run(f"{plot}.scrollIntoView({{block: 'center'}})")
        box = self.run(
            f"const trace = {plot}.data.findIndex((t) => t.name === arguments[0] && t.marker.opacity === 1);"
            f"const b = {plot}.querySelectorAll('.trace.bars')[trace].querySelector('path').getBoundingClientRect();"
            "return {x: b.x + b.width / 2, y: b.y + b.height / 2}",
            name,
        )
        self.mouse("mouseMoved", box["x"] - 1, box["y"])
        self.mouse("mouseMoved", box["x"], box["y"])
        self.wait(f"{plot}.querySelector('.hovertext')")
        return str(self.run(f"return {plot}.querySelector('.hovertext').textContent"))

    def whole(self, path: Path) -> None:
        """Write a PNG of the whole page, or of the whole SVG document."""
        size = self.run(
            "const root = document.documentElement; const box = root.getBoundingClientRect();"
            "return root.localName === 'svg' ? [box.width, box.height] : [innerWidth, root.scrollHeight]"
        )
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(shot["data"]))

    def screen(self, path: Path) -> None:
        """Write a PNG of what the screen shows."""
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {})
        path.write_bytes(base64.b64decode(shot["data"]))

    def picture(self, selector: str, path: Path) -> None:
        """Write a PNG of the first element that `selector` finds."""
        box = self.run(
            "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
            "return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height}",
            selector,
        )
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": {**box, "scale": 1}}
        )
        path.write_bytes(base64.b64decode(shot["data"]))
