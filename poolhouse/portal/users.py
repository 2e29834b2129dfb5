"""The client of the Kubernetes API that has the rights of a user who has signed in, and no other."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from poolhouse.cli.claims import who_am_i
from poolhouse.portal.provider import Provider, Refused, SignInFailed, Tokens
from poolhouse.portal.session import Login, Session
from poolhouse.portal.settings import Settings
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Forbidden, Unauthorized

log = logging.getLogger(__name__)

RENEW_SECONDS = 60
"""how long before its end an ID token is renewed"""
SHARED_SECONDS = 30.0
"""time for which requests with the same refresh token share the answer, because a provider may accept it only once"""
RESERVED = "system:"
"""what the names of Kubernetes' own users and groups begin with"""


@dataclass(frozen=True)
class Identity:
    """A user, as the API server knows one."""

    name: str
    groups: tuple[str, ...] = ()


def impersonated(claims: Mapping[str, Any], settings: Settings) -> Identity:
    """Whom the portal impersonates for a user with these claims. Raises `Refused`."""
    name = claims.get(settings.username_claim)
    if not isinstance(name, str) or not name:
        raise Refused(f"The provider's ID token has no claim {settings.username_claim}. Tell your administrator.")
    # Kubernetes decides so, too: OpenID Connect does not oblige a provider to send `email_verified`.
    if settings.username_claim == "email" and claims.get("email_verified", True) is not True:
        raise Refused("The provider has not verified your e-mail address.")
    given = claims.get(settings.groups_claim) or ()
    groups = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    known = (f"{settings.groups_prefix}{each}" for each in groups if isinstance(each, str))
    found = Identity(f"{settings.username_prefix}{name}", tuple(each for each in known if each in settings.groups))
    if any(each.startswith(RESERVED) or not each.isprintable() for each in (found.name, *found.groups)):
        raise Refused("Your name at the provider cannot be used in the cluster. Tell your administrator.")
    return found


def is_due(session: Session, now: float) -> bool:
    """Whether the ID token has to be renewed."""
    return now >= session.expires - RENEW_SECONDS


class Users:
    def __init__(self, api: Api, provider: Provider, settings: Settings, now: Callable[[], float]) -> None:
        self._api, self._provider, self._settings, self._now = api, provider, settings, now
        self._renewing: dict[str, asyncio.Task[Session]] = {}

    def client(self, session: Session) -> Api:
        """The client of a user. It shares only connections with those of other users."""
        return self.lasting_client(lambda: session)

    def lasting_client(self, session: Callable[[], Session]) -> Api:
        """A client that may outlive an ID token: each request has the token that the session has then."""
        first = session()
        if self._settings.mode == "token":
            return self._api.with_token(lambda: session().token, first.subject)
        return self._api.impersonating(first.user, first.groups)

    async def sign_in(self, code: str, login: Login) -> Session:
        """The session of a user who returns from the provider. Raises `SignInFailed`."""
        tokens = await self._provider.tokens(code, login)
        ends = int(self._now() + self._settings.session_hours * 3600)
        session = self._session(tokens, ends, secrets.token_urlsafe(16))
        try:
            name = await who_am_i(self.client(session))
        except Unauthorized:
            raise Refused("The cluster does not accept this provider's users. Tell your administrator.") from None
        except Forbidden:
            raise Refused(
                f"The portal may not act for {session.user} in the cluster. Tell your administrator."
            ) from None
        except ApiError as error:
            log.warning("a sign-in has failed: %s", error)
            raise SignInFailed("The cluster does not answer. Try again in a minute.") from None
        log.info("%s has signed in", name)
        return self._named(session, name)

    async def renewed(self, session: Session) -> Session:
        """The session with a new ID token. Raises `SignInFailed`."""
        key = hashlib.sha256(session.refresh_token.encode()).hexdigest()
        task = self._renewing.get(key)
        if task is None:
            task = self._renewing[key] = asyncio.create_task(self._renew(session), name="renew-session")
            asyncio.get_running_loop().call_later(SHARED_SECONDS, self._renewing.pop, key, None)
        return await asyncio.shield(task)

    async def _renew(self, session: Session) -> Session:
        tokens = await self._provider.renewed(session.refresh_token)
        if tokens.claims["sub"] != session.subject:
            raise Refused("The provider's new ID token is another user's.")
        return self._named(self._session(tokens, session.ends, session.id), session.user)

    def _named(self, session: Session, name: str) -> Session:
        """The session with the name by which the API server knows its user. Raises `Refused` if an impersonated user,
        whose session has a name from the sign-in, got another name."""
        if self._settings.mode == "impersonate" and name != session.user:
            raise Refused("Your name at the provider has changed. Sign in again.")
        return replace(session, user=name)

    def _session(self, tokens: Tokens, ends: int, id: str) -> Session:
        token, identity = tokens.id_token, Identity("")
        if self._settings.mode == "impersonate":
            token, identity = "", impersonated(tokens.claims, self._settings)
        claims = tokens.claims
        expires = int(claims["exp"])
        return Session(identity.name, claims["sub"], identity.groups, expires, ends, token, tokens.refresh_token, id=id)
