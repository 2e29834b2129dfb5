"""Sessions of the portal over HTTP, with a real API server that trusts the provider, in both modes."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import aiohttp
import httpx
import pytest

from tests.portal import oidc
from tests.portal.running import CLAIMS_WAIT, SHOP, Place, desks, log_of

pytestmark = pytest.mark.usefixtures("provider")
POOL = desks(replicas=0, claimPolicy={**CLAIMS_WAIT, "maxPerUser": 1, "defaultTTLSeconds": 7200})


@pytest.fixture(scope="module", autouse=True)
def pool(stack: Place) -> Iterator[None]:
    """Leaves the namespace empty, because tests of another file read what the console says about an empty one."""
    stack.kubectl("apply", "-n", SHOP, "-f", "-", document=POOL)
    yield
    stack.kubectl("delete", "vmclaim,vmwp", "-n", SHOP, "--all")


@pytest.fixture
def no_claims(stack: Place) -> None:
    stack.kubectl("delete", "vmclaim", "-n", SHOP, "--all")


class Client(httpx.Client):
    """A browser without pages."""

    def __init__(self, address: str) -> None:
        super().__init__(base_url=address, verify=False, timeout=60)
        self.headers["Origin"] = address

    def begin(self, link: str = "/sign-in") -> str:
        """Begins a sign-in. Returns the address at the provider."""
        answer = self.get(link)
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    def at_provider(self, place: str, user: str) -> str:
        """Signs in at the provider. Returns the path of the portal to which it sends the browser back."""
        with httpx.Client(verify=False) as provider:
            answer = provider.post(place, data={"user": user})
        assert answer.status_code == 302, answer.text
        back = urlsplit(answer.headers["location"])
        return f"{back.path}?{back.query}"

    def sign_in(self, user: str, link: str = "/sign-in") -> httpx.Response:
        return self.get(self.at_provider(self.begin(link), user))


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as found:
        yield found


@pytest.fixture
def ann(client: Client) -> Client:
    assert client.sign_in("ann").headers["location"] == "/"
    return client


def test_without_a_session_every_page_asks_to_sign_in(client: Client) -> None:
    for path in ("/", "/part", f"/screen/vnc/{SHOP}/x"):
        answer = client.get(path)
        assert (answer.status_code, "/sign-in" in answer.text) == (401, True)
    for path in (f"/take/{SHOP}/desks", f"/release/{SHOP}/x", f"/extend/{SHOP}/x"):
        assert client.post(path).status_code == 401


@pytest.mark.usefixtures("no_claims")
def test_a_user_has_the_name_that_the_api_server_knows(ann: Client, mode: str, stack: Place) -> None:
    assert "oidc:ann" in ann.get("/").text
    assert ann.post(f"/take/{SHOP}/desks").status_code == 303
    assert set(stack.claims().values()) == {"oidc:ann"}
    assert "oidc:ann has signed in" in log_of(stack, mode)


@pytest.mark.usefixtures("no_claims")
def test_the_quota_is_shown_and_kept(ann: Client, stack: Place) -> None:
    assert "You have 0 of at most 1. You keep it for 2 hours." in ann.get("/").text
    ann.post(f"/take/{SHOP}/desks")
    text = ann.get("/").text
    assert "You have taken 1 VM of this pool, which is the most that it gives one user." in text
    assert "Waiting" in text
    assert f"/take/{SHOP}/desks" not in text


@pytest.mark.usefixtures("no_claims")
def test_a_user_sees_and_changes_only_own_claims(ann: Client, address: str, stack: Place) -> None:
    ann.post(f"/take/{SHOP}/desks")
    (name,) = stack.claims()
    with Client(address) as bob:
        bob.sign_in("bob")
        assert name not in bob.get("/").text
        assert name not in bob.get("/part").text
        for path in (f"/release/{SHOP}/{name}", f"/extend/{SHOP}/{name}"):
            told = bob.post(path, data={"hours": "1"}).headers["location"]
            assert parse_qs(urlsplit(told).query)["message"] == [f"You have no VM {name}."]
        answer = bob.get(f"/screen/vnc/{SHOP}/{name}")
        assert answer.status_code == 422
        assert f"You have no VM {name}." in answer.text
    assert stack.read("vmclaim", name)["spec"].get("release") in (None, False)
    ann.post(f"/release/{SHOP}/{name}")
    assert stack.read("vmclaim", name)["spec"]["release"] is True


@pytest.mark.usefixtures("no_claims")
def test_a_user_without_rights_sees_nothing_and_takes_nothing(client: Client, stack: Place) -> None:
    client.sign_in("eve")
    assert "There is no pool that you may see." in client.get("/").text
    told = client.post(f"/take/{SHOP}/desks").headers["location"]
    assert "is forbidden" in parse_qs(urlsplit(told).query)["message"][0]
    assert stack.claims() == {}


@pytest.mark.parametrize("name", ["%2e%2e", "%2e", "a%3fb", "%0d%0a", "A", "a-"])
def test_no_request_for_a_name_that_no_object_has_reaches_the_api_server(name: str, ann: Client) -> None:
    for method, path in (
        ("POST", f"/take/{name}/a"),
        ("POST", f"/release/{SHOP}/{name}"),
        ("GET", f"/screen/vnc/a/{name}"),
    ):
        assert ann.request(method, path).status_code == 422
        assert "pattern" in ann.request(method, path).text


@pytest.mark.usefixtures("no_claims")
def test_a_write_of_another_site_is_refused(ann: Client, stack: Place) -> None:
    for origin in ("https://evil.example", "null", ""):
        assert ann.post(f"/take/{SHOP}/desks", headers={"Origin": origin}).status_code == 403
    assert ann.get("/", headers={"Host": "evil.example"}).status_code == 403
    assert stack.claims() == {}


def test_only_the_portal_itself_puts_a_message_on_its_page(ann: Client) -> None:
    path, told = "/?message=Call+555&failed=yes", "Call 555"
    assert told in ann.get(path, headers={"Sec-Fetch-Site": "same-origin"}).text
    for site in ("none", "cross-site", "same-site"):
        answer = ann.get(path, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"})
        assert (answer.status_code, told in answer.text) == (200, False)


def test_cookies_of_neighbours_end_no_session(ann: Client) -> None:
    """Any host of the same domain can set a cookie for the portal's, with any name."""
    sent = "; ".join(f"{name}={value}" for name, value in ann.cookies.items())
    ann.cookies.clear()
    for other in ("[a]=b", '{"a":1}=2', 'a="b c'):
        assert ann.get("/", headers={"Cookie": f"{other}; {sent}"}).status_code == 200


def test_a_sign_in_that_another_browser_has_begun_is_refused(client: Client, address: str) -> None:
    with Client(address) as attacker:
        back = attacker.at_provider(attacker.begin(), "eve")
    assert client.get(back).status_code == 403  # no sign-in was begun here
    client.begin()
    assert client.get(back).status_code == 403  # another one was, with another state
    assert client.get("/").status_code == 401


def test_a_sign_in_returns_to_the_page_that_was_asked_for(client: Client) -> None:
    asked = f"/console/?namespace={SHOP}%2Ba"
    link = re.search(r'href="(/sign-in[^"]*)"', client.get(asked).text)
    assert client.sign_in("ann", html.unescape(link[1])).headers["location"] == asked


def test_a_sign_in_after_one_that_was_cancelled_returns_to_the_page(client: Client) -> None:
    assert 'href="/sign-in?path=/console/"' in client.sign_in("", "/sign-in?path=/console/").text


def test_a_form_is_not_asked_for_again(client: Client) -> None:
    assert 'href="/sign-in"' in client.post(f"/take/{SHOP}/desks").text


@pytest.mark.parametrize("path", ["//evil.example/", "/%5Cevil.example/", "https://evil.example/", "/%09/evil.example"])
def test_a_sign_in_leads_to_no_other_site(client: Client, path: str) -> None:
    assert client.sign_in("ann", f"/sign-in?path={path}").headers["location"] == "/"


def test_a_code_is_used_once(client: Client) -> None:
    back = client.at_provider(client.begin(), "ann")
    login = dict(client.cookies)
    assert client.get(back).status_code == 303
    client.cookies.update(login)
    assert client.get(back).status_code == 403


def test_a_user_who_cancels_reads_so(client: Client) -> None:
    answer = client.sign_in("")
    assert (answer.status_code, "has not signed you in" in answer.text) == (403, True)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param({"nonce": "other"}, id="nonce"),
        pytest.param({"nonce": None}, id="no nonce"),
        pytest.param({"aud": "other"}, id="audience"),
        pytest.param({"iss": "https://127.0.0.1:1"}, id="issuer"),
        pytest.param({"exp": 1}, id="end"),
    ],
)
def test_an_id_token_of_another_sign_in_or_client_is_refused(
    spoil: dict[str, object], client: Client, provider: oidc.Provider
) -> None:
    provider.spoil = spoil
    answer = client.sign_in("ann")
    assert (answer.status_code, "ID token is not" in answer.text) == (403, True)
    assert client.get("/").status_code == 401


def test_new_keys_of_the_provider_are_read(client: Client, mode: str, provider: oidc.Provider) -> None:
    if mode == "impersonate":  # the API server reads them after a while
        provider.rotate_key()
        assert client.sign_in("ann").status_code == 303
    assert client.get("/healthz").status_code == 200


def test_a_session_is_renewed_without_the_user(client: Client, provider: oidc.Provider) -> None:
    provider.lifetime = 45  # less than the minute in which it is renewed
    client.sign_in("ann")
    before = dict(client.cookies)
    assert client.get("/").status_code == 200
    assert provider.asked == ["authorization_code", "refresh_token"]
    assert dict(client.cookies) != before
    assert client.get("/part").status_code == 200


async def test_a_websocket_keeps_the_session_that_it_renews(
    address: str, client: Client, provider: oidc.Provider
) -> None:
    """A provider may accept a refresh token only once. No message is compressed, because it could be a bomb."""
    provider.lifetime = 45
    client.sign_in("ann")
    sent = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    headers = {"Origin": address, "Cookie": sent}
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{address}/stream/vnc/{SHOP}/x", headers=headers, ssl=False, compress=15) as screen,
    ):
        assert screen.compress == 0
        answer = screen._response
        assert {*answer.cookies} == set(client.cookies)
        assert (await screen.receive()).extra == "You have no VM x."
    assert provider.asked == ["authorization_code", "refresh_token"]


def test_tokens_that_become_too_long_end_the_session(client: Client, mode: str, provider: oidc.Provider) -> None:
    provider.lifetime = 45
    client.sign_in("ann")
    provider.spoil = {"groups": [f"group-{number}" for number in range(2000)]}
    assert client.get("/").status_code == {"token": 401, "impersonate": 200}[mode]  # only one keeps ID tokens


def test_a_session_ends_with_its_id_token(client: Client, provider: oidc.Provider) -> None:
    provider.lifetime, provider.refreshes = -5, False  # within the leeway of clocks, so that it is accepted
    status = client.sign_in("ann").status_code
    answer = client.get("/")
    assert answer.status_code == 401
    if status == 303:  # the API server itself refuses such a token
        assert "Your session has ended. Sign in again." in answer.text


def test_a_session_ends_when_the_provider_ends_it(client: Client, provider: oidc.Provider) -> None:
    provider.lifetime = -5  # within the leeway of clocks
    status = client.sign_in("ann").status_code
    provider.end_sessions()
    answer = client.get("/")
    assert (answer.status_code, "Your session has ended" in answer.text) == (401, status == 303)
    assert not client.cookies


def test_a_refresh_token_that_another_pod_has_used_ends_no_session(client: Client, provider: oidc.Provider) -> None:
    provider.lifetime = 45
    client.sign_in("ann")
    provider.end_sessions()
    kept = dict(client.cookies)
    assert client.get("/").status_code == 200
    assert provider.asked == ["authorization_code", "refresh_token"]
    assert dict(client.cookies) == kept


def test_signing_out_ends_the_session_in_this_browser(ann: Client, provider: oidc.Provider) -> None:
    answer = ann.post("/sign-out")
    assert f"{provider.issuer}/end?p={oidc.POLICY}&client_id={oidc.CLIENT}" in html.unescape(answer.text)
    assert not ann.cookies
    assert ann.get("/").status_code == 401


def test_a_copy_of_the_cookies_cannot_be_renewed_after_signing_out(client: Client, provider: oidc.Provider) -> None:
    provider.lifetime = 45
    client.sign_in("ann")
    copied = dict(client.cookies)
    assert client.post("/sign-out").status_code == 200
    client.cookies.update(copied)
    client.get("/")
    assert provider.asked == ["authorization_code", "refresh_token"]
    assert dict(client.cookies) == copied


def test_no_token_is_in_a_page_an_address_or_the_log(ann: Client, mode: str, stack: Place) -> None:
    page = ann.get("/")
    for text in (page.text, str(page.headers), log_of(stack, mode)):
        assert "eyJ" not in text  # how a JSON object begins in base64
        assert oidc.SECRET not in text
