"""Checks the health of a warm VM by its cached VMI and by network probes."""

import asyncio
import os

from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout

from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import PAUSED_BY_USER, WarmVM
from poolhouse.api.kinds.warm_readiness import HttpProbe, Readiness, TcpProbe


def vmi_health(vm: WarmVM, readiness: Readiness) -> Health:
    """The health of a running VM. Unable while the node is not ready, because its VMIs are then not updated."""
    if vm.vmi is None:
        return Health("Failed", "NotRunning", "the VM does not run")
    if vm.node is not None and not vm.node.ready:
        return _node_not_ready(vm.node.name)
    if not vm.vmi.running:
        why = "the VM is shutting down" if vm.vmi.deleting else vm.vmi.message or _phase(vm)
        return Health("Failed", vm.vmi.start_failure or "NotRunning", why)
    if vm.vmi.paused:
        return Health("Failed", vm.vmi.paused, "the VM is paused")
    missing = [each for each in ("Ready", *readiness.conditions) if each not in vm.vmi.conditions]
    if readiness.guest_agent and not vm.vmi.agent_connected:
        missing.append("AgentConnected")
    if missing:
        return Health("Failed", f"Not{missing[0]}", f"conditions of the VMI that are not True: {', '.join(missing)}")
    return HEALTHY


def standby_health(vm: WarmVM) -> Health:
    """The health of a VM in standby that is paused or stopped. Its guest cannot answer probes."""
    if vm.standby == "Stopped":
        return HEALTHY if vm.vmi is None else Health("Failed", "NotStopped", _phase(vm))
    if vm.vmi is None:
        return Health("Failed", "NotRunning", "the VM does not run")
    if vm.node is not None and not vm.node.ready:
        return _node_not_ready(vm.node.name)
    if not vm.vmi.running:
        return Health("Failed", "NotRunning", _phase(vm))
    if vm.vmi.paused != PAUSED_BY_USER:
        return Health("Failed", vm.vmi.paused or "NotPaused", "the VM is not paused, or KubeVirt paused it")
    return HEALTHY


async def probe(address: str, readiness: Readiness, timeout_seconds: float) -> Health:
    """Probes the address of a VM. Healthy if the pool declares no probe. No message repeats what the other side says,
    because everybody who may read the pool reads it."""
    for settings, send in ((readiness.tcp, _tcp), (readiness.http, _http)):
        if settings is None:
            continue
        where = f"{address} port {settings.port}"
        try:
            async with asyncio.timeout(timeout_seconds):
                result = await send(address, settings)
        except TimeoutError:
            return Health("Failed", "NoAnswer", f"{where}: no answer in {timeout_seconds:g} s")
        except OSError as error:
            return Health("Failed", "NoAnswer", f"{where}: {_cause(error)}")
        except ClientError:
            return Health("Failed", "NoAnswer", f"{where}: the answer is not HTTP")
        if result is not HEALTHY:
            return result
    return HEALTHY


def _cause(error: OSError) -> str:
    inner = error.os_error if isinstance(error, ClientConnectorError) else error
    return os.strerror(inner.errno) if inner.errno else "no connection"


async def _tcp(address: str, settings: TcpProbe | HttpProbe) -> Health:
    _, writer = await asyncio.open_connection(address, settings.port)
    writer.close()
    return HEALTHY


async def _http(address: str, settings: TcpProbe | HttpProbe) -> Health:
    path = settings.path if isinstance(settings, HttpProbe) else "/"
    url = f"http://{f'[{address}]' if ':' in address else address}:{settings.port}{path}"
    # The target of a redirect may be another host.
    async with (
        ClientSession(timeout=ClientTimeout(total=None)) as session,
        session.get(url, allow_redirects=False) as answer,
    ):
        if answer.status < 400:
            return HEALTHY
        return Health("Failed", "BadAnswer", f"{url} answered {answer.status}")


def _node_not_ready(node: str) -> Health:
    return Health("Unable", "NodeNotReady", f"node {node} is not ready")


def _phase(vm: WarmVM) -> str:
    return f"the VMI is {(vm.vmi.phase if vm.vmi else '') or 'starting'}"


def needs_probe(pool: WarmPool) -> bool:
    """Whether the health checks of the pool need network probes in addition to the cached VMI."""
    readiness = pool.spec.readiness
    return bool(readiness.tcp or readiness.http or pool.spec.ec2 or pool.spec.agent)
