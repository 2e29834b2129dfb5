"""Decides which requests are answered: those of a browser that was given the address, on this machine.

Other programs of this machine and web pages in the same browser can send requests to a port on loopback. The token in
the path is unknown to them. The check of `Host` stops a web page whose name was rebound to 127.0.0.1. The check of
`Origin` stops forms and websockets of other sites, in case the address with the token has leaked.
"""

import secrets
from collections.abc import Mapping

TOKEN_BYTES = 24
SAFE_METHODS = frozenset({"GET", "HEAD"})
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # `no-referrer` would make browsers send `Origin: null` with forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


SCREEN_HEADERS = {
    **HEADERS,
    # noVNC decodes pictures and shows the pointer as data URLs.
    "Content-Security-Policy": HEADERS["Content-Security-Policy"].replace("img-src 'self'", "img-src 'self' data:"),
}
WEBSOCKET = "WEBSOCKET"
"""stands for the method of a websocket, which can do what a form can"""


def headers_of(path: str) -> Mapping[str, str]:
    """The headers that limit what the page at a path may load."""
    return SCREEN_HEADERS if path.split("/")[2:3] == ["vnc"] else HEADERS


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def is_led_here(headers: Mapping[str, str]) -> bool:
    """Whether a page of the same site has led the browser to this address, and not a link in an e-mail or of another
    site. `headers` has lower-case names."""
    return headers.get("sec-fetch-site") == "same-origin"


def refusal(method: str, path: str, headers: Mapping[str, str], port: int, token: str) -> tuple[int, str] | None:
    """The status and the text with which a request is refused; None for an allowed request. `headers` has lower-case
    names."""
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
    host = headers.get("host", "")
    if host not in hosts:
        return 403, f"the Host header must be 127.0.0.1:{port}; open the address that `poolhouse console` printed"
    if not secrets.compare_digest(path.split("/")[1].encode() if path.startswith("/") else b"", token.encode()):
        return 404, "not found; open the whole address that `poolhouse console` printed, with its last part"
    site = headers.get("sec-fetch-site", "none")
    if method in SAFE_METHODS:
        # A link of another site may open a page; only pages of the console may load parts of it.
        if site in ("cross-site", "same-site") and headers.get("sec-fetch-mode", "navigate") != "navigate":
            return 403, "another site must not load pages of the console"
        return None
    if headers.get("origin") != f"http://{host}" or site not in ("none", "same-origin"):
        return 403, "only a page of the console may change something; its Origin header was missing or another"
    return None
