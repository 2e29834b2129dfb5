"""The console of users who have signed in at the portal, with a real API server: each has their own rights."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import aiohttp
import httpx
import pytest
import yaml

from poolhouse.api.kinds.pool import POOL as POOL_KIND
from tests.builders import manifest, vm_spec
from tests.console.browser import CHROMIUM, DRIVER, Browser, chromium
from tests.guests_in_browser.test_portal import assert_clean
from tests.portal import oidc
from tests.portal.fake_prometheus import FakePrometheus
from tests.portal.running import SHOP, Place, log_of, portal
from tests.portal.test_sessions import Client
from tests.waiting import wait_until

LAB, VAULT = "lab", "vault"
POOL = manifest(POOL_KIND, "web", {"replicas": 1, "template": {"spec": vm_spec()}})
HIDDEN = "Not shown, because you may not list them: "
pytestmark = pytest.mark.usefixtures("provider")


@pytest.fixture(scope="module", autouse=True)
def rights(stack: Place) -> None:
    """Bob may do everything in a namespace, Ann may claim VMs in another, and Eve nothing."""
    for namespace in (LAB, VAULT):
        stack.kubectl("create", "namespace", namespace)
        stack.kubectl("apply", "-n", namespace, "-f", "-", document=POOL)
    stack.kubectl("create", "role", "all", "-n", LAB, "--verb=*", "--resource=*.*")
    stack.kubectl("create", "rolebinding", "bob", "-n", LAB, "--role=all", "--user=oidc:bob")


@pytest.fixture
def prometheus(started_prometheus: FakePrometheus) -> FakePrometheus:
    started_prometheus.queries.clear()
    started_prometheus.status = 200
    return started_prometheus


SignIn = Callable[[str], Client]


@pytest.fixture
def sign_in(address: str) -> Iterator[SignIn]:
    opened: list[Client] = []

    def signed_in(user: str) -> Client:
        opened.append(Client(address))
        assert opened[-1].sign_in(user).headers["location"] == "/"
        return opened[-1]

    yield signed_in
    for each in opened:
        with suppress(httpx.HTTPError):
            each.post("/sign-out")  # which ends the consoles
        each.close()


def text(answer: httpx.Response) -> str:
    """What a user reads."""
    body = answer.text.partition("<main")[2]
    return html.unescape(" ".join(re.sub(r"<[^>]*>", " ", body).split()))


def reads(client: Client, path: str, *parts: str) -> str:
    """Waits until the page says it."""
    found = ""

    def is_there() -> bool:
        nonlocal found
        found = text(client.get(path))
        return all(part in found for part in parts)

    try:
        wait_until(is_there)
    except AssertionError:
        raise AssertionError(f"{parts} in {found}") from None
    return found


def replicas(stack: Place, namespace: str) -> int:
    return int(stack.kubectl("get", "vpool/web", "-n", namespace, "-o", "jsonpath={.spec.replicas}"))


def test_each_user_sees_what_their_rights_allow(sign_in: SignIn) -> None:
    ann, bob, eve = map(sign_in, ("ann", "bob", "eve"))
    assert "vpool/ web" in reads(bob, f"/console/{LAB}/", "vpool/ web")
    assert HIDDEN + "migrationpolicies, nodes." in text(bob.get(f"/console/{LAB}/"))  # which are of no namespace
    for client, path in ((ann, f"/console/{LAB}/"), (eve, f"/console/{LAB}/"), (bob, f"/console/{VAULT}/")):
        told = reads(client, path, HIDDEN)
        for plural in ("virtualmachinepools", "virtualmachines", "virtualmachineinstances", "virtualmachineclaims"):
            assert plural in told.partition(HIDDEN)[2].partition(".")[0]
        assert "web" not in told
        assert client.get(f"{path}vpool/{path.split('/')[2]}/web").status_code == 404
    told = reads(ann, f"/console/{SHOP}/", HIDDEN)
    assert "virtualmachineclaims" not in told.partition(HIDDEN)[2].partition(".")[0]
    for client in (ann, bob, eve):
        assert "web" not in reads(client, "/console/-/", HIDDEN)


def test_a_user_without_rights_reads_what_to_ask_for(sign_in: SignIn) -> None:
    eve, bob, ann = map(sign_in, ("eve", "bob", "ann"))
    of_namespace = ("virtualmachinepools", "virtualmachineinstancereplicasets", "virtualmachinewarmpools")
    for path, where, plurals in (
        (f"/console/{LAB}/", f"namespace {LAB}", (*of_namespace, "virtualmachineclaims")),
        (f"/console/{LAB}/warm", f"namespace {LAB}", ("virtualmachinewarmpools",)),
        (f"/console/{LAB}/policies", "all namespaces", ("migrationpolicies",)),
        ("/console/-/", "all namespaces", (*of_namespace, "virtualmachineclaims", "migrationpolicies")),
    ):
        told = reads(eve, path, "You may not list", f"Ask an administrator for the ClusterRole view in {where}")
        refused = re.search(rf"You may not list ([a-z, ]+) in {where}, so the console shows none", told)
        assert {*refused[1].split(", ")} == {*plurals}
        assert "There is no" not in told
    # A user with a part of the rights reads about the rest, and one with all may create the first object.
    told = reads(ann, f"/console/{SHOP}/", "You may not list virtualmachinepools")
    assert "virtualmachineclaims" not in told.partition("You may not list")[2].partition("in namespace")[0]
    assert "There is no warm pool here yet. Plan and apply the first one" in text(bob.get(f"/console/{LAB}/warm"))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"/console/{LAB}/vm/{VAULT}/web-0", id="a VM of another namespace"),
        pytest.param(f"/console/{LAB}/hardware/{VAULT}/web-0", id="its hardware"),
        pytest.param(f"/console/{LAB}/vpool/{VAULT}/web", id="a pool of another namespace"),
        pytest.param(f"/console/{LAB}/vm/..%2f{VAULT}%2fvirtualmachines/web-0", id="a path in a name"),
        pytest.param(f"/console/{LAB}/vm/%2e%2e/%2e%2e", id="dots"),
        pytest.param("/console/%2e%2e/", id="dots for a namespace"),
        pytest.param(f"/console/{LAB}%2f..%2f{VAULT}/", id="a path for a namespace"),
        pytest.param(f"/console/{LAB}/static/..%2f..%2fapp.py", id="a file"),
    ],
)
def test_no_address_leads_beyond_the_rights_of_a_user(path: str, sign_in: SignIn) -> None:
    answer = sign_in("bob").get(path)
    assert answer.status_code in (404, 502)
    assert "64Mi" not in answer.text


def test_a_header_does_not_make_a_user_another(sign_in: SignIn) -> None:
    headers = {"Impersonate-User": "system:admin", "Impersonate-Group": "system:masters", "Authorization": "Bearer x"}
    answer = sign_in("eve").get(f"/console/{VAULT}/", headers=headers)
    assert HIDDEN in text(answer)
    assert "web" not in text(answer)


def vm_of(stack: Place, namespace: str) -> str:
    """The name of the pool's VM."""
    names = ""

    def is_there() -> bool:
        nonlocal names
        names = stack.kubectl("get", "vm", "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}")
        return bool(names)

    wait_until(is_there)
    return names


def test_a_user_sees_the_figures_of_a_vm(sign_in: SignIn, stack: Place, prometheus: FakePrometheus) -> None:
    vm = vm_of(stack, LAB)
    bob = sign_in("bob")
    for short in ("vm", "vmi"):
        page = reads(bob, f"/console/{LAB}/{short}/{LAB}/{vm}", "CPU and memory", "CPUs in use", "Memory that QEMU")
        assert prometheus.url not in page
    assert prometheus.queries
    assert all(f'{{namespace="{LAB}",name="{vm}"}}' in each for each in prometheus.queries)


def test_nothing_is_asked_for_users_without_rights(sign_in: SignIn, stack: Place, prometheus: FakePrometheus) -> None:
    ann, bob = map(sign_in, ("ann", "bob"))
    own, other = vm_of(stack, LAB), vm_of(stack, VAULT)
    for client, namespace, name in ((ann, LAB, own), (bob, VAULT, other)):
        for path in (f"/console/{LAB}/vm", "/console/-/vmi"):
            assert client.get(f"{path}/{namespace}/{name}").status_code == 502
    for namespace, name in (
        (LAB, f'{own}"}} or kubevirt_vmi_memory_resident_bytes{{namespace="{VAULT}'),
        (f'{LAB}",namespace="{VAULT}', other),
        (LAB, "absent"),
    ):
        path = f"/console/{LAB}/vm/{quote(namespace, safe='')}/{quote(name, safe='')}"
        assert bob.get(path).status_code in (404, 502)
    assert prometheus.queries == []


def test_figures_end_with_the_right(sign_in: SignIn, stack: Place, prometheus: FakePrometheus) -> None:
    vm, eve = vm_of(stack, VAULT), sign_in("eve")
    path = f"/console/{VAULT}/vm/{VAULT}/{vm}"
    stack.kubectl("create", "role", "get", "-n", VAULT, "--verb=get", "--resource=virtualmachines.kubevirt.io")
    stack.kubectl("create", "rolebinding", "eve", "-n", VAULT, "--role=get", "--user=oidc:eve")
    reads(eve, path, "CPUs in use")
    stack.kubectl("delete", "role/get", "rolebinding/eve", "-n", VAULT)
    wait_until(lambda: "CPUs in use" not in eve.get(path).text)
    prometheus.queries.clear()
    wait_until(lambda: eve.get(path).status_code == 502)  # the rest of the page may be 3 seconds old
    assert prometheus.queries == []


def test_a_page_without_an_answer_says_where_the_reason_is(
    sign_in: SignIn, mode: str, stack: Place, prometheus: FakePrometheus
) -> None:
    prometheus.status = 500
    page = reads(sign_in("bob"), f"/console/{LAB}/vm/{LAB}/{vm_of(stack, LAB)}", "the log of the portal has the reason")
    assert "500" not in page
    assert f"a query in namespace {LAB} for bob has failed: Prometheus answered 500" in log_of(stack, mode)


def test_a_user_changes_what_their_rights_allow(sign_in: SignIn, stack: Place) -> None:
    bob, ann = sign_in("bob"), sign_in("ann")
    for client, namespace in ((ann, LAB), (bob, VAULT)):
        told = client.post(f"/console/{LAB}/act/scale/vpool/{namespace}/web", data={"replicas": "7"})
        assert "is+forbidden" in told.headers["location"].replace("%20", "+")
        assert replicas(stack, namespace) == 1
    told = bob.post(f"/console/{LAB}/act/scale/vpool/{LAB}/web", data={"replicas": "2"})
    assert told.headers["location"] == f"/console/{LAB}/vpool/{LAB}/web?message=web%20is%20scaled%20to%202"
    assert replicas(stack, LAB) == 2
    stack.kubectl("scale", "vpool/web", "-n", LAB, "--replicas=1")


def test_a_change_is_planned_with_the_rights_of_the_user(sign_in: SignIn, stack: Place) -> None:
    bob, ann = sign_in("bob"), sign_in("ann")
    wanted = {**POOL, "spec": {**POOL["spec"], "replicas": 3}}
    form = {"yaml": yaml.safe_dump({**wanted, "metadata": {"name": "web", "namespace": LAB}})}
    answer = bob.post(f"/console/{LAB}/change", data=form)  # and no redirect, which another Pod may get
    assert (answer.status_code, "Create" in text(answer) or "create" in text(answer)) == (200, True)
    assert "is forbidden" in text(ann.post(f"/console/{LAB}/change", data=form))
    form["yaml"] = yaml.safe_dump({**wanted, "metadata": {"name": "web", "namespace": VAULT}})
    assert "is forbidden" in text(bob.post(f"/console/{LAB}/change", data={**form, "do": "apply"}))
    assert (replicas(stack, LAB), replicas(stack, VAULT)) == (1, 1)
    assert bob.post(f"/console/{LAB}/change", data={"yaml": "x" * 200_000}).status_code == 422


def test_a_write_of_another_site_is_refused(sign_in: SignIn, stack: Place) -> None:
    bob, path = sign_in("bob"), f"/console/{LAB}/act/scale/vpool/{LAB}/web"
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
    ):
        assert bob.post(path, data={"replicas": "9"}, headers=headers).status_code == 403
    told = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert bob.get(f"/console/{LAB}/events?path=/", headers=told).status_code == 403
    page = bob.get(
        f"/console/{LAB}/?message=Call+555", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    )
    assert "Call 555" not in page.text
    assert page.headers["content-security-policy"].endswith("frame-ancestors 'none'")
    assert replicas(stack, LAB) == 1


def test_without_a_session_there_is_no_console(address: str, sign_in: SignIn) -> None:
    reads(sign_in("bob"), f"/console/{LAB}/", "vpool/ web")  # is open meanwhile
    with Client(address) as stranger:
        for path in ("", f"{LAB}/", f"{LAB}/events?path=/", f"{LAB}/static/console.js"):
            assert stranger.get(f"/console/{path}").status_code == 401
        assert stranger.post(f"/console/{LAB}/act/scale/vpool/{LAB}/web").status_code == 401


def test_signing_out_ends_what_follows_the_changes(sign_in: SignIn, address: str) -> None:
    bob = sign_in("bob")
    with Client(address) as page, ThreadPoolExecutor(1) as threads:
        page.cookies.update(dict(bob.cookies))
        with page.stream("GET", f"/console/{LAB}/events?path=/") as events:
            assert events.status_code == 200
            rest = threads.submit(lambda: "".join(events.iter_text()))
            assert bob.post("/sign-out").status_code == 200
            assert rest.result(60).startswith("retry: 2000")


def test_a_console_renews_the_session(sign_in: SignIn, provider: oidc.Provider) -> None:
    provider.lifetime = 45  # less than the minute in which it is renewed
    bob = sign_in("bob")
    before = dict(bob.cookies)
    reads(bob, f"/console/{LAB}/", "vpool/ web")
    assert "refresh_token" in provider.asked
    assert dict(bob.cookies) != before


async def test_a_stream_needs_the_right_of_its_user(address: str, sign_in: SignIn) -> None:
    async def told(client: Client | None, namespace: str) -> Any:
        sent = "; ".join(f"{name}={value}" for name, value in client.cookies.items()) if client else ""
        headers = {"Origin": address, **({"Cookie": sent} if sent else {})}
        path = f"{address}/console/{LAB}/stream/vnc/{namespace}/web-0"
        async with aiohttp.ClientSession() as http, http.ws_connect(path, headers=headers, ssl=False) as screen:
            return (await screen.receive()).extra

    forbidden = "You may not get virtualmachineinstances/vnc here."
    assert await told(sign_in("ann"), LAB) == forbidden
    assert await told(sign_in("bob"), VAULT) == forbidden
    assert await told(None, LAB) == "Your session has ended. Sign in again."


def test_a_user_chooses_a_namespace(sign_in: SignIn, stack: Place) -> None:
    eve = sign_in("eve")
    page = text(eve.get("/console/"))
    assert f"{SHOP}" in page
    assert "You may not list pools in all namespaces." in page
    assert "You may not list namespaces, so these are the ones that the portal knows." in page
    assert eve.get("/console/?namespace=lab").headers["location"] == "/console/lab/"
    assert "at most 63" in text(eve.get("/console/?namespace=../x"))
    assert '<a href="/console/">Console</a>' in eve.get("/").text


def test_no_token_is_in_a_page_or_the_log(sign_in: SignIn, mode: str, stack: Place) -> None:
    bob = sign_in("bob")
    for path in ("/console/", f"/console/{LAB}/", f"/console/{LAB}/vpool/{LAB}/web"):
        assert "eyJ" not in bob.get(path).text  # how a JSON object begins in base64
    assert "eyJ" not in log_of(stack, mode)
    assert "Traceback" not in log_of(stack, mode)


def test_a_portal_without_consoles_has_no_page_of_one(stack: Place) -> None:
    with portal(stack, "token", POOLHOUSE_PORTAL_MAX_CONSOLES="0") as address, Client(address) as eve:
        eve.sign_in("eve")
        assert "Console" not in eve.get("/").text
        assert eve.get("/console/").status_code == 404
        assert eve.get(f"/console/{LAB}/").status_code == 404


@pytest.mark.slow
@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium")
def test_a_person_scales_a_pool_in_a_browser(stack: Place, addresses: dict[str, str]) -> None:
    with chromium("--ignore-certificate-errors") as driver:
        browser = Browser(driver, addresses["impersonate"])
        browser.open("/")
        browser.click("main a", "Sign in")
        browser.click("button", "bob")
        browser.click("header a", "Console")
        browser.reads("You may not list pools in all namespaces.")
        assert_clean(browser)
        browser.fill("input[name=namespace]", LAB)
        browser.click("main button", "Open")
        browser.reads("migrationpolicies, nodes.", "Healthy")
        assert_clean(browser)
        browser.click("main a", "web")
        browser.reads("1 VM")
        browser.act("Scale", replicas="2")
        browser.reads("web is scaled to 2", "2 VMs")  # without a reload
        assert_clean(browser)
        browser.click("main a", "Edit, and plan the change")
        browser.edit("replicas: 2", "replicas: 1")
        browser.click("main button.primary")
        browser.reads("Delete")
        browser.click("header a", f"namespace {LAB}")
        browser.reads("Console")
        browser.open(f"/console/{VAULT}/")
        browser.reads(HIDDEN, "virtualmachinepools")
        assert "web" not in browser.text()
        browser.click("header button", "Sign out")
        browser.reads("You have signed out of this page.")
        assert browser.errors() == []
    stack.kubectl("scale", "vpool/web", "-n", LAB, "--replicas=1")
