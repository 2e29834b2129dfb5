"""What the portal decides, as tables: requests, ID tokens, names to impersonate, cookies and settings."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from poolhouse.portal import access
from poolhouse.portal.provider import Provider, Refused, authorization_url, new_login, verified
from poolhouse.portal.session import (
    CHUNK_BYTES,
    LOGIN,
    LOGIN_SECONDS,
    SESSION,
    Cookies,
    Login,
    Seal,
    Session,
    forget,
)
from poolhouse.portal.settings import Settings
from poolhouse.portal.users import Identity, impersonated, is_due
from poolhouse.service.prometheus import PrometheusServer

NOW = 1_800_000_000
URL = "https://vms.example"
KEY = RSAKey.generate_key(2048, {"kid": "k", "use": "sig"})
OTHER = RSAKey.generate_key(2048, {"kid": "k", "use": "sig"})
KEYS = {"keys": [KEY.as_dict(private=False), {"kty": "OKP", "crv": "X448", "x": "", "kid": "new", "use": "enc"}]}
ENVIRONMENT = {
    "POOLHOUSE_PORTAL_URL": URL,
    "POOLHOUSE_OIDC_ISSUER": "https://login.example/",
    "POOLHOUSE_OIDC_CLIENT_ID": "portal",
    "POOLHOUSE_PORTAL_GROUPS": "oidc:students, oidc:staff",
}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "sessionKey").write_text("k" * 32 + "\n")
    return tmp_path


@pytest.fixture
def settings(secrets: Path) -> Settings:
    return read(secrets)


def read(secrets: Path, **changed: str) -> Settings:
    return Settings.read({**ENVIRONMENT, "POOLHOUSE_PORTAL_SECRET_DIR": str(secrets), **changed})


# Requests

PAGE = {"host": "vms.example", "sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"}
FORM = {**PAGE, "origin": URL}


@pytest.mark.parametrize(
    ("method", "headers", "refused"),
    [
        pytest.param("GET", PAGE, False, id="a page"),
        pytest.param("GET", {**PAGE, "sec-fetch-site": "cross-site"}, False, id="the provider sends a user back"),
        pytest.param(
            "GET", {**PAGE, "sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, True, id="a neighbour reads it"
        ),
        pytest.param("GET", {**PAGE, "host": "evil.example"}, True, id="another name for the same address"),
        pytest.param("GET", {}, True, id="no Host"),
        pytest.param("POST", FORM, False, id="a form of the portal"),
        pytest.param("POST", PAGE, True, id="a form without Origin"),
        pytest.param("POST", {**FORM, "origin": "null"}, True, id="a form of a sandboxed page"),
        pytest.param("POST", {**FORM, "origin": "https://evil.example"}, True, id="a form of another site"),
        pytest.param("POST", {**FORM, "origin": "http://vms.example"}, True, id="a form of a page without TLS"),
        pytest.param("POST", {**FORM, "sec-fetch-site": "same-site"}, True, id="a form of a neighbour"),
        pytest.param(access.WEBSOCKET, FORM, False, id="a screen of the portal"),
        pytest.param(access.WEBSOCKET, {**FORM, "origin": "https://a.vms.example"}, True, id="a screen of a neighbour"),
        pytest.param(access.WEBSOCKET, PAGE, True, id="a websocket without Origin"),
        pytest.param("DELETE", PAGE, True, id="any other method is as a form"),
    ],
)
def test_a_request_is_refused(method: str, headers: dict[str, str], refused: bool) -> None:
    assert bool(access.refusal(method, headers, URL)) == refused


@pytest.mark.parametrize(
    ("path", "shows_pictures"),
    [
        ("/screen/vnc/shop/vm-1", True),
        ("/console/shop/vnc/shop/vm-1", True),
        ("/console/-/vnc/shop/vm-1", True),
        ("/console/vnc/vm/shop/vm-1", False),
        ("/console/shop/vm/vnc/vm-1", False),
        ("/", False),
    ],
)
def test_only_screens_show_pictures_of_their_script(path: str, shows_pictures: bool) -> None:
    assert ("data:" in access.headers_of(path)["Content-Security-Policy"]) is shows_pictures


@pytest.mark.parametrize("path", ["/", "/screen/vnc/shop/vm-1", "/console/shop/"])
def test_a_page_loads_nothing_from_elsewhere_and_is_stored_nowhere(path: str) -> None:
    headers = access.headers_of(path)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "http" not in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert headers["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.parametrize(
    ("text", "returns"),
    [
        pytest.param("/", True, id="the first page"),
        pytest.param("/console/shop/vpool/shop/web?page=2&q=a%20b", True, id="a page with a query"),
        pytest.param("/" + "a" * (access.MAX_PATH - 1), True, id="the longest"),
        pytest.param("/" + "a" * access.MAX_PATH, False, id="longer"),
        pytest.param("", False, id="none"),
        pytest.param("console/", False, id="relative"),
        pytest.param("//evil.example/", False, id="another host"),
        pytest.param("///evil.example/", False, id="another host, with more slashes"),
        pytest.param("/\\evil.example/", False, id="a backslash, which browsers read as a slash"),
        pytest.param("\\\\evil.example/", False, id="two backslashes"),
        pytest.param("/a\\b", False, id="a backslash further on"),
        pytest.param("https://evil.example/", False, id="a scheme"),
        pytest.param("javascript:alert(1)", False, id="a script"),
        pytest.param("/\t/evil.example/", False, id="a tabulator, which browsers leave out"),
        pytest.param("/\n/evil.example/", False, id="a line feed"),
        pytest.param("/a\r\nSet-Cookie: x", False, id="another header"),
        pytest.param("/a\n", False, id="a line feed at the end"),
        pytest.param(" /a", False, id="a space"),
        pytest.param("/\x00", False, id="a null byte"),
        pytest.param("/\u2044evil.example", False, id="a character that is none of an address"),
        pytest.param('/"', False, id="a quotation mark, which would make the cookie longer"),
    ],
)
def test_a_sign_in_returns_only_to_a_page_of_the_portal(text: str, returns: bool) -> None:
    assert access.local_path(text) == (text if returns else "/")


# ID tokens

CLAIMS: dict[str, Any] = {
    "iss": "https://login.example/",
    "aud": "portal",
    "sub": "ann",
    "nonce": "n",
    "iat": NOW,
    "exp": NOW + 300,
}


def token(key: RSAKey = KEY, **changed: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changed}.items() if value is not None}
    return jwt.encode({"alg": "RS256", "kid": "k"}, claims, key)


def token_by_hmac() -> str:
    """A token whose signature uses the public key as if it were a password, which joserfc itself refuses to write."""
    head, body = b'{"alg":"HS256","kid":"k"}', token().split(".")[1]
    signed = f"{encoded(head)}.{body}"
    return f"{signed}.{encoded(hmac.digest(KEY.as_pem(private=False), signed.encode(), 'sha256'))}"


def encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


TOKENS = {
    "a right one": (token(), True),
    "for several clients, issued to this one": (token(aud=["portal", "other"], azp="portal"), True),
    "by a clock that is a little ahead": (token(iat=NOW + 20), True),
    "of another issuer": (token(iss="https://login.example"), False),
    "without issuer": (token(iss=None), False),
    "for another client": (token(aud="other"), False),
    "for no client": (token(aud=None), False),
    "for several clients, issued to another": (token(aud=["portal", "other"], azp="other"), False),
    "for this client, issued to another": (token(azp="other"), False),
    "for several clients, issued to nobody": (token(aud=["portal", "other"]), False),
    "for another sign-in": (token(nonce="m"), False),
    "without nonce": (token(nonce=None), False),
    "that has ended": (token(exp=NOW - 60), False),
    "without end": (token(exp=None), False),
    "of the future": (token(iat=NOW + 3600), False),
    "that may not be used yet": (token(nbf=NOW + 3600), False),
    "of nobody": (token(sub=None), False),
    "signed by another key": (token(OTHER), False),
    "signed by the public key, as if it were a password": (token_by_hmac(), False),
    "without signature": (token().rpartition(".")[0] + ".", False),
    "that says that it has no signature": ("eyJhbGciOiJub25lIn0." + token().split(".")[1] + ".", False),
    "that is none": ("x", False),
}


@pytest.mark.parametrize("name", TOKENS)
def test_an_id_token_is_accepted(name: str, settings: Settings) -> None:
    given, accepted = TOKENS[name]
    if accepted:
        assert verified(given, KEYS, settings, NOW, "n")["sub"] == "ann"
    else:
        with pytest.raises(Refused) as error:
            verified(given, KEYS, settings, NOW, "n")
        assert given not in str(error.value)


def test_a_renewed_token_needs_no_nonce(settings: Settings) -> None:
    assert verified(token(nonce=None), KEYS, settings, NOW, None)["sub"] == "ann"


def test_keys_that_are_none_are_refused(settings: Settings) -> None:
    for keys in ({}, {"keys": []}, {"keys": None}, {"keys": ["x"]}):
        with pytest.raises(Refused):
            verified(token(), keys, settings, NOW, "n")


async def test_users_do_not_queue_for_a_provider_that_does_not_answer(settings: Settings) -> None:
    class Hangs:
        """In the place of aiohttp's session. Each request takes ten seconds of the clock."""

        asked = 0

        def request(self, method: str, url: str, **options: Any) -> Any:
            self.asked += 1
            clock[0] += 10
            raise TimeoutError

    clock, hangs = [float(NOW)], Hangs()
    provider = Provider(settings, hangs, lambda: clock[0])
    told = await asyncio.gather(*(provider.sign_in_url(new_login()) for _ in range(20)), return_exceptions=True)
    assert {str(each) for each in told} == {"The provider does not answer. Try again in a minute."}
    assert hangs.asked == 1


def test_a_sign_in_has_state_nonce_and_pkce_and_no_secret_in_its_address(settings: Settings) -> None:
    login = new_login()
    query = parse_qs(urlsplit(authorization_url("https://login.example/a?x=1", settings, login)).query)
    assert query["x"] == ["1"]
    assert query["state"] == [login.state]
    assert query["nonce"] == [login.nonce]
    assert query["code_challenge_method"] == ["S256"]
    assert query["redirect_uri"] == [f"{URL}/callback"]
    assert login.verifier not in str(query)
    other = new_login()
    assert len({each for one in (login, other) for each in (one.state, one.nonce, one.verifier)}) == 6


# Names to impersonate


@pytest.mark.parametrize(
    ("claims", "changed", "found"),
    [
        pytest.param({"sub": "ann"}, {}, Identity("oidc:ann"), id="no groups"),
        pytest.param(
            {"sub": "ann", "groups": ["students", "admins", "system:masters", 7]},
            {},
            Identity("oidc:ann", ("oidc:students",)),
            id="only groups that the role allows",
        ),
        pytest.param({"sub": "ann", "groups": "staff"}, {}, Identity("oidc:ann", ("oidc:staff",)), id="one group"),
        pytest.param({"sub": "ann", "groups": {"a": 1}}, {}, Identity("oidc:ann"), id="groups of another form"),
        pytest.param({"sub": "system:admin"}, {}, Identity("oidc:system:admin"), id="the prefix keeps names apart"),
        pytest.param({"sub": ""}, {}, None, id="an empty name"),
        pytest.param({"sub": 7}, {}, None, id="a name that is a number"),
        pytest.param({"sub": "ann\r\nImpersonate-Group: x"}, {}, None, id="a name with another header"),
        pytest.param({"email": "a@x"}, {"POOLHOUSE_OIDC_USERNAME_CLAIM": "email"}, Identity("oidc:a@x"), id="e-mail"),
        pytest.param(
            {"email": "a@x", "email_verified": False},
            {"POOLHOUSE_OIDC_USERNAME_CLAIM": "email"},
            None,
            id="an e-mail address that is not verified",
        ),
        pytest.param(
            {"email": "a@x", "email_verified": True},
            {"POOLHOUSE_OIDC_USERNAME_CLAIM": "email"},
            Identity("oidc:a@x"),
            id="an e-mail address that is verified",
        ),
        *(
            pytest.param(
                {"email": "a@x", "email_verified": given},
                {"POOLHOUSE_OIDC_USERNAME_CLAIM": "email"},
                None,
                id=f"an e-mail address that is verified by {given!r}, as which Kubernetes refuses it",
            )
            for given in (None, "true", 1)
        ),
        pytest.param({"sub": "ann"}, {"POOLHOUSE_OIDC_USERNAME_CLAIM": "name"}, None, id="no such claim"),
    ],
)
def test_whom_the_portal_impersonates(
    claims: dict[str, Any], changed: dict[str, str], found: Identity | None, secrets: Path
) -> None:
    settings = read(secrets, **changed)
    if found is not None:
        assert impersonated(claims, settings) == found
    else:
        with pytest.raises(Refused):
            impersonated(claims, settings)


# Cookies

ANN = Session("oidc:ann", "ann", ("oidc:students",), NOW + 300, NOW + 3600, "t" * 100, "r" * 20, id="a")


def jar(headers: list[str]) -> dict[str, str]:
    """The cookies that a browser keeps."""
    found = {}
    for each in headers:
        name, _, rest = each.partition("=")
        value, *attributes = rest.split("; ")
        assert {"Path=/", "Secure", "HttpOnly", "SameSite=Lax"} <= set(attributes)
        assert name.startswith("__Host-")
        if "Max-Age=0" not in attributes:
            found[name] = value
    return found


def cookies(key: str = "k" * 32, names: str = "") -> Cookies:
    return Cookies(key, 3600, names)


@pytest.mark.parametrize("length", [0, 2000, 9000])
def test_a_session_survives_its_cookies(length: int) -> None:
    session = replace(ANN, token="t" * length)
    kept = jar(cookies().keep(session, {}, NOW))
    assert cookies().session(kept, NOW) == session
    assert all(len(each) <= CHUNK_BYTES for each in kept.values())
    assert b"oidc:ann" not in base64.urlsafe_b64decode("".join(kept.values()))


def test_a_shorter_session_deletes_the_cookies_that_are_left() -> None:
    long = jar(cookies().keep(replace(ANN, token="t" * 9000), {}, NOW))
    headers = cookies().keep(ANN, long, NOW)
    assert {each.partition("=")[0] for each in headers} == long.keys()
    assert cookies().session(jar(headers), NOW) == ANN


def test_tokens_that_no_browser_keeps_are_refused() -> None:
    with pytest.raises(ValueError, match="too much for cookies"):
        cookies().keep(replace(ANN, token="t" * 30_000), {}, NOW)


def test_cookies_that_the_portal_has_not_made_are_no_session() -> None:
    kept = jar(cookies().keep(ANN, {}, NOW))
    login = jar(cookies().keep_login(Login("s", "n", "v"), NOW))
    assert cookies("x" * 32).session(kept, NOW) is None
    assert cookies(names="other").session(kept, NOW) is None
    assert cookies().session({}, NOW) is None
    assert cookies().session({f"{SESSION}-0": "x"}, NOW) is None
    assert cookies().session({f"{SESSION}-0": login[LOGIN]}, NOW) is None
    assert cookies().login({LOGIN: kept[f"{SESSION}-0"]}, NOW) is None


def test_a_session_and_a_sign_in_end() -> None:
    kept = jar(cookies().keep(ANN, {}, NOW))
    assert cookies().session(kept, NOW + 3599) == ANN
    assert cookies().session(kept, NOW + 3600) is None
    login = jar(cookies().keep_login(Login("s", "n", "v"), NOW))
    assert cookies().login(login, NOW + LOGIN_SECONDS) == Login("s", "n", "v")
    assert cookies().login(login, NOW + LOGIN_SECONDS + 1) is None


def test_a_browser_keeps_the_sign_in_to_the_longest_path() -> None:
    login = new_login("/" + "a" * (access.MAX_PATH - 1))
    (header,) = cookies().keep_login(login, NOW)
    assert len(header) <= 4096
    assert cookies().login(jar([header]), NOW) == login


def test_an_id_token_is_renewed_before_its_end() -> None:
    assert [is_due(ANN, NOW + seconds) for seconds in (0, 239, 240, 300)] == [False, False, True, True]
    assert [ANN.is_valid(NOW + seconds) for seconds in (299, 300)] == [True, False]


def test_signing_out_deletes_all_cookies_of_the_portal_and_no_other() -> None:
    sent = {**jar(cookies().keep(replace(ANN, token="t" * 9000), {}, NOW)), LOGIN: "x", "theme": "dark"}
    assert {each.partition("=")[0] for each in forget(sent)} == sent.keys() - {"theme"}


def test_no_value_shows_a_token() -> None:
    assert "tttt" not in repr(ANN)
    assert "rrrr" not in repr(ANN)
    assert Seal("k" * 32, "session").open(Seal("k" * 32, "login").close(1, time.time()), time.time(), 10) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"POOLHOUSE_PORTAL_MODE": "impersonate"},
        {"POOLHOUSE_OIDC_ISSUER": "https://other.example"},
        {"POOLHOUSE_OIDC_USERNAME_PREFIX": "other:"},
        {"POOLHOUSE_PORTAL_GROUPS": "oidc:students"},
    ],
)
def test_a_setting_that_changes_the_names_of_users_ends_sessions(changed: dict[str, str], secrets: Path) -> None:
    assert read(secrets, **changed).names != read(secrets).names
    assert read(secrets, POOLHOUSE_PORTAL_SESSION_HOURS="1").names == read(secrets).names


# Settings


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        pytest.param({"POOLHOUSE_PORTAL_URL": "http://vms.example"}, "must begin with https://", id="no TLS"),
        pytest.param({"POOLHOUSE_PORTAL_URL": "http://127.0.0.1:80"}, "", id="loopback needs none"),
        pytest.param({"POOLHOUSE_PORTAL_URL": "https://vms.example/a"}, "must have no path", id="a path"),
        pytest.param({"POOLHOUSE_OIDC_ISSUER": "http://login.example"}, "must begin with https://", id="issuer"),
        pytest.param({"POOLHOUSE_OIDC_ISSUER": "https://a@login.example"}, "without a user", id="issuer with user"),
        pytest.param({"POOLHOUSE_OIDC_ISSUER": "https://login.example?p=a"}, "without a query", id="issuer with query"),
        pytest.param({"POOLHOUSE_OIDC_USERNAME_PREFIX": "system:"}, "must not begin like", id="Kubernetes' own names"),
        pytest.param({"POOLHOUSE_OIDC_GROUPS_PREFIX": "sys"}, "must not begin like", id="half of such a name"),
        pytest.param({"POOLHOUSE_OIDC_SCOPES": "profile"}, "must contain openid", id="no OpenID Connect"),
        pytest.param({"POOLHOUSE_PORTAL_MODE": "any"}, "must be token or impersonate", id="no such mode"),
        pytest.param({"POOLHOUSE_PORTAL_SECRET_DIR": "/absent"}, "the key cannot be read", id="no key"),
        pytest.param({"POOLHOUSE_OIDC_CLIENT_ID": ""}, "POOLHOUSE_OIDC_CLIENT_ID", id="no client"),
        pytest.param({"POOLHOUSE_PROMETHEUS_URL": "http://p:9090"}, "", id="a Prometheus"),
        pytest.param({"POOLHOUSE_PROMETHEUS_URL": "p:9090"}, "_PROMETHEUS_URL: Invalid value: 'p:9090'", id="no URL"),
    ],
)
def test_settings_are_checked(changed: dict[str, str], problem: str, secrets: Path) -> None:
    if problem:
        with pytest.raises(ValueError, match=problem):
            read(secrets, **changed)
    else:
        read(secrets, **changed)


def test_a_short_key_is_refused(secrets: Path) -> None:
    (secrets / "sessionKey").write_text("k" * 31)
    with pytest.raises(ValueError, match="at least 32 characters"):
        read(secrets)


def test_a_prometheus_gets_the_token_and_authority_of_its_directory(secrets: Path) -> None:
    assert read(secrets).prometheus is None
    prometheus = {"POOLHOUSE_PROMETHEUS_URL": "https://p:9090/", "POOLHOUSE_PROMETHEUS_DIR": str(secrets)}
    (secrets / "token").write_text("secret")
    assert read(secrets, **prometheus).prometheus == PrometheusServer("https://p:9090", secrets / "token")
    with pytest.raises(ValueError, match=r"^POOLHOUSE_PROMETHEUS_URL: must be https, because the token"):
        read(secrets, **{**prometheus, "POOLHOUSE_PROMETHEUS_URL": "http://p:9090"})
    (secrets / "ca.crt").write_text("no certificate")
    with pytest.raises(ValueError, match=r"^POOLHOUSE_PROMETHEUS_URL: .*ca.crt has no certificate of an authority"):
        read(secrets, **prometheus)
