"""Address and credentials of the API server. The only module that uses the Kubernetes client.

`kubernetes.aio.config` reads kubeconfigs and service accounts, runs exec plugins and renews tokens. The typed models of
the Kubernetes client are not used, see `kubernetes_config`: they take nine times as long to parse as JSON. Its watch is
not used either, because it reconnects two thousand times a second to a server that hangs up.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from poolhouse.runtime.errors import Unreachable
from poolhouse.runtime.kubernetes_config import import_config

# The shortest time between two reads of a kubeconfig whose credentials the API server refuses.
RELOAD_SECONDS = 10.0
READER = logging.getLogger("kubernetes.aio.config.kube_config")
# Errors of the Kubernetes client for a YAML file that is not a kubeconfig.
INVALID_KUBECONFIG = (AttributeError, IndexError, KeyError, TypeError)


class Credentials:
    """Address and credentials of the API server, found by the rules of the Kubernetes client."""

    def __init__(self, kubeconfig: Path | None, context: str | None = None) -> None:
        self._kubeconfig, self._context = kubeconfig, context
        self._loaded_at = float("-inf")
        self.proxy: str | None = None
        self.host = ""

    async def load(self) -> None:
        # A process that needs only ApiError does not import the client.
        config, configuration = import_config()
        settings = configuration()
        source = self._kubeconfig or "the pod's service account"
        failures: list[str] = []
        try:
            if self._kubeconfig is None:
                config.load_incluster_config(client_configuration=settings)
            else:
                # The function runs exec plugins, and may write TLS files to a temporary directory.
                with _failures_of_plugins(failures):
                    await config.load_kube_config(
                        config_file=str(self._kubeconfig),
                        context=self._context,
                        client_configuration=settings,
                        persist_config=False,
                    )
            tls, anonymous_tls = _tls(settings, client_certificate=True), _tls(settings, client_certificate=False)
        except Exception as error:  # YAML, PEM and exec plugins raise many types
            cause = "the file is not a valid kubeconfig" if isinstance(error, INVALID_KUBECONFIG) else error
            raise Unreachable(f"cannot read the address of the API server from {source}: {cause}") from error
        if failures:
            raise Unreachable(f"the program that prints the credentials of {source} has failed: {'; '.join(failures)}")
        self._settings, self._source = settings, source
        self.tls: ssl.SSLContext = tls
        self.anonymous_tls: ssl.SSLContext = anonymous_tls
        self.host = str(settings.host).rstrip("/")
        self.server_name: str | None = settings.tls_server_name
        self.proxy = settings.proxy or proxy_from_environment(self.host)
        self._loaded_at = asyncio.get_running_loop().time()

    async def authorization(self) -> str | None:
        # The client reads the token file of a pod again after a minute.
        value = await self._settings.get_api_key_with_prefix("BearerToken", alias="authorization")
        token = value.strip() if value else None
        if token and not token.isprintable():
            raise Unreachable(
                f"the token of {self._source} has a line feed or another character that no header can have"
            )
        return token

    async def renew(self) -> bool:
        if asyncio.get_running_loop().time() - self._loaded_at < RELOAD_SECONDS:
            return False
        await self.load()
        return True

    async def renew_authorization(self) -> bool:
        before = await self.authorization()
        return await self.renew() and await self.authorization() != before


@contextmanager
def _failures_of_plugins(found: list[str]) -> Iterator[None]:
    """Adds the errors that the client logs. It would go on without credentials, as an anonymous user."""

    def collect(record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR:
            return True
        found.append(record.getMessage())
        return False

    READER.addFilter(collect)
    try:
        yield
    finally:
        READER.removeFilter(collect)


def _tls(settings: Any, *, client_certificate: bool) -> ssl.SSLContext:
    """The TLS context of the Kubernetes client, with or without the client certificate."""
    if str(settings.host).startswith("http://"):
        # The system's authorities take longer to load than most commands need for their work.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Older releases of the client write the CA to a file and have no `ca_cert_data`.
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert, cadata=getattr(settings, "ca_cert_data", None))
    if client_certificate and settings.cert_file:
        context.load_cert_chain(settings.cert_file, keyfile=settings.key_file)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def proxy_from_environment(server: str) -> str | None:
    """The proxy that kubectl would use for an API server: none on this machine, and none that `no_proxy` names."""
    url, proxies = urlsplit(server), getproxies()
    host, proxy = url.hostname or "", proxies.get(url.scheme)
    if not proxy or is_loopback(host) or proxy_bypass(host) or _is_in_networks(host, proxies.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_in_networks(host: str, no_proxy: str) -> bool:
    """Whether `no_proxy` has a network with this address, such as 10.96.0.0/12. Go reads networks, Python does not."""
    with suppress(ValueError):  # the host is a name
        address = ip_address(host)
        for each in no_proxy.split(","):
            with suppress(ValueError):  # an entry that is a name
                if address in ip_network(each.strip(), strict=False):
                    return True
    return False


def is_loopback(host: str) -> bool:
    """Whether a host is this machine. An IPv6 address may have brackets."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
