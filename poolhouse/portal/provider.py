"""Signs users in at an OpenID Connect provider: the authorization code flow with PKCE, state and nonce.

joserfc verifies the signatures. The public keys are read for each token, so that keys may change at any time.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import re
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import certifi
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.portal.session import Login
from poolhouse.portal.settings import Settings, https_endpoint

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
METADATA_SECONDS = 300.0
RETRY_SECONDS = 5.0
"""shortest time between two questions to a provider that does not answer"""
MAX_ANSWER_BYTES = 1024 * 1024
LEEWAY_SECONDS = 30
"""how far the clocks of the provider and of the portal may differ"""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""only signatures with a public key: `none`, or an HMAC of something public, is never accepted"""
KEY_TYPES = ("RSA", "EC")
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class SignInFailed(Exception):
    """A sentence for the user about a sign-in that has failed."""


class Refused(SignInFailed):
    """The provider, or a check of its answer, has refused the user."""


@dataclass(frozen=True)
class Tokens:
    claims: Mapping[str, Any]
    """the claims of the ID token, which are verified"""
    id_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)


def new_login(path: str = "/") -> Login:
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    return Login(state, nonce, verifier, path)


def authorization_url(endpoint: str, settings: Settings, login: Login) -> str:
    digest = hashlib.sha256(login.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": settings.client_id,
        "redirect_uri": f"{settings.url}/callback",
        "scope": " ".join(settings.scopes),
        "state": login.state,
        "nonce": login.nonce,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    return with_parameters(endpoint, query)


def with_parameters(endpoint: str, query: Mapping[str, str]) -> str:
    """The address with more parameters than the provider has put into it, such as the policy of Azure AD B2C."""
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def verified(token: str, keys: Json, settings: Settings, now: float, nonce: str | None) -> Json:
    """The claims of an ID token that this provider has signed for this client, and for this sign-in if there is a
    `nonce`. Raises `Refused`."""
    try:
        public = [each for each in keys["keys"] if each.get("kty") in KEY_TYPES and each.get("use", "sig") == "sig"]
        found = KeySet.import_key_set({"keys": public})
        claims: Json = dict(jwt.decode(token, found, algorithms=ALGORITHMS).claims)
        registry = jwt.JWTClaimsRegistry(
            now=int(now),
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        )
        registry.validate(claims)
    except (JoseError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"The provider's ID token is not valid: {error}") from None
    if nonce is not None and not secrets.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise Refused("The provider's ID token is not for this sign-in: its nonce is another.")
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if claims.get("azp", "" if several else settings.client_id) != settings.client_id:
        raise Refused("The provider's ID token was issued to another client.")
    return claims


class Provider:
    def __init__(self, settings: Settings, session: aiohttp.ClientSession, now: Callable[[], float]) -> None:
        self._settings, self._session, self._now = settings, session, now
        self._metadata: Json = {}
        self._asked = float("-inf")
        self._asking = asyncio.Lock()

    async def sign_in_url(self, login: Login) -> str:
        metadata = await self._discovered()
        return authorization_url(str(metadata["authorization_endpoint"]), self._settings, login)

    async def sign_out_url(self) -> str:
        """Where a user ends the session at the provider; empty if the provider has no such page."""
        metadata = await self._discovered()
        endpoint = str(metadata.get("end_session_endpoint") or "")
        query = {"client_id": self._settings.client_id, "post_logout_redirect_uri": f"{self._settings.url}/"}
        try:
            return with_parameters(https_endpoint(endpoint), query)
        except ValueError:
            return ""

    async def tokens(self, code: str, login: Login) -> Tokens:
        """The tokens of a user who returns from the provider."""
        form = {"code": code, "redirect_uri": f"{self._settings.url}/callback", "code_verifier": login.verifier}
        return await self._tokens({"grant_type": "authorization_code", **form}, login.nonce)

    async def renewed(self, refresh_token: str) -> Tokens:
        found = await self._tokens({"grant_type": "refresh_token", "refresh_token": refresh_token}, None)
        return Tokens(found.claims, found.id_token, found.refresh_token or refresh_token)

    async def revoke(self, refresh_token: str) -> None:
        """Ends a refresh token, if the provider has an address for it (RFC 7009)."""
        endpoint = str((await self._discovered()).get("revocation_endpoint") or "")
        try:
            https_endpoint(endpoint)
        except ValueError:
            return
        await self._request(endpoint, {"token": refresh_token, "token_type_hint": "refresh_token"})

    async def _request(self, url: str, form: Mapping[str, str]) -> Json:
        """The answer to a request as the client of the portal."""
        settings = self._settings
        # RFC 6749 asks for HTTP Basic of a client with a secret, with both parts encoded as in a form.
        auth = aiohttp.BasicAuth(_quoted(settings.client_id), _quoted(settings.client_secret))
        public = not settings.client_secret
        data = {**form, "client_id": settings.client_id} if public else dict(form)
        return await self._ask("POST", url, data=data, auth=None if public else auth)

    async def _tokens(self, form: Mapping[str, str], nonce: str | None) -> Tokens:
        metadata, settings = await self._discovered(), self._settings
        answer = await self._request(str(metadata["token_endpoint"]), form)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise Refused("The provider's answer has no ID token.")
        keys = await self._ask("GET", str(metadata["jwks_uri"]))
        claims = verified(token, keys, settings, self._now(), nonce)
        return Tokens(claims, token, str(answer.get("refresh_token") or ""))

    async def _discovered(self) -> Json:
        """The addresses of the provider."""
        async with self._asking:
            age = self._now() - self._asked
            if age >= (METADATA_SECONDS if self._metadata else RETRY_SECONDS):
                url = f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration"
                try:
                    self._metadata = self._checked(await self._ask("GET", url))
                finally:  # so that those who wait for the lock do not wait for their own answers, too
                    self._asked = self._now()
            if not self._metadata:
                raise SignInFailed("The provider does not answer. Try again in a minute.")
            return self._metadata

    def _checked(self, metadata: Json) -> Json:
        if metadata.get("issuer") != self._settings.issuer:
            log.error("the provider says that its issuer is %r, not %r", metadata.get("issuer"), self._settings.issuer)
            raise SignInFailed("The provider is not the one that the portal is set up for. Tell your administrator.")
        for each in ENDPOINTS:
            try:
                https_endpoint(str(metadata.get(each) or ""))
            except ValueError as error:
                log.error("the provider's %s %s", each, error)
                raise SignInFailed("The provider's addresses cannot be used. Tell your administrator.") from None
        return metadata

    async def _ask(self, method: str, url: str, **options: Any) -> Json:
        """The JSON object of an answer. No error contains what was sent."""
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                self._session.request(method, url, allow_redirects=False, **options) as answer,
            ):
                body = await answer.content.read(MAX_ANSWER_BYTES)
                while not answer.content.at_eof() and len(body) < MAX_ANSWER_BYTES:
                    body += await answer.content.read(MAX_ANSWER_BYTES)
                found = _json(body or b"{}")  # a revoked token has no answer
                if answer.status == 200 and found is not None:
                    return found
                log.warning("the provider answered %s %s with %d %s", method, url, answer.status, _error(found))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("the provider did not answer %s %s: %s", method, url, type(error).__name__)
            raise SignInFailed("The provider does not answer. Try again in a minute.") from None
        if answer.status in (400, 401):
            raise Refused("The provider has refused the sign-in. Sign in again.")
        raise SignInFailed("The provider has failed. Try again in a minute.")


def _json(body: bytes) -> Json | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _error(answer: Json | None) -> str:
    """The error code of OAuth, which is a word, and none of the provider's other words, which may repeat a token."""
    found = str((answer or {}).get("error") or "")
    return found if re.fullmatch(r"[a-z_]{1,40}", found) else ""


def _quoted(text: str) -> str:
    return quote(text, safe="")


def new_http_session(settings: Settings) -> aiohttp.ClientSession:
    """A session for requests to the provider."""
    trusted = ssl.create_default_context(cafile=str(settings.ca_file or certifi.where()))
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trusted, limit=32),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept": "application/json", "User-Agent": "poolhouse-portal"},
        trust_env=True,
    )
