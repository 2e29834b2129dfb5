"""A small OpenID Connect provider on loopback, whose users sign in with one click.

It checks what a provider has to: the client with its secret, the redirect URI, PKCE, and that a code or a refresh token
is used once. `spoil` changes the claims of the ID tokens that it signs, as a provider that errs or an attacker would.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import BasicAuth, web
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "portal", "a secret: with signs"
POLICY = "b2c_1_sign_in"
"""a parameter of each endpoint, as those of Azure AD B2C have it"""
Json = dict[str, Any]
PAGE = """<!doctype html><html lang="en"><title>Sign in</title><link rel="icon" href="data:,"><h1>Who are you?</h1>
<form method="post"><button name="user" value="ann">ann</button><button name="user" value="bob">bob</button>
<button name="user" value="eve">eve</button><button name="user" value="">Cancel</button></form></html>"""


@dataclass
class Provider:
    issuer: str = ""
    users: dict[str, list[str]] = field(default_factory=lambda: {"ann": ["students"], "bob": ["students"], "eve": []})
    lifetime: int = 600
    """seconds of an ID token"""
    refreshes: bool = True
    """whether the client gets refresh tokens"""
    spoil: Json = field(default_factory=dict)
    """claims that the ID tokens have in the place of the right ones; None leaves a claim out"""
    asked: list[str] = field(default_factory=list)
    """the kinds of grants that the client has asked for"""
    _key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "first", "use": "sig"}))
    _codes: dict[str, Json] = field(default_factory=dict)
    _refresh_tokens: dict[str, str] = field(default_factory=dict)

    def rotate_key(self) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig"})

    def end_sessions(self) -> None:
        self._refresh_tokens.clear()

    def app(self) -> web.Application:
        app = web.Application(middlewares=[with_policy])
        app.router.add_get("/.well-known/openid-configuration", self._metadata)
        app.router.add_get("/keys", self._keys)
        app.router.add_get("/authorize", self._page)
        app.router.add_post("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_post("/revoke", self._revoke)
        return app

    async def _metadata(self, request: web.Request) -> web.Response:
        pages = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        pages |= {"end_session_endpoint": "end", "revocation_endpoint": "revoke"}
        found = {name: f"{self.issuer}/{page}?p={POLICY}" for name, page in pages.items()}
        return web.json_response({"issuer": self.issuer, **found})

    async def _keys(self, request: web.Request) -> web.Response:
        return web.json_response({"keys": [self._key.as_dict(private=False)]})

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    async def _authorize(self, request: web.Request) -> web.Response:
        query, user = dict(request.query), str((await request.post())["user"])
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT
        assert query["code_challenge_method"] == "S256"
        answer = {"error": "access_denied"}
        if user:
            code = secrets.token_urlsafe()
            self._codes[code] = {**query, "user": user}
            answer = {"code": code}
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode({**answer, 'state': query['state']})}")

    async def _token(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        if not is_client(request):
            return web.json_response({"error": "invalid_client"}, status=401)
        self.asked.append(str(form["grant_type"]))
        if form["grant_type"] == "refresh_token":
            user = self._refresh_tokens.pop(str(form["refresh_token"]), None)
            return self._tokens(user, None) if user else web.json_response({"error": "invalid_grant"}, status=400)
        begun = self._codes.pop(str(form["code"]), None)
        digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if begun is None or begun["code_challenge"] != challenge or begun["redirect_uri"] != form["redirect_uri"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return self._tokens(begun["user"], begun["nonce"])

    async def _revoke(self, request: web.Request) -> web.Response:
        if not is_client(request):
            return web.json_response({"error": "invalid_client"}, status=401)
        self._refresh_tokens.pop(str((await request.post())["token"]), None)
        return web.Response()

    def _tokens(self, user: str, nonce: str | None) -> web.Response:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": user,
            "groups": [*self.users[user], "system:masters"],
            "iat": now,
            "exp": now + self.lifetime,
            **({"nonce": nonce} if nonce is not None else {}),
            **self.spoil,
        }
        token = jwt.encode(
            {"alg": "RS256", "kid": self._key.kid}, {k: v for k, v in claims.items() if v is not None}, self._key
        )
        answer = {"access_token": "unused", "token_type": "Bearer", "id_token": token}
        if self.refreshes:
            answer["refresh_token"] = secrets.token_urlsafe()
            self._refresh_tokens[answer["refresh_token"]] = user
        return web.json_response(answer)


@web.middleware
async def with_policy(request: web.Request, handler: Any) -> web.StreamResponse:
    """Answers like a provider whose endpoints have a query: without it, there is nothing."""
    if request.path != "/.well-known/openid-configuration" and request.query.getall("p", []) != [POLICY]:
        raise web.HTTPNotFound
    answer: web.StreamResponse = await handler(request)
    return answer


def is_client(request: web.Request) -> bool:
    auth = BasicAuth.decode(request.headers.get("Authorization", "Basic Og=="))
    return (auth.login, auth.password) == (CLIENT, "a%20secret%3A%20with%20signs")


@contextmanager
def running(certificate: Path, key: Path) -> Iterator[Provider]:
    """A provider with this certificate, until the block ends."""
    provider, loop, started = Provider(), asyncio.new_event_loop(), threading.Event()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    runner = web.AppRunner(provider.app())

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        provider.issuer = f"https://127.0.0.1:{runner.addresses[0][1]}"
        started.set()

    def serve() -> None:
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=serve)
    thread.start()
    assert started.wait(30)
    try:
        yield provider
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
