"""Decides which requests of a browser are answered: those for the portal's own host, and writes of its own pages.

After a sign-in, it also decides to which page a browser returns.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from poolhouse.console.access import HEADERS, SAFE_METHODS, SCREEN_HEADERS, WEBSOCKET, is_led_here

__all__ = ["SAFE_METHODS", "WEBSOCKET", "headers_of", "is_led_here", "local_path", "refusal"]

TLS_ONLY = {"Strict-Transport-Security": "max-age=31536000"}
"""Browsers ignore it without TLS."""
LOCAL_PATH = re.compile(r"/(?!/)[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]*")
"""A path of this host with its query. `//host`, and backslashes, which browsers read as slashes, name another host."""
MAX_PATH = 2000
"""The path has to fit into the cookie of a sign-in, which has at most 4 KiB."""


def local_path(text: str) -> str:
    """The page to which a browser may return after a sign-in: the given one, or else the first page."""
    return text if len(text) <= MAX_PATH and LOCAL_PATH.fullmatch(text) else "/"


def headers_of(path: str) -> Mapping[str, str]:
    """The headers that limit what the page at a path may load, and who may read it."""
    parts = path.split("/")
    is_screen = parts[1:2] == ["screen"] or (parts[1:2] == ["console"] and parts[3:4] == ["vnc"])
    return {**(SCREEN_HEADERS if is_screen else HEADERS), **TLS_ONLY}


def refusal(method: str, headers: Mapping[str, str], url: str) -> str:
    """Why a request is refused; empty for an allowed one. `url` is the address of the portal. `headers` has lower-case
    names."""
    if headers.get("host", "").lower() != urlsplit(url).netloc.lower():
        return f"the Host header must be that of {url}"
    site = headers.get("sec-fetch-site", "none")
    if method in SAFE_METHODS:
        # The provider and links of other sites may open a page; only pages of the portal may load parts of it.
        if site in ("cross-site", "same-site") and headers.get("sec-fetch-mode", "navigate") != "navigate":
            return "another site must not load pages of the portal"
        return ""
    if headers.get("origin", "").lower() != url.lower() or site not in ("none", "same-origin"):
        return "only a page of the portal may change something; the Origin header was missing or another"
    return ""
