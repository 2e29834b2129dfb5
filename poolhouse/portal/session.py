"""Who has signed in, as cookies that only the portal can read and write.

Every Pod of the portal can read the cookies, and a restart ends no session. A browser keeps at most 4 KiB of a cookie,
and a session may have two long tokens, so that it may be divided into several cookies.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SESSION, LOGIN = "__Host-poolhouse-session", "__Host-poolhouse-login"
ATTRIBUTES = "Path=/; Secure; HttpOnly; SameSite=Lax"
"""Lax, because a browser that returns from the provider sends no cookie that is Strict."""
LOGIN_SECONDS = 600
"""time that a user has to sign in at the provider"""
CHUNK_BYTES, MAX_CHUNKS = 3800, 6


@dataclass(frozen=True)
class Session:
    user: str
    """the name by which the API server knows the user"""
    subject: str
    groups: tuple[str, ...]
    expires: int
    """end of the ID token"""
    ends: int
    """end of the session, when the user has to sign in again"""
    token: str = field(default="", repr=False)
    """the ID token, if the API server gets it"""
    refresh_token: str = field(default="", repr=False)
    id: str = field(kw_only=True, repr=False)
    """a random value that stays when the session is renewed"""

    def is_valid(self, now: float) -> bool:
        return now < min(self.expires, self.ends)


@dataclass(frozen=True)
class Login:
    """What a browser keeps while its user signs in at the provider."""

    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    path: str = "/"
    """the page of the portal that the user has asked for"""


class Seal:
    """Encrypts values for one purpose: a cookie of one cannot be used as one of another."""

    def __init__(self, key: str, purpose: str) -> None:
        derived = HKDF(SHA256(), 32, salt=None, info=f"poolhouse portal {purpose}".encode()).derive(key.encode())
        self._fernet = Fernet(base64.urlsafe_b64encode(derived))

    def close(self, value: object, now: float) -> str:
        return self._fernet.encrypt_at_time(json.dumps(value).encode(), int(now)).decode()

    def open(self, text: str, now: float, seconds: int) -> Any:
        """The value; None if the text was not sealed by this key, or is older than `seconds`."""
        try:
            return json.loads(self._fernet.decrypt_at_time(text.encode(), seconds, int(now)))
        except (InvalidToken, ValueError):
            return None


class Cookies:
    """Reads and writes the two cookies. `names` says how users get their names, which a session keeps."""

    def __init__(self, key: str, session_seconds: int, names: str) -> None:
        self._session, self._login = Seal(key, f"session with id {names}"), Seal(key, f"login with path {names}")
        self._seconds = session_seconds

    def session(self, cookies: Mapping[str, str], now: float) -> Session | None:
        """The session, also one that has to be renewed; None if there is none, or it has ended."""
        chunks = [cookies[name] for number in range(MAX_CHUNKS) if (name := f"{SESSION}-{number}") in cookies]
        found = self._session.open("".join(chunks), now, self._seconds)
        if found is None:
            return None
        session = Session(**{**found, "groups": tuple(found["groups"])})
        return session if now < session.ends else None

    def login(self, cookies: Mapping[str, str], now: float) -> Login | None:
        found = self._login.open(cookies.get(LOGIN, ""), now, LOGIN_SECONDS)
        return Login(**found) if found is not None else None

    def keep_login(self, login: Login, now: float) -> list[str]:
        """The headers `Set-Cookie` of a sign-in that begins."""
        return [_cookie(LOGIN, self._login.close(asdict(login), now), LOGIN_SECONDS)]

    def keep(self, session: Session, sent: Mapping[str, str], now: float) -> list[str]:
        """The headers `Set-Cookie` of a session. `sent` are the cookies of the request, of which some may be left over
        from a longer session. Raises ValueError for tokens that are too long."""
        sealed = self._session.close(asdict(session), now)
        chunks = [sealed[start : start + CHUNK_BYTES] for start in range(0, len(sealed), CHUNK_BYTES)]
        if len(chunks) > MAX_CHUNKS:
            raise ValueError(f"the tokens have {len(sealed)} bytes, which is too much for cookies")
        names = [f"{SESSION}-{number}" for number in range(len(chunks))]
        seconds = max(0, int(session.ends - now))
        kept = [_cookie(name, value, seconds) for name, value in zip(names, chunks, strict=True)]
        return [*kept, *(_cookie(name, "", 0) for name in _ours(sent) if name not in names)]


def forget(sent: Mapping[str, str]) -> list[str]:
    """The headers `Set-Cookie` that delete all cookies of the portal."""
    return [_cookie(name, "", 0) for name in _ours(sent)]


def _ours(cookies: Mapping[str, str]) -> Iterator[str]:
    return (name for name in cookies if name == LOGIN or re.fullmatch(rf"{SESSION}-\d", name))


def _cookie(name: str, value: str, seconds: int) -> str:
    return f"{name}={value}; Max-Age={seconds}; {ATTRIBUTES}"
