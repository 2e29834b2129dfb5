"""Checks whether a warm VM is healthy: from the cached VMI, and with probes over the network."""

from __future__ import annotations

import asyncio

from aiohttp import ClientError, ClientSession, ClientTimeout

from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.warm_vm import PAUSED_BY_USER, WarmVM
from kinds.warmpool import HttpProbe, Readiness, TcpProbe


def vmi_health(m: WarmVM, readiness: Readiness) -> Health:
    """The health as a VM that runs. Unable while the node is not ready: its VMIs are not updated then."""
    if m.vmi is None:
        return Health("Failed", "NotRunning", "the VM does not run")
    if m.node is not None and not m.node.ready:
        return _node_not_ready(m.node.name)
    if not m.vmi.running:
        why = "the VM is shutting down" if m.vmi.deleting else m.vmi.message or _phase(m)
        return Health("Failed", m.vmi.start_failure or "NotRunning", why)
    if m.vmi.paused:
        return Health("Failed", m.vmi.paused, "the VM is paused")
    missing = [each for each in ("Ready", *readiness.conditions) if each not in m.vmi.conditions]
    if readiness.guest_agent and not m.vmi.agent_connected:
        missing.append("AgentConnected")
    if missing:
        return Health("Failed", f"Not{missing[0]}", f"conditions of the VMI that are not True: {', '.join(missing)}")
    return HEALTHY


def standby_health(m: WarmVM) -> Health:
    """The health of a VM that waits paused or stopped. Its guest cannot answer a probe."""
    if m.standby == "Stopped":
        return HEALTHY if m.vmi is None else Health("Failed", "NotStopped", _phase(m))
    if m.vmi is None:
        return Health("Failed", "NotRunning", "the VM does not run")
    if m.node is not None and not m.node.ready:
        return _node_not_ready(m.node.name)
    if not m.vmi.running:
        return Health("Failed", "NotRunning", _phase(m))
    if m.vmi.paused != PAUSED_BY_USER:
        return Health("Failed", m.vmi.paused or "NotPaused", "the VM is not paused, or KubeVirt paused it")
    return HEALTHY


async def probe(m: WarmVM, readiness: Readiness, timeout_seconds: float) -> Health:
    """Healthy where the pool declares no probe."""
    for settings, send in ((readiness.tcp, _tcp), (readiness.http, _http)):
        if settings is None:
            continue
        address = next(iter(m.vmi.addresses if m.vmi else ()), "")
        if not address:
            return Health("Failed", "NoAddress", "the VM has no address yet")
        try:
            async with asyncio.timeout(timeout_seconds):
                result = await send(address, settings)
        except TimeoutError:
            return Health("Failed", "NoAnswer", f"{address} port {settings.port}: no answer in {timeout_seconds:g} s")
        except (OSError, ClientError) as error:
            return Health("Failed", "NoAnswer", f"{address} port {settings.port}: {error}")
        if result is not HEALTHY:
            return result
    return HEALTHY


async def _tcp(address: str, settings: TcpProbe | HttpProbe) -> Health:
    _, writer = await asyncio.open_connection(address, settings.port)
    writer.close()
    return HEALTHY


async def _http(address: str, settings: TcpProbe | HttpProbe) -> Health:
    path = settings.path if isinstance(settings, HttpProbe) else "/"
    url = f"http://{f'[{address}]' if ':' in address else address}:{settings.port}{path}"
    # The target of a redirect may be another host, which says nothing about the VM.
    async with (
        ClientSession(timeout=ClientTimeout(total=None)) as session,
        session.get(url, allow_redirects=False) as answer,
    ):
        if answer.status < 400:
            return HEALTHY
        return Health("Failed", "BadAnswer", f"{url} answered {answer.status}")


def _node_not_ready(node: str) -> Health:
    return Health("Unable", "NodeNotReady", f"node {node} is not ready")


def _phase(m: WarmVM) -> str:
    return f"the VMI is {(m.vmi.phase if m.vmi else '') or 'starting'}"
