"""Which requests the console answers."""

from __future__ import annotations

import re

import pytest

from poolhouse.console.access import HEADERS, WEBSOCKET, headers_of, new_token, refusal

PORT, TOKEN = 8123, "s3cret"
PATH = f"/{TOKEN}/vpool/default/web"
BROWSER = {"host": f"127.0.0.1:{PORT}", "sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"}
FORM = {**BROWSER, "origin": f"http://127.0.0.1:{PORT}"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        pytest.param("GET", PATH, BROWSER, None, id="a page of the console"),
        pytest.param("GET", PATH, {"host": f"localhost:{PORT}"}, None, id="localhost is the same machine"),
        pytest.param("GET", PATH, {"host": f"127.0.0.1:{PORT}"}, None, id="curl sends no Sec-Fetch headers"),
        pytest.param("GET", PATH, {**BROWSER, "sec-fetch-site": "cross-site"}, None, id="a link in a mail opens it"),
        pytest.param(
            "GET",
            PATH,
            {**BROWSER, "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
            403,
            id="another site cannot load a page as an image or a script",
        ),
        pytest.param("GET", PATH, {"host": f"evil.example:{PORT}"}, 403, id="a name that was rebound to loopback"),
        pytest.param("GET", PATH, {"host": "127.0.0.1:80"}, 403, id="another port"),
        pytest.param("GET", PATH, {}, 403, id="no Host"),
        pytest.param("GET", "/", BROWSER, 404, id="no token"),
        pytest.param("GET", "/s3cre/", BROWSER, 404, id="a part of the token"),
        pytest.param("GET", "/s3cret2/", BROWSER, 404, id="a longer token"),
        pytest.param("GET", "//s3cret/", BROWSER, 404, id="the token in another place"),
        pytest.param("GET", "/ä/", BROWSER, 404, id="a token that is not ASCII"),
        pytest.param("POST", PATH, FORM, None, id="a form of the console"),
        pytest.param("POST", PATH, BROWSER, 403, id="a form without Origin"),
        pytest.param("POST", PATH, {**FORM, "origin": "null"}, 403, id="a form of a sandboxed page"),
        pytest.param("POST", PATH, {**FORM, "origin": "http://evil.example"}, 403, id="a form of another site"),
        pytest.param("POST", PATH, {**FORM, "origin": "http://127.0.0.1:9"}, 403, id="a form of another port"),
        pytest.param("POST", PATH, {**FORM, "sec-fetch-site": "same-site"}, 403, id="a form of another port, by fetch"),
        pytest.param(WEBSOCKET, PATH, FORM, None, id="a websocket of the console"),
        pytest.param(WEBSOCKET, PATH, BROWSER, 403, id="a websocket without Origin"),
        pytest.param(WEBSOCKET, PATH, {**FORM, "origin": "http://evil.example"}, 403, id="a websocket of another site"),
        pytest.param("DELETE", PATH, BROWSER, 403, id="any other method is as a form"),
    ],
)
def test_a_request_is_refused(method: str, path: str, headers: dict[str, str], status: int | None) -> None:
    found = refusal(method, path, headers, PORT, TOKEN)
    assert (found[0] if found else None) == status


def test_no_refusal_tells_the_token() -> None:
    for method, path, headers in (("GET", "/", BROWSER), ("POST", PATH, BROWSER), ("GET", PATH, {})):
        found = refusal(method, path, headers, PORT, TOKEN)
        assert TOKEN not in found[1]


def test_tokens_differ_and_are_long() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch(r"[\w-]{32}", each) for each in tokens)


def directives(path: str) -> dict[str, str]:
    return dict(each.split(maxsplit=1) for each in headers_of(path)["Content-Security-Policy"].split("; "))


@pytest.mark.parametrize("path", [PATH, f"/{TOKEN}/console/shop/web-1", f"/{TOKEN}/vm/shop/vnc", "/"])
def test_a_page_may_load_and_send_nothing_elsewhere(path: str) -> None:
    assert headers_of(path) is HEADERS
    found = directives(path)
    assert found.pop("default-src") == "'none'"
    assert set(found.values()) <= {"'self'", "'none'"}


def test_only_the_page_of_a_screen_shows_pictures_of_its_script() -> None:
    assert directives(f"/{TOKEN}/vnc/shop/web-1") == {**directives(PATH), "img-src": "'self' data:"}
