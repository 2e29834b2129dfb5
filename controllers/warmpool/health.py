"""Whether a machine is well: what can be read from it, and what has to be asked of it."""

from __future__ import annotations

import asyncio

from aiohttp import ClientError, ClientSession, ClientTimeout

from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.vmi import PAUSED_BY_USER
from controllers.warmpool.warm_vm import WarmVM
from kinds.warmpool import HttpProbe, Readiness, TcpProbe


def vmi_health(m: WarmVM, readiness: Readiness) -> Health:
    """By what KubeVirt says of it. Unable where the node does not answer: what is said of its machines is old news."""
    if m.vmi is None:
        return Health("Failed", "NotRunning", "it does not run")
    if m.node is not None and not m.node.ready:
        return Health("Unable", "NodeNotReady", f"node {m.node.name} does not answer")
    if not m.vmi.running:
        why = "its run is ending" if m.vmi.deleting else m.vmi.message or f"it is {m.vmi.phase or 'starting'}"
        return Health("Failed", m.vmi.trouble or "NotRunning", why)
    if m.vmi.paused:
        return Health("Failed", m.vmi.paused, "it is paused")
    missing = [each for each in ("Ready", *readiness.conditions) if each not in m.vmi.holds]
    if readiness.guest_agent and not m.vmi.agent:
        missing.append("AgentConnected")
    if missing:
        return Health("Failed", f"Not{missing[0]}", f"not true of its instance: {', '.join(missing)}")
    return HEALTHY


def standby_health(m: WarmVM) -> Health:
    """Of one that waits paused or stopped: nothing inside it can answer, so nothing inside it is asked."""
    if m.standby == "Stopped":
        return HEALTHY if m.vmi is None else Health("Failed", "NotStopped", f"it is {m.vmi.phase or 'starting'}")
    if m.vmi is None:
        return Health("Failed", "NotRunning", "it does not run")
    if m.node is not None and not m.node.ready:
        return Health("Unable", "NodeNotReady", f"node {m.node.name} does not answer")
    if not m.vmi.running:
        return Health("Failed", "NotRunning", f"it is {m.vmi.phase or 'starting'}")
    if m.vmi.paused != PAUSED_BY_USER:
        return Health("Failed", m.vmi.paused or "NotPaused", "it is not paused, or not by us")
    return HEALTHY


async def probe(m: WarmVM, readiness: Readiness, timeout_seconds: float) -> Health:
    """By what it answers over the network. Healthy where nothing is to be asked."""
    for probe, port in ((readiness.tcp, _tcp), (readiness.http, _http)):
        if probe is None:
            continue
        address = next(iter(m.vmi.addresses if m.vmi else ()), "")
        if not address:
            return Health("Failed", "NoAddress", "it has no address yet")
        try:
            async with asyncio.timeout(timeout_seconds):
                found = await port(address, probe)
        except TimeoutError:
            return Health("Failed", "NoAnswer", f"{address} port {probe.port}: no answer in {timeout_seconds:g} s")
        except (OSError, ClientError) as error:
            return Health("Failed", "NoAnswer", f"{address} port {probe.port}: {error}")
        if found is not HEALTHY:
            return found
    return HEALTHY


async def _tcp(address: str, probe: TcpProbe | HttpProbe) -> Health:
    _, writer = await asyncio.open_connection(address, probe.port)
    writer.close()
    return HEALTHY


async def _http(address: str, probe: TcpProbe | HttpProbe) -> Health:
    path = probe.path if isinstance(probe, HttpProbe) else "/"
    host = f"[{address}]" if ":" in address else address
    # A redirect may lead anywhere, and where it leads says nothing about the machine.
    async with (
        ClientSession(timeout=ClientTimeout(total=None)) as session,
        session.get(f"http://{host}:{probe.port}{path}", allow_redirects=False) as answer,
    ):
        if answer.status < 400:
            return HEALTHY
        return Health("Failed", "BadAnswer", f"http://{host}:{probe.port}{path} answered {answer.status}")
