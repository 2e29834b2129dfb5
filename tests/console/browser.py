"""A real Chromium, and the console of a stack."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from axe_core_python.base import AXE_SCRIPT  # type: ignore[import-untyped]
from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.waiting import PATIENCE_SECONDS

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # the tests may run as root, with pages of their own only
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--window-size=1280,900",
)
MOVED = (
    StaleElementReferenceException,
    NoSuchElementException,
    ElementClickInterceptedException,
    ElementNotInteractableException,
)
"""The page has replaced the element meanwhile, or a line above has moved it."""
VISIBLE_TEXT = """return [...document.querySelectorAll(arguments[0])]
    .map((each) => each.checkVisibility({visibilityProperty: true}) ? each.innerText : "").join("\\n")"""
"""The text of the elements, as the browser knows it. `WebElement.text` finds it out by a script that takes longer."""
MOST_PAUSE_SECONDS = 0.5
WIDTHS = (1280, 640, 320)
"""pixels of a desktop, the same at 200 %, and a telephone"""
RULES_OF_COLOURS = ("color-contrast", "link-in-text-block")
"""the rules of axe whose answer depends on colours"""
VIOLATIONS = """const done = arguments[1];
axe.run(arguments[0]).then(
    (found) => done(found.violations.map((each) => [each.id, each.nodes.map((node) => node.target)])),
    (error) => done([String(error)]))"""
"""Returns no more of axe's result than tests look at: everything is 150 kB."""
MISFITS = """const wider = document.documentElement.scrollWidth - innerWidth;
const unseen = [...document.querySelectorAll("td.message")]
    .filter((each) => each.textContent.trim() && each.getBoundingClientRect().right > innerWidth + 1);
return [...(wider > 0 ? [`${wider} pixels`] : []), ...unseen.map((each) => each.textContent)]"""
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]+/")


@contextmanager
def chromium(*more: str) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for each in (*OPTIONS, *more):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@contextmanager
def running_console(kubeconfig: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`poolhouse console`, with its address."""
    command = [
        sys.executable,
        "-P",
        "-u",
        "-m",
        "poolhouse.cli.main",
        "console",
        "--kubeconfig",
        str(kubeconfig),
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = ADDRESS.search(line)
            assert found, f"no address in {line!r}"
            yield found[0].rstrip("/"), process
        finally:
            process.terminate()


class Browser:
    """What a user does and sees. Every look waits, because the page changes by itself."""

    def __init__(self, driver: webdriver.Chrome, root: str) -> None:
        self.driver, self.root = driver, root

    def open(self, path: str) -> None:
        self.driver.get(self.root + path)

    def text(self, css: str = "main") -> str:
        """What a user reads there, now."""
        text: str = self.driver.execute_script(VISIBLE_TEXT, css)
        lines = text.replace("\t", " ").replace("\u00a0", " ").splitlines()
        return "\n".join(filter(None, map(str.strip, lines)))

    def reads(self, *parts: str, css: str = "main") -> None:
        """Waits until the texts are on the page."""

        def shown() -> bool:
            text = self.text(css)
            return all(part in text for part in parts)

        self.until(shown, lambda: f"{parts} in:\n{self.text(css)}")

    def until(self, done: Callable[[], Any], what: Callable[[], str]) -> None:
        end, pause = time.monotonic() + PATIENCE_SECONDS, 0.05
        while True:
            try:
                if done():
                    return
            except MOVED:
                pass
            assert time.monotonic() < end, what()
            time.sleep(pause)
            pause = min(1.5 * pause, MOST_PAUSE_SECONDS)

    def click(self, css: str, text: str = "") -> None:
        def clicked() -> bool:
            for each in self.driver.find_elements(By.CSS_SELECTOR, css):
                if text in each.text and each.is_displayed():
                    each.click()
                    return True
            return False

        self.until(clicked, lambda: f"no {css} with {text!r} in:\n{self.text()}")

    def fill(self, css: str, value: str) -> None:
        def filled() -> bool:
            element = self.driver.find_element(By.CSS_SELECTOR, css)
            element.clear()
            element.send_keys(value)
            return element.get_attribute("value") == value

        self.until(filled, lambda: f"no field {css} in:\n{self.text()}")

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def disabled(self, css: str) -> list[bool]:
        """Whether each of the buttons is disabled, all at one moment: the page replaces its buttons when it changes."""
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.disabled)"
        return self.driver.execute_script(script, css)  # type: ignore[no-any-return]

    def edit(self, before: str, after: str) -> None:
        """Replaces a text in the YAML."""
        script = "const t = document.getElementById('yaml'); t.value = t.value.replace(arguments[0], arguments[1])"
        assert before in (self.driver.find_element(By.ID, "yaml").get_attribute("value") or "")
        self.driver.execute_script(script, before, after)

    def press(self, key: str) -> None:
        ActionChains(self.driver).send_keys(
            {"enter": Keys.ENTER, "escape": Keys.ESCAPE, "tab": Keys.TAB}[key]
        ).perform()

    def focused(self) -> str:
        """The text of the element that has the focus, or the name of a field."""
        element = self.driver.switch_to.active_element
        return str(element.get_attribute("name") or element.text)

    def tab_to(self, text: str) -> None:
        for _ in range(60):
            self.press("tab")
            with suppress(*MOVED):
                if self.focused() == text:
                    return
        raise AssertionError(f"the tabulator does not reach {text!r}")

    def act(self, label: str, **values: str) -> str:
        """Opens the form of an act, fills it and sends it. Returns the kubectl command that the form showed."""
        self.until(lambda: self._opened(label), lambda: f"no act {label!r} in:\n{self.text()}")
        for name, value in values.items():
            self.fill(f"form:popover-open input[name={name}]", value)
        command = self.text("form:popover-open .command code")
        self.click("form:popover-open button.primary")
        return command

    def ask(self, label: str) -> None:
        """Opens the question of an act that needs no value."""
        self.until(lambda: self._asked(label), lambda: f"no question of {label!r} in:\n{self.text()}")

    def _asked(self, label: str) -> bool:
        for each in self.all(".asks button"):
            if label in each.text:
                each.click()
        return bool(self.all("form.confirm"))

    def _opened(self, label: str) -> bool:
        """Whether the form of an act is open. A line above may move the button away under a click."""
        for each in self.all(".acts > button"):
            if label in each.text and not self.all("form:popover-open"):
                each.click()
        return bool(self.all("form:popover-open"))

    def errors(self) -> Sequence[str]:
        """Messages of the browser's console: refused scripts and styles, failed requests, exceptions."""
        return [each["message"] for each in self.driver.get_log("browser") if each["level"] in ("SEVERE", "WARNING")]

    def misfits(self) -> dict[int, list[str]]:
        """What windows of these widths show only after scrolling to the right: the pixels that the page is wider, and
        the messages of tables."""
        found = {}
        for width in WIDTHS:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            found[width] = self.driver.execute_script(MISFITS)
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        return {width: each for width, each in found.items() if each}

    def violations(self, *rules: str) -> list[Any]:
        """The rules of axe that the page breaks, with the elements; only of these rules, if there are any."""
        if not self.driver.execute_script("return 'axe' in window"):
            self.driver.execute_script(AXE_SCRIPT)
        options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
        return self.driver.execute_async_script(VIOLATIONS, options)  # type: ignore[no-any-return]

    def is_in_sight(self, css: str) -> bool:
        """Whether the window shows the whole element without scrolling."""
        return bool(
            self.driver.execute_script(
                "const at = document.querySelector(arguments[0])?.getBoundingClientRect();"
                "return Boolean(at) && at.top >= 0 && at.bottom <= innerHeight",
                css,
            )
        )

    def colours(self, scheme: str) -> None:
        """Makes the system prefer `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def screenshot(self, path: Path) -> None:
        """The whole page, as WebP, which is a fourth of a PNG."""
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        options = {"format": "webp", "quality": 80, "captureBeyondViewport": True, "clip": clip}
        path.write_bytes(base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"]))
