"""A stack whose API server trusts a small OpenID Connect provider, and portals of it with the rights of the chart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import yaml

from poolhouse.api.kinds import meta
from poolhouse.service.certificates import new_ca, new_server_certificate
from poolhouse.stack.binaries import PROGRAMS, find_programs
from poolhouse.stack.paths import StackPaths
from tests.charts import helm
from tests.conftest import stack
from tests.kinds.warm import warm_pool
from tests.portal import oidc
from tests.ports import free_port
from tests.tokens import kubeconfig_with
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
SHOP = "shop"
STUDENTS = "oidc:students"
USERS = ("oidc:ann", "oidc:bob", "oidc:eve")
ACCOUNT = "poolhouse-console"
CLAIMS_WAIT = {"onEmpty": "Queue", "maxPerNamespace": 0, "bindTimeoutSeconds": 86400}
"""The claim policy of a pool that gives no VM, so that a claim waits for ever."""


def desks(name: str = "desks", **spec: Any) -> dict[str, Any]:
    """A warm pool of small VMs that stop at once."""
    domain = {"devices": {}, "memory": {"guest": "128Mi"}}
    vmi = {"domain": domain, "terminationGracePeriodSeconds": 0}
    return warm_pool(name, template={"spec": {"template": {"spec": vmi}}}, **spec)


@dataclass(frozen=True)
class Place:
    """Where the tests of a stack find everything."""

    paths: StackPaths
    provider: oidc.Provider
    folder: Path

    def kubectl(self, *arguments: str, document: object = None) -> str:
        text = yaml.safe_dump(document) if document is not None else None
        command = ["kubectl", "--kubeconfig", str(self.paths.kubeconfig), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def read(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", "-n", SHOP, "-o", "json", *arguments))

    def claims(self) -> dict[str, str]:
        """The claims with their users."""
        found = self.read("vmclaim")["items"]
        return {each["metadata"]["name"]: each["metadata"]["annotations"][meta.REQUESTER] for each in found}


@contextmanager
def place(folder: Path, engine: str) -> Iterator[Place]:
    """A stack with a namespace in which the group of students may claim VMs, and nothing else."""
    now, tls = datetime.now(UTC), folder / "tls"
    tls.mkdir()
    authority = new_ca("portal", now, timedelta(days=1))
    server = new_server_certificate(authority, "portal", ("127.0.0.1",), now, timedelta(days=1))
    (tls / "tls.crt").write_bytes(server.certificate)
    (tls / "tls.key").write_bytes(server.key)
    (tls / "ca.crt").write_bytes(authority.certificate)
    with oidc.running(tls / "tls.crt", tls / "tls.key") as provider:
        paths = StackPaths(folder / "stack")
        before = os.environ.get("KUBEBUILDER_ASSETS")
        os.environ["KUBEBUILDER_ASSETS"] = str(_programs(folder, provider.issuer, authority.certificate.decode()))
        try:
            running = stack(paths, "--engine", engine)
            with running:
                found = Place(paths, provider, folder)
                _prepare(found)
                yield found
        finally:
            os.environ.pop("KUBEBUILDER_ASSETS")
            if before is not None:
                os.environ["KUBEBUILDER_ASSETS"] = before


def _programs(folder: Path, issuer: str, authority: str) -> Path:
    """The programs of the control plane, with an API server that trusts the provider."""
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1beta1",
        "kind": "AuthenticationConfiguration",
        "jwt": [
            {
                "issuer": {"url": issuer, "audiences": [oidc.CLIENT], "certificateAuthority": authority},
                "claimMappings": {
                    "username": {"claim": "sub", "prefix": "oidc:"},
                    "groups": {"claim": "groups", "prefix": "oidc:"},
                },
            }
        ],
    }
    file, found = folder / "authentication.json", find_programs(lambda text: None)
    file.write_text(json.dumps(configuration))
    programs = folder / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        more = f" --authentication-config={file}" if name == "kube-apiserver" else ""
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec {found.command(name)} "$@"{more}\n')
        script.chmod(0o755)
    return programs


def _prepare(found: Place) -> None:
    rules = next(each for each in _manifests(ROOT / "docs" / "claims.md") if each["kind"] == "Role")
    found.kubectl("create", "namespace", SHOP)
    found.kubectl("apply", "-n", SHOP, "-f", "-", document=rules)
    found.kubectl("create", "rolebinding", "students", "-n", SHOP, "--role=claim-vms", f"--group={STUDENTS}")
    for each in helm.template(values()):
        if each["metadata"]["name"] == ACCOUNT and each["kind"] in (
            "ServiceAccount",
            "ClusterRole",
            "ClusterRoleBinding",
        ):
            found.kubectl("apply", "-f", "-", document=each)


def values() -> dict[str, Any]:
    """The chart's values for a portal that impersonates the users of the tests."""
    oidc_values = {"issuer": "https://login.example", "clientID": oidc.CLIENT}
    users = {"users": list(USERS), "groups": [STUDENTS]}
    console = {"enabled": True, "url": "https://vms.example", "secret": "portal", "mode": "impersonate"}
    return {"console": {**console, "oidc": oidc_values, "impersonate": users}}


def _manifests(page: Path) -> Iterator[dict[str, Any]]:
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        yield from (each for each in yaml.safe_load_all(block) if isinstance(each, dict) and "kind" in each)


@contextmanager
def portal(found: Place, mode: str, **changed: str) -> Iterator[str]:
    """`poolhouse portal` with the rights of its ServiceAccount, and its address."""
    folder = found.folder / f"portal-{mode}"
    folder.mkdir(exist_ok=True)
    (folder / "sessionKey").write_text("a key of the tests that is long enough")
    (folder / "clientSecret").write_text(oidc.SECRET)
    port = free_port()
    environment = {
        "POOLHOUSE_LISTEN": f"127.0.0.1:{port}",
        "POOLHOUSE_TLS_DIR": str(found.folder / "tls"),
        "POOLHOUSE_PORTAL_URL": f"https://127.0.0.1:{port}",
        "POOLHOUSE_PORTAL_SECRET_DIR": str(folder),
        "POOLHOUSE_PORTAL_MODE": mode,
        "POOLHOUSE_PORTAL_GROUPS": STUDENTS,
        "POOLHOUSE_PORTAL_NAMESPACES": f"{SHOP},default",
        "POOLHOUSE_OIDC_ISSUER": found.provider.issuer,
        "POOLHOUSE_OIDC_CLIENT_ID": oidc.CLIENT,
        "POOLHOUSE_OIDC_CA_FILE": str(found.folder / "tls" / "ca.crt"),
        "KUBECONFIG": str(_kubeconfig(found, folder)),
        **changed,
    }
    with (folder / "log").open("ab") as log:
        command = [sys.executable, "-P", "-u", "-m", "poolhouse.cli.main", "portal"]
        with subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment}) as process:
            try:
                address = f"https://127.0.0.1:{port}"
                wait_until(lambda: process.poll() is not None or _is_served(address))
                assert process.poll() is None, log_of(found, mode)
                yield address
            finally:
                process.terminate()


def _is_served(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz", verify=False).status_code == 200
    except httpx.TransportError:
        return False


def _kubeconfig(found: Place, folder: Path) -> Path:
    """A kubeconfig of the portal's ServiceAccount."""
    token = found.kubectl("create", "token", ACCOUNT, "-n", helm.NAMESPACE).strip()
    return kubeconfig_with(token, found.paths.kubeconfig, folder / "kubeconfig")


def log_of(found: Place, mode: str) -> str:
    return (found.folder / f"portal-{mode}" / "log").read_text()
