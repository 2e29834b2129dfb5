"""Defines the components of Poolhouse: the services, started as in their containers, and the engine."""

import os
import pwd
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.stack.binaries import SCHEDULER
from poolhouse.stack.certificates import WEBHOOK_CLIENT
from poolhouse.stack.components import Component, HttpProbe
from poolhouse.stack.engine.agents.addresses import NETWORK as SIMULATED_NETWORK
from poolhouse.stack.paths import UNPRIVILEGED_USER, StackPaths

RULES = Path(__file__).resolve().parent.parent.parent / "charts" / "poolhouse" / "monitoring"
SERVICES = ("webhook", "defaulter", "controllers", "engine")
"""components that `--without` can leave out"""
ACCOUNTS = ("webhook", "controllers", "engine")
"""services with a ServiceAccount"""
PORTS = ("apiserver", "kube-controller-manager", SCHEDULER, "kubelet", *SERVICES, "agents")
HOSTS: Mapping[str, tuple[str, ...]] = {
    "webhook": ("poolhouse-webhook.poolhouse-system.svc",),
    "engine": ("poolhouse-engine.poolhouse-system.svc",),
}
"""HTTPS servers with the DNS names, besides localhost, under which the API server calls them"""
GUEST_NETWORK = "10.0.2.0/24"
"""QEMU's user network, in which the VMs of the engine have their addresses. They have no Pods."""


def worker_uid() -> int | None:
    """Returns the unprivileged user for libvirt and QEMU if root starts the stack, else None (the current user)."""
    return pwd.getpwnam(UNPRIVILEGED_USER).pw_uid if os.geteuid() == 0 else None


def url(name: str, ports: Mapping[str, int]) -> str:
    scheme = "https" if name in HOSTS or name == "apiserver" else "http"
    return f"{scheme}://127.0.0.1:{ports[name]}"


def endpoints(paths: StackPaths, ports: Mapping[str, int], wanted: tuple[str, ...]) -> dict[str, str]:
    """Returns the content of endpoints.json: the URLs, and the CA file that verifies them."""
    there = ["apiserver", *(name for name in ("webhook", "defaulter", "controllers") if name in wanted)]
    return {**{name: url(name, ports) for name in there}, "ca": str(paths.ca)}


def prometheus_config(endpoints: Mapping[str, str]) -> Json:
    """Returns the configuration of a Prometheus that scrapes the stack and has the rules of the chart."""
    return {
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
        "rule_files": sorted(str(each) for each in RULES.glob("*.yaml")),
        "scrape_configs": [
            {
                "job_name": f"poolhouse-{name}",
                "scheme": urlsplit(url).scheme,
                "tls_config": {"ca_file": endpoints["ca"]},
                "static_configs": [{"targets": [urlsplit(url).netloc]}],
            }
            for name, url in endpoints.items()
            if name in SERVICES
        ],
    }


def service_components(
    paths: StackPaths,
    ports: Mapping[str, int],
    wanted: tuple[str, ...],
    engine: str,
    nodes: tuple[Component, ...],
    virtual_node: str,
    guest_agent: bool,
) -> tuple[Component, ...]:
    """Returns the wanted services and the nodes. A service waits for few others, because its imports take a second.
    `virtual_node` is the name of the virtual node, if there is one. With `guest_agent`, QEMU's guests run an agent."""
    urls = {
        f"POOLHOUSE_{name.upper()}_URL": url(name, ports) for name in ("defaulter", "controllers") if name in wanted
    }
    engine_env = {
        "POOLHOUSE_ENGINE": engine,
        # Without the webhook or the defaulter, no VM gets defaults, so the engine must not wait for them.
        "POOLHOUSE_WAIT_FOR_DEFAULTS_SECONDS": "30" if {"defaulter", "webhook"} <= set(wanted) else "0",
        "POOLHOUSE_RUNTIME_DIR": str(paths.runtime),
        # Kubernetes' node lifecycle controller runs only for a virtual node.
        "POOLHOUSE_NODE_LEASES": str(bool(virtual_node)).lower(),
        "POOLHOUSE_DISKS_DIR": str(paths.disks),
    }
    clients = {
        "POOLHOUSE_CLIENT_CA": str(paths.tls_of("cluster") / "ca.crt"),
        "POOLHOUSE_CLIENT_NAMES": WEBHOOK_CLIENT,
        # A person may try requests by hand.
        "POOLHOUSE_UNKNOWN_CALLERS": "limit",
    }
    # The proxy reaches the agents of guests. Simulated guests always have agents, and real guests with `guest_agent`.
    has_agents = guest_agent or engine == "simulated"
    proxy = {"POOLHOUSE_AGENT_PROXY": f"127.0.0.1:{ports['agents']}" if has_agents else ""}
    networks = f"{GUEST_NETWORK},{SIMULATED_NETWORK}"
    machines = {"POOLHOUSE_MACHINE_CIDRS": networks, "POOLHOUSE_VIRTUAL_NODE": virtual_node}
    if virtual_node:
        listen = f"127.0.0.1:{ports['kubelet']}"
        machines |= {"POOLHOUSE_VIRTUAL_NODE_LISTEN": listen, "POOLHOUSE_VIRTUAL_NODE_ADDRESS": "127.0.0.1"}
    components = {
        "defaulter": _service("defaulter", paths, ports, {"POOLHOUSE_STATE_DIR": str(paths.defaulter)}),
        # The webhook watches nodes. It must stop first, because the API server waits for its watchers when it stops.
        "webhook": _service("webhook", paths, ports, {**urls, **clients}, "kube-apiserver"),
        "engine": _service("engine", paths, ports, {**engine_env, **proxy}, "kinds", *(node.name for node in nodes)),
        # The controllers need not wait for the webhook: while it is unavailable, they call the defaulter themselves.
        "controllers": _service("controllers", paths, ports, {**urls, **machines, **proxy}, "kinds", "defaulter"),
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
        # With -P, Python does not import modules from the working directory.
        (sys.executable, "-P", "-m", "poolhouse.cli.main", name),
        env={**common, **env},
        ready=HttpProbe(f"{url(name, ports)}/readyz", paths.ca),
        after=after,
        # On its first start on a machine, the engine downloads the packages of the built-in Linux.
        ready_seconds=600 if name == "engine" else 180,
        stop_seconds=20,
    )
