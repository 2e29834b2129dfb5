"""Settings of the portal, read from environment variables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, PrivateAttr, model_validator

from poolhouse.service.prometheus import PrometheusServer
from poolhouse.service.settings import ListenAddress, ServerSettings, listen_setting, setting, split

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MIN_KEY_LENGTH = 32
Mode = Literal["token", "impersonate"]


Words = Annotated[tuple[str, ...], BeforeValidator(split)]


def https_endpoint(url: str) -> str:
    """Refuses a URL by which others could read what is sent. Only on this machine may it be http."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise ValueError("must begin with https://")
    if not parts.hostname or parts.fragment or parts.username:
        raise ValueError("must be a URL with a host, and without a user and a fragment")
    return url


def https_url(url: str) -> str:
    """Refuses also a URL with a query, to which no path can be added."""
    if urlsplit(https_endpoint(url)).query:
        raise ValueError("must be a URL without a query")
    return url


def portal_url(url: str) -> str:
    found = https_url(url).rstrip("/")
    if urlsplit(found).path:
        raise ValueError("must have no path: the portal needs a host of its own")
    return found


def user_prefix(prefix: str) -> str:
    if not prefix or prefix.startswith("system:") or "system:".startswith(prefix):
        raise ValueError("must not be empty, and must not begin like the names of Kubernetes itself (system:)")
    return prefix


Prefix = Annotated[str, AfterValidator(user_prefix)]


class Settings(ServerSettings):
    listen: ListenAddress = listen_setting("127.0.0.1:8443")
    url: Annotated[str, AfterValidator(portal_url)] = setting(
        "POOLHOUSE_PORTAL_URL", ..., "Address that users open, such as https://vms.example.org."
    )
    issuer: Annotated[str, AfterValidator(https_url)] = setting(
        "POOLHOUSE_OIDC_ISSUER", ..., "Issuer of the OpenID Connect provider, as in its tokens."
    )
    client_id: str = setting(
        "POOLHOUSE_OIDC_CLIENT_ID",
        ...,
        "ID of the client that is registered for the portal. Its redirect URI is `URL/callback`.",
    )
    secret_dir: Path = setting(
        "POOLHOUSE_PORTAL_SECRET_DIR",
        ...,
        "Directory of the files `sessionKey`, at least 32 characters that encrypt cookies, and `clientSecret`, which a "
        "public client does not have.",
    )
    scopes: Words = setting("POOLHOUSE_OIDC_SCOPES", ("openid", "profile"), "Scopes to ask for, `SCOPE,...`.")
    ca_file: Path | None = setting(
        "POOLHOUSE_OIDC_CA_FILE", None, "Authorities of the provider's certificate, in PEM. Empty: the public ones."
    )
    mode: Mode = setting(
        "POOLHOUSE_PORTAL_MODE",
        "token",
        "How the API server knows users. `token`: by their ID tokens. `impersonate`: by the portal's ServiceAccount, "
        "which may impersonate them.",
    )
    username_claim: str = setting(
        "POOLHOUSE_OIDC_USERNAME_CLAIM", "sub", "Claim with the name of a user to impersonate."
    )
    username_prefix: Prefix = setting("POOLHOUSE_OIDC_USERNAME_PREFIX", "oidc:", "What such a user name begins with.")
    groups_claim: str = setting(
        "POOLHOUSE_OIDC_GROUPS_CLAIM", "groups", "Claim with the groups of a user to impersonate."
    )
    groups_prefix: Prefix = setting(
        "POOLHOUSE_OIDC_GROUPS_PREFIX", "oidc:", "What the name of such a group begins with."
    )
    groups: Words = setting(
        "POOLHOUSE_PORTAL_GROUPS",
        (),
        "Groups that the portal may impersonate, with the prefix. It impersonates no others.",
    )
    namespaces: Words = setting(
        "POOLHOUSE_PORTAL_NAMESPACES", (), "Namespaces to look into for users who may not list all namespaces' claims."
    )
    session_hours: float = setting(
        "POOLHOUSE_PORTAL_SESSION_HOURS", 12, "Time after which users sign in again.", unit="hours", gt=0, le=168
    )
    max_consoles: int = setting(
        "POOLHOUSE_PORTAL_MAX_CONSOLES", 20, "Consoles that may be open at once, with 12 watches each; 0: none.", ge=0
    )
    prometheus_url: str = setting(
        "POOLHOUSE_PROMETHEUS_URL",
        "",
        "Prometheus with KubeVirt's metrics, for the CPU and memory of VMs that users may get. Empty: no charts.",
    )
    prometheus_dir: Path | None = setting(
        "POOLHOUSE_PROMETHEUS_DIR",
        None,
        "Directory with `token`, a bearer token, and `ca.crt` for Prometheus. Both are optional.",
    )
    _session_key: str = PrivateAttr("")
    _client_secret: str = PrivateAttr("")
    _prometheus: PrometheusServer | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _read_secrets(self) -> Self:
        try:
            self._session_key = (self.secret_dir / "sessionKey").read_text().strip()
            secret = self.secret_dir / "clientSecret"
            self._client_secret = secret.read_text().strip() if secret.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"POOLHOUSE_PORTAL_SECRET_DIR: the key cannot be read: {error}") from None
        if len(self._session_key) < MIN_KEY_LENGTH:
            raise ValueError(f"POOLHOUSE_PORTAL_SECRET_DIR: sessionKey must have at least {MIN_KEY_LENGTH} characters")
        if "openid" not in self.scopes:
            raise ValueError("POOLHOUSE_OIDC_SCOPES: must contain openid")
        return self

    @model_validator(mode="after")
    def _read_prometheus(self) -> Self:
        url, directory = self.prometheus_url, self.prometheus_dir
        self._prometheus = PrometheusServer.parse("POOLHOUSE_PROMETHEUS_URL", url, directory)
        return self

    @property
    def names(self) -> str:
        """The settings on which the names of users in the cluster depend."""
        claims = {"username_claim", "username_prefix", "groups_claim", "groups_prefix"}
        return self.model_dump_json(include={"mode", "issuer", "client_id", "groups", *claims})

    @property
    def session_key(self) -> str:
        return self._session_key

    @property
    def client_secret(self) -> str:
        return self._client_secret

    @property
    def prometheus(self) -> PrometheusServer | None:
        return self._prometheus
