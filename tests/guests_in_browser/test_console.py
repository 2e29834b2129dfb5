"""The console in a real Chromium: the serial console and the screen of a real guest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys

from poolhouse.runtime.resource import VMS
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest, vm_spec, vmi_spec
from tests.conftest import RUNS_GUESTS
from tests.console.browser import CHROMIUM, DRIVER, Browser, running_console
from tests.console.test_browser import kubectl
from tests.portal.running import Place

pytestmark = [
    pytest.mark.libvirt,
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER and RUNS_GUESTS), reason="needs Chromium, QEMU and libvirt"),
]
VM = manifest(VMS, "a", vm_spec({**vmi_spec({}), "terminationGracePeriodSeconds": 0}), "default")


@pytest.fixture(scope="module")
def paths(stack: Place) -> StackPaths:
    return stack.paths


@pytest.fixture(scope="module")
def browser(paths: StackPaths, driver: webdriver.Chrome) -> Iterator[Browser]:
    kubectl(paths, "create", "-f", "-", document=VM)
    # Before that, its page has the links already, and a stream says that the VM does not run.
    kubectl(
        paths, "wait", "vm/a", "-n", "default", "--for=jsonpath={.status.printableStatus}=Running", "--timeout=300s"
    )
    with running_console(paths.kubeconfig) as (root, _):
        found = Browser(driver, root)
        yield found
        driver.get("about:blank")  # The page would ask a console that has ended, and the browser is used again.
        found.errors()


def press_with_control(browser: Browser, key: str) -> None:
    ActionChains(browser.driver).key_down(Keys.CONTROL).send_keys(key).key_up(Keys.CONTROL).perform()


def focus(browser: Browser) -> Any:
    """The accessible name, or the text, of what has the focus."""
    element = browser.driver.switch_to.active_element
    return element.get_attribute("aria-label") or element.text


def assert_clean(browser: Browser, name: str) -> None:
    """No script or style was refused, axe finds nothing, and no width needs scrolling sideways."""
    assert browser.errors() == []
    assert browser.violations() == []
    assert browser.misfits() == {}
    if folder := os.environ.get("POOLHOUSE_SCREENSHOTS"):
        browser.screenshot(Path(folder) / f"{name}.webp")


def test_the_serial_console_of_a_guest(browser: Browser) -> None:
    browser.open("/vm/default/a")
    browser.click("main a", "Serial console")
    browser.reads("Connected.", "second ")
    browser.until(lambda: focus(browser) == "Serial console of a", lambda: focus(browser))
    ActionChains(browser.driver).send_keys("~", Keys.TAB).perform()
    browser.reads("~", css="#stream")  # the guest echoes it
    assert focus(browser) == "Serial console of a", "the tabulator goes to the guest"
    assert_clean(browser, "serial-console")
    press_with_control(browser, "]")
    assert focus(browser) == "Disconnect"
    browser.press("enter")
    browser.reads("Disconnected.")
    browser.until(lambda: focus(browser) == "Connect again", lambda: focus(browser))
    browser.press("enter")
    browser.reads("Connected.")


def test_the_screen_of_a_guest(browser: Browser) -> None:
    browser.open("/vm/default/a")
    browser.click("main a", "Screen")
    browser.reads("Connected.")
    browser.until(lambda: is_drawn(browser), lambda: "the screen is black")
    browser.until(lambda: focus(browser) == "Screen of a", lambda: focus(browser))
    assert_clean(browser, "screen")
    press_with_control(browser, Keys.F6)
    assert focus(browser) == "Disconnect"
    browser.click("#reset")
    assert browser.errors() == []


def is_drawn(browser: Browser) -> bool:
    """Whether the screen has letters: as a PNG, it is larger than one without."""
    script = "return document.querySelector('#stream canvas').toDataURL().length"
    return int(browser.driver.execute_script(script)) > 4000


def test_a_stream_ends_with_its_vm_and_says_so(paths: StackPaths, browser: Browser) -> None:
    browser.open("/console/default/a")
    browser.reads("Connected.")
    patch = '{"spec":{"runStrategy":"Halted"}}'
    kubectl(paths, "patch", "vm/a", "-n", "default", "--type", "merge", "-p", patch)
    browser.reads("The connection was closed: the VM stopped or moved", css="#state")
    kubectl(paths, "wait", "vmi/a", "-n", "default", "--for=delete", "--timeout=60s")
    browser.click("#again")
    browser.reads("The VM is not running, or it was deleted.", css="#state")
    browser.open("/vm/default/a")
    browser.reads("Why")
    assert "Serial console" not in browser.text()
