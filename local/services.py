"""The components that are Poolhouse: each service as its container starts it, and the engine."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping

from local.components import Component, HttpProbe
from local.paths import UNPRIVILEGED_USER, StackPaths

SERVICES = ("webhook", "defaulter", "controllers", "engine")
"""what `--without` knows"""
ACCOUNTS = ("webhook", "controllers", "engine")
"""services that call the API server"""
PORTS = ("apiserver", "kube-controller-manager", *SERVICES)
HOSTS: Mapping[str, tuple[str, ...]] = {
    "webhook": ("poolhouse-webhook.poolhouse-system.svc",),
    "engine": ("poolhouse-engine.poolhouse-system.svc",),
}
"""servers over https, and the names beside loopback's by which the API server calls them"""


def worker_uid() -> int | None:
    """As whom guests and libvirt run when we are root; None: as ourselves."""
    return pwd.getpwnam(UNPRIVILEGED_USER).pw_uid if os.geteuid() == 0 else None


def url(name: str, ports: Mapping[str, int]) -> str:
    scheme = "https" if name in HOSTS or name == "apiserver" else "http"
    return f"{scheme}://127.0.0.1:{ports[name]}"


def endpoints(paths: StackPaths, ports: Mapping[str, int], wanted: tuple[str, ...]) -> dict[str, str]:
    """What endpoints.json says: those who are there, and the file that verifies them."""
    there = ["apiserver", *(name for name in ("webhook", "defaulter", "controllers") if name in wanted)]
    return {**{name: url(name, ports) for name in there}, "ca": str(paths.ca)}


def service_components(
    paths: StackPaths, ports: Mapping[str, int], wanted: tuple[str, ...], engine: str, nodes: tuple[Component, ...]
) -> tuple[Component, ...]:
    """The wanted ones. They wait for no more than they must: each takes a second of imports, beside the API server's
    start or after it."""
    components = {
        "defaulter": _service("defaulter", paths, ports, {"POOLHOUSE_STATE_DIR": str(paths.defaulter)}),
        # It watches nodes, so it is to end before the API server, which waits for its watchers when it ends.
        "webhook": _service("webhook", paths, ports, _defaulting(ports, wanted), "kube-apiserver"),
        "engine": _service(
            "engine", paths, ports, _engine(paths, engine, wanted), "kinds", *(node.name for node in nodes)
        ),
        # Not after the webhook: what they make while it is away they have defaulted themselves.
        "controllers": _service("controllers", paths, ports, _defaulting(ports, wanted), "kinds", "defaulter"),
    }
    return (*nodes, *(component for name, component in components.items() if name in wanted))


def _service(name: str, paths: StackPaths, ports: Mapping[str, int], env: Mapping[str, str], *after: str) -> Component:
    common = {"POOLHOUSE_LISTEN": f"127.0.0.1:{ports[name]}", "POOLHOUSE_IDENTITY_SEED": str(paths.dir)}
    if name in ACCOUNTS:
        common["KUBECONFIG"] = str(paths.kubeconfig_of(name))
    if name in HOSTS:
        common["POOLHOUSE_TLS_DIR"] = str(paths.tls_of(name))
    if (uid := worker_uid()) is not None:
        common["POOLHOUSE_WORKER_UID"] = str(uid)
    return Component(
        name,
        # -P: what lies in the working directory is nobody's module.
        (sys.executable, "-P", "-m", "cli.main", name),
        env={**common, **env},
        ready=HttpProbe(f"{url(name, ports)}/readyz", paths.ca),
        after=after,
        # The first time on a machine, the engine fetches the tiny guest's packages.
        ready_seconds=600 if name == "engine" else 180,
        stop_seconds=20,
    )


def _defaulting(ports: Mapping[str, int], wanted: tuple[str, ...]) -> dict[str, str]:
    env = {}
    if "defaulter" in wanted:
        env["POOLHOUSE_DEFAULTER_URL"] = url("defaulter", ports)
    if "controllers" in wanted:
        env["POOLHOUSE_CONTROLLERS_URL"] = url("controllers", ports)
    return env


def _engine(paths: StackPaths, engine: str, wanted: tuple[str, ...]) -> dict[str, str]:
    # What the webhook let through is completed with the defaulter's help: without both there is nothing to wait for.
    completed = "defaulter" in wanted and "webhook" in wanted
    return {
        "POOLHOUSE_ENGINE": engine,
        "POOLHOUSE_WAIT_FOR_DEFAULTS_SECONDS": "30" if completed else "0",
        "POOLHOUSE_RUNTIME_DIR": str(paths.runtime),
        "POOLHOUSE_DISKS_DIR": str(paths.disks),
    }
