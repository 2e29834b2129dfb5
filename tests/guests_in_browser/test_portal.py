"""The portal in a real Chromium: a person signs in, takes a VM, opens its screen, keeps it longer and gives it back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver import Keys

from tests.conftest import RUNS_GUESTS
from tests.console.browser import CHROMIUM, DRIVER, MOVED, RULES_OF_COLOURS, Browser
from tests.portal.running import CLAIMS_WAIT, SHOP, Place, desks, portal

pytestmark = [
    pytest.mark.libvirt,
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER and RUNS_GUESTS), reason="needs Chromium, QEMU and libvirt"),
]
DESKS = desks(replicas=1, claimPolicy={"onEmpty": "Queue", "maxPerUser": 1, "defaultTTLSeconds": 7200})
CLOSED = desks("closed", replicas=0, claimPolicy=CLAIMS_WAIT)


@pytest.fixture(scope="module")
def browser(stack: Place, driver: webdriver.Chrome) -> Iterator[Browser]:
    for each in (DESKS, CLOSED):
        stack.kubectl("apply", "-n", SHOP, "-f", "-", document=each)
    stack.kubectl("wait", "vmwp/desks", "-n", SHOP, "--for=jsonpath={.status.availableReplicas}=1", "--timeout=180s")
    with portal(stack, "impersonate") as address:
        yield Browser(driver, address)


def sign_in(browser: Browser, user: str) -> None:
    browser.driver.delete_all_cookies()
    browser.open("/")
    browser.reads("Here you take a virtual machine")
    browser.tab_to("Sign in")
    browser.press("enter")
    browser.click("button", user)
    browser.reads("My VMs", "Take a VM")
    assert browser.text("header").splitlines()[-2:] == [f"oidc:{user}", "Sign out"]


def tab_to(browser: Browser, name: str) -> None:
    """Moves the focus to the element with this accessible name, as a screen reader says it."""
    found = []
    for _ in range(30):
        browser.press("tab")
        with suppress(*MOVED):
            found.append(browser.driver.switch_to.active_element.accessible_name)
            if found[-1] == name:
                return
    raise AssertionError(f"the tabulator does not reach {name!r}, only {found}")


def assert_clean(browser: Browser) -> None:
    """No script or style was refused, axe finds nothing, and no width needs scrolling sideways."""
    for scheme in ("light", "dark"):
        browser.colours(scheme)
        assert browser.violations(*(RULES_OF_COLOURS if scheme == "dark" else ())) == []
    browser.colours("light")
    assert browser.misfits() == {}
    assert [each for each in browser.errors() if "401" not in each] == []


def held(stack: Place) -> list[dict[str, Any]]:
    return [each for each in stack.read("vmclaim")["items"] if each["status"]["phase"] in ("Bound", "Ready")]


def test_a_person_takes_a_vm_uses_it_and_gives_it_back(stack: Place, browser: Browser) -> None:
    sign_in(browser, "ann")
    browser.reads("You have no VM.", "1 VM ready. You have 0 of at most 1. You keep it for 2 hours.")
    assert_clean(browser)
    tab_to(browser, "Take a VM of desks")
    browser.press("enter")
    browser.reads("You get a VM of desks.", "Ready", "It ends in 1 hour 5", "which is the most")
    assert_clean(browser)
    if folder := os.environ.get("POOLHOUSE_SCREENSHOTS"):
        browser.screenshot(Path(folder) / "portal.webp")
    stack.kubectl("scale", "vmwp/desks", "-n", SHOP, "--replicas=0")  # no test needs the guest that would replace it
    (claim,) = held(stack)
    name = claim["metadata"]["name"]

    tab_to(browser, f"Open the screen of {name}")
    browser.press("enter")
    browser.reads("Connected.")
    browser.until(lambda: is_drawn(browser), lambda: "the screen is black")
    assert_clean(browser)
    browser.driver.switch_to.active_element.send_keys(Keys.CONTROL, Keys.F6)
    browser.until(lambda: browser.focused() == "Disconnect", browser.focused)
    browser.click("main a", "Back to your VMs")
    browser.click("main a", "Serial console")
    browser.reads("Connected.", "second ")
    assert_clean(browser)
    browser.click("main a", "Back to your VMs")

    browser.click("main button", "Keep it longer")
    browser.click("form:popover-open button.primary")
    browser.reads(f"You keep {name} 1 hour longer", "It ends in 2 hours 5")

    browser.click("main button", "Release")
    assert browser.focused() == "Cancel"
    assert "The VM and its disks are deleted." in browser.text("form:popover-open")
    assert_clean(browser)
    browser.press("escape")
    assert browser.all("form:popover-open") == []
    browser.click("main button", "Release")
    browser.click("form:popover-open button.danger")
    browser.reads(f"{name} is released.", "You have no VM.")
    browser.until(lambda: not held(stack), lambda: str(held(stack)))


def is_drawn(browser: Browser) -> bool:
    """Whether the screen has letters: as a PNG, it is larger than one without."""
    script = "return document.querySelector('#stream canvas').toDataURL().length"
    return int(browser.driver.execute_script(script)) > 4000


def test_a_person_who_waits_reads_why_and_may_give_up(browser: Browser) -> None:
    sign_in(browser, "bob")
    browser.click("form[action='/take/shop/closed'] button")
    browser.reads("Waiting", "claims have 0 VMs of the pool, maxPerNamespace is 0")
    assert_clean(browser)
    browser.click("main button", "Release")
    browser.reads("You do not get a VM any more.", css="form:popover-open")
    browser.click("form:popover-open button.danger")
    browser.reads("is released.", "You have no VM.")


def test_a_page_says_that_its_session_has_ended(browser: Browser) -> None:
    sign_in(browser, "ann")
    browser.driver.delete_all_cookies()
    browser.reads("Your session has ended. Sign in again.")
    browser.click("main a", "Sign in again")
    browser.click("button", "ann")
    browser.reads("You have no VM.")
    browser.click("header button", "Sign out")
    browser.reads("You have signed out of this page.", "sign out there too")
    assert_clean(browser)
    browser.open("/")
    browser.reads("Here you take a virtual machine")
