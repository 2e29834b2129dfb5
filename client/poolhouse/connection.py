"""Where the API server is, and who asks it: a kubeconfig by kubectl's rules, or the service account of a pod."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

Json = dict[str, Any]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_SECONDS = 60.0


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


class _Token(httpx.Auth):
    """A token that is read again after a 401, because it may have been renewed."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read, self._token = read, ""

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        used = self._token = self._token or self._read()
        response = yield _with_token(request, used)
        if response.status_code == 401 and (fresh := self._read()) != used:
            self._token = fresh
            yield _with_token(request, fresh)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        used = self._token = self._token or await asyncio.to_thread(self._read)
        response = yield _with_token(request, used)
        if response.status_code == 401 and (fresh := await asyncio.to_thread(self._read)) != used:
            self._token = fresh
            yield _with_token(request, fresh)


def _with_token(request: httpx.Request, token: str) -> httpx.Request:
    request.headers["Authorization"] = f"Bearer {token}"
    return request


def connect(
    kubeconfig: Path | str | None = None, context: str | None = None, environment: Mapping[str, str] = os.environ
) -> Connection:
    """Reads `kubeconfig`, else $KUBECONFIG, else ~/.kube/config, else the service account of the pod."""
    if kubeconfig is not None:
        return _from_kubeconfig([Path(kubeconfig).expanduser()], context)
    if named := [Path(each).expanduser() for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]:
        return _from_kubeconfig(named, context)
    default = Path.home() / ".kube" / "config"
    if default.is_file():
        return _from_kubeconfig([default], context)
    if "KUBERNETES_SERVICE_HOST" in environment:
        return _from_service_account(environment)
    raise ConfigError(f"there is no kubeconfig {default}; set KUBECONFIG, or give the path of one")


def _from_service_account(environment: Mapping[str, str]) -> Connection:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    return Connection(
        f"https://{host}:{port}",
        ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt")),
        _Token(lambda: (SERVICE_ACCOUNT / "token").read_text().strip()),
        (SERVICE_ACCOUNT / "namespace").read_text().strip(),
    )


@dataclass
class _Entries:
    """The named entries of several kubeconfigs; the first entry of a name counts, with paths relative to its file."""

    current: str = ""
    found: dict[tuple[str, str], tuple[Json, Path]] = field(default_factory=dict)

    def get(self, kind: str, name: str) -> tuple[Json, Path]:
        try:
            return self.found[kind, name]
        except KeyError:
            known = ", ".join(each for of, each in self.found if of == kind) or "none"
            raise ConfigError(f"the kubeconfig has no {kind} {name!r}; there are {known}") from None


def _read(paths: list[Path]) -> _Entries:
    entries = _Entries()
    existing = [path for path in paths if path.is_file()]
    if not existing:
        raise ConfigError(f"there is no kubeconfig {', '.join(map(str, paths))}")
    for path in existing:
        try:
            document = yaml.safe_load(path.read_text())
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ConfigError(f"cannot read the kubeconfig {path}: {error}") from error
        if not isinstance(document, dict):
            raise ConfigError(f"{path} is not a kubeconfig")
        entries.current = entries.current or document.get("current-context") or ""
        for kind in ("cluster", "user", "context"):
            for each in document.get(f"{kind}s") or ():
                entries.found.setdefault((kind, each["name"]), (each.get(kind) or {}, path.parent))
    return entries


def _from_kubeconfig(paths: list[Path], context: str | None) -> Connection:
    entries = _read(paths)
    chosen, _ = entries.get("context", context or entries.current)
    cluster, near = entries.get("cluster", chosen.get("cluster", ""))
    user, at_user = entries.get("user", chosen["user"]) if chosen.get("user") else ({}, near)
    return Connection(
        cluster["server"].rstrip("/"),
        _tls(cluster, near, user, at_user),
        _auth(user, at_user),
        chosen.get("namespace") or "default",
        cluster.get("proxy-url"),
        cluster.get("tls-server-name"),
    )


def _tls(cluster: Json, near: Path, user: Json, at_user: Path) -> ssl.SSLContext:
    authority = base64.b64decode(cluster.get("certificate-authority-data") or "").decode() or None
    file = cluster.get("certificate-authority")
    tls = ssl.create_default_context(cadata=authority, cafile=str(near / file) if file and not authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    _load_certificate(tls, user, at_user)
    return tls


def _load_certificate(tls: ssl.SSLContext, user: Json, near: Path) -> None:
    """`ssl` reads certificates only from files, so those in the kubeconfig are written to a private directory."""
    with tempfile.TemporaryDirectory() as directory:
        paths = []
        for name in ("client-certificate", "client-key"):
            if data := user.get(f"{name}-data"):
                path = Path(directory) / name
                path.touch(0o600)
                path.write_bytes(base64.b64decode(data))
                paths.append(path)
            elif user.get(name):
                paths.append(near / user[name])
        if paths:
            tls.load_cert_chain(*map(str, paths))


def _auth(user: Json, near: Path) -> httpx.Auth | None:
    if file := user.get("tokenFile"):
        return _Token(lambda: (near / file).read_text().strip())
    if token := user.get("token"):
        return _Token(lambda: str(token))
    if plugin := user.get("exec"):
        return _Token(lambda: _run_plugin(plugin))
    if "username" in user:
        return httpx.BasicAuth(user["username"], user.get("password", ""))
    if "auth-provider" in user:
        raise ConfigError("the kubeconfig has an auth-provider, which Kubernetes has removed; use an exec plugin")
    return None


def _run_plugin(plugin: Json) -> str:
    """The token that an exec plugin of the kubeconfig prints."""
    given = {each["name"]: each["value"] for each in plugin.get("env") or ()}
    request = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    try:
        done = subprocess.run(
            [plugin["command"], *(plugin.get("args") or ())],
            env={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=EXEC_SECONDS,
            check=True,
        )
        return str(json.loads(done.stdout)["status"]["token"])
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise ConfigError(f"{plugin['command']} ended with {error.returncode}: {said}") from error
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{plugin['command']} gave no token: {error}") from error
