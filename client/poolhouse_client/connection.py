"""Where the API server is, and who asks it.

The official Kubernetes client reads the kubeconfig or the service account of the pod, runs exec plugins and renews
tokens. Nothing else of it is used.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigError(Exception):
    """There is no kubeconfig, or it cannot be used. The message names the file and what to do."""


@dataclass(frozen=True)
class Connection:
    server: str
    tls: ssl.SSLContext
    auth: httpx.Auth | None
    namespace: str
    proxy: str | None = None
    server_name: str | None = None


class _Authorization(httpx.Auth):
    """The header of the Kubernetes client. After a 401 the configuration is read again: a token may be new."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load, self._settings = load, load()

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        used = self._header()
        response = yield _with_header(request, used)
        if response.status_code == 401 and (fresh := self._renewed()) != used:
            yield _with_header(request, fresh)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        used = await asyncio.to_thread(self._header)
        response = yield _with_header(request, used)
        if response.status_code == 401 and (fresh := await asyncio.to_thread(self._renewed)) != used:
            yield _with_header(request, fresh)

    @property
    def settings(self) -> Any:
        return self._settings

    def _header(self) -> str | None:
        """Renews an expired token."""
        found = self._settings.auth_settings().get("BearerToken", {}).get("value")
        return str(found).strip() if found else None

    def _renewed(self) -> str | None:
        self._settings = self._load()
        return self._header()


def _with_header(request: httpx.Request, value: str | None) -> httpx.Request:
    if value:
        request.headers["Authorization"] = value
    return request


def connect(
    kubeconfig: Path | str | None = None, context: str | None = None, environment: Mapping[str, str] = os.environ
) -> Connection:
    """Reads `kubeconfig`, else $KUBECONFIG, else ~/.kube/config, else the service account of the pod."""
    default = Path.home() / ".kube" / "config"
    files = str(kubeconfig or environment.get("KUBECONFIG") or default)
    if not any(Path(each).expanduser().is_file() for each in files.split(os.pathsep) if each):
        if files == str(default) and "KUBERNETES_SERVICE_HOST" in environment:
            return _connection(_from_service_account, (SERVICE_ACCOUNT / "namespace").read_text().strip())
        raise ConfigError(f"there is no kubeconfig {files}; set KUBECONFIG, or give the path of one")
    chosen = context or _current_context(files)
    return _connection(lambda: _from_kubeconfig(files, chosen), _namespace(files, chosen))


def _connection(load: Callable[[], Any], namespace: str) -> Connection:
    auth = _Authorization(load)
    found = auth.settings
    try:
        tls = _tls(found)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read the certificates of the kubeconfig: {error}") from error
    server, name = str(found.host).rstrip("/"), getattr(found, "tls_server_name", None)
    return Connection(server, tls, auth, namespace, proxy_of(server, getattr(found, "proxy", None)), name)


def proxy_of(server: str, given: str | None) -> str | None:
    """The proxy of the kubeconfig; else that of the environment, except for a server on this machine or one that
    `no_proxy` names, as in kubectl. `given` may be that of the environment: newer releases of the library give it for
    every server."""
    url, proxies = urlsplit(server), getproxies()
    proxy, host = proxies.get(url.scheme), url.hostname or ""
    if given and given not in proxies.values():
        return given
    if not proxy or _is_loopback(host) or proxy_bypass(host) or _is_in_networks(host, proxies.get("no", "")):
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


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _from_service_account() -> Any:
    from kubernetes import config
    from kubernetes.client.configuration import Configuration

    settings = Configuration()
    try:
        config.load_incluster_config(client_configuration=settings)
    except config.ConfigException as error:
        raise ConfigError(f"cannot read the service account of the pod: {error}") from error
    return settings


def _from_kubeconfig(files: str, context: str | None) -> Any:
    from kubernetes import config
    from kubernetes.client.configuration import Configuration

    settings, failures = Configuration(), list[str]()
    try:
        with _failures_of_plugins(failures):
            config.load_kube_config(files, context, settings, persist_config=False)
    except config.ConfigException as error:
        raise ConfigError(f"{files}: {error}") from error
    except Exception as error:  # YAML and base64 raise many types
        raise ConfigError(f"{files} is not a valid kubeconfig: {error}") from error
    if failures:
        raise ConfigError(f"the program that prints the credentials of {files} has failed: {'; '.join(failures)}")
    return settings


@contextmanager
def _failures_of_plugins(found: list[str]) -> Iterator[None]:
    """Adds the errors that the library logs in this thread. It would go on as an anonymous user."""
    thread = threading.get_ident()

    def collect(record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR or (record.module, record.thread) != ("kube_config", thread):
            return True
        found.append(record.getMessage())
        return False

    logger = logging.getLogger()
    logger.addFilter(collect)
    try:
        yield
    finally:
        logger.removeFilter(collect)


def _current_context(files: str) -> str | None:
    """The current context of the first file that has one, as kubectl chooses it; the library takes the last one's."""
    from kubernetes import config

    for each in files.split(os.pathsep):
        try:
            return str(config.list_kube_config_contexts(each)[1]["name"])
        except Exception:  # of this file alone; the files together may be valid
            continue
    return None


def _namespace(files: str, context: str | None) -> str:
    from kubernetes import config

    try:
        contexts, current = config.list_kube_config_contexts(files)
    except Exception as error:
        raise ConfigError(f"{files} is not a valid kubeconfig: {error}") from error
    chosen = next((each for each in contexts if each["name"] == context), None) if context else current
    if chosen is None:
        known = ", ".join(each["name"] for each in contexts)
        raise ConfigError(f"{files} has no context {context!r}; there are {known}")
    return str(chosen["context"].get("namespace") or "default")


def _tls(settings: Any) -> ssl.SSLContext:
    # Older releases of the client write the CA to a file and have no `ca_cert_data`.
    tls = ssl.create_default_context(cafile=settings.ssl_ca_cert, cadata=getattr(settings, "ca_cert_data", None))
    if settings.cert_file:
        tls.load_cert_chain(settings.cert_file, keyfile=settings.key_file)
    if not settings.verify_ssl:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if getattr(settings, "disable_strict_ssl_verification", False):
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls
