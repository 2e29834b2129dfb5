"""Checks the health of warm VMs by the cached VMI and by network probes, and counts failed periods."""

import asyncio
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout

from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import HEALTHY, Backend, Health
from controllers.warmpool.snapshot import NOT_CHECKED, VMHealth, waits_for_scheduling
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


log = logging.getLogger(__name__)

MAX_PROBES_IN_FLIGHT = 64


@dataclass
class _Record:
    """The observations of one VM."""

    vm: WarmVM | None = None
    """The VM at the last observation. `running` and `standby` are computed from it and from `readiness`."""
    readiness: Readiness | None = None
    running: Health = NOT_CHECKED
    standby: Health = NOT_CHECKED
    answer: Health = NOT_CHECKED
    """The result of the last probe."""
    healthy_since: float | None = None
    failed_periods: int = 0
    counting: bool = False
    """Whether the last observation failed. If so, a failure in the next period counts."""
    counted_at: float = 0.0
    unscheduled_at: float = -math.inf


@dataclass
class HealthTracker:
    """Counts how long each VM is healthy or failing. A restart resets the counts, which only delays decisions."""

    clock: Callable[[], float]
    """Monotonic, so that a change of the system time does not affect the counts."""
    _records: dict[str, _Record] = field(default_factory=dict)
    """The key is the VM's UID."""

    def observe(self, pool: WarmPool, vms: Iterable[WarmVM]) -> Mapping[str, VMHealth]:
        """The health of each unclaimed VM. A period counts once, even if it has several observations."""
        return {vm.uid: self._observe(pool, vm) for vm in vms if vm.unclaimed}

    def seconds_until_period_ends(self, pool: WarmPool, vms: Iterable[WarmVM]) -> float | None:
        """Seconds until the next observation of a failing VM counts. None without a failing VM."""
        now, period = self.clock(), pool.spec.health.period_seconds
        found = (self._records.get(vm.uid) for vm in vms)
        ends = [each.counted_at + period - now for each in found if each is not None and each.counting]
        return max(0.0, min(ends)) if ends else None

    async def probe(self, pool: WarmPool, vms: Iterable[WarmVM], backend: Backend) -> bool:
        """Probes VMs. Returns whether any verdict changed."""
        in_flight = asyncio.Semaphore(MAX_PROBES_IN_FLIGHT)

        async def one(vm: WarmVM) -> bool:
            record = self._records.setdefault(vm.uid, _Record())  # the VM may be forgotten during the check
            async with in_flight:
                answer = await backend.check(vm, pool.spec.readiness, pool.spec.health.timeout_seconds)
            changed = record.answer is NOT_CHECKED or record.answer.verdict != answer.verdict
            record.answer = answer
            message = f"probed {vm.name}: {answer.message or answer.verdict}"
            level = logging.INFO if changed else logging.DEBUG
            log_event(log, "VMChecked", message, about=vm, level=level, reason=answer.reason or answer.verdict)
            return changed

        return any(await asyncio.gather(*(one(vm) for vm in vms if can_probe(pool, vm))))

    def forget(self, uid: str) -> None:
        self._records.pop(uid, None)

    def _observe(self, pool: WarmPool, vm: WarmVM) -> VMHealth:
        now, record, readiness = self.clock(), self._records.setdefault(vm.uid, _Record()), pool.spec.readiness
        if record.vm is not vm or record.readiness is not readiness:
            record.vm, record.readiness = vm, readiness
            record.running, record.standby = vmi_health(vm, readiness), standby_health(vm)
        running = record.answer if needs_probe(pool) and record.running.verdict == "Healthy" else record.running
        in_standby = running if vm.standby == "Running" else record.standby
        if running.verdict == "Healthy":
            record.healthy_since = now if record.healthy_since is None else record.healthy_since
        elif running.verdict == "Failed":
            record.healthy_since = None
        period_over = _count(record, in_standby, pool.spec.health.period_seconds, now)
        healthy_seconds = 0.0 if record.healthy_since is None else now - record.healthy_since
        if waits_for_scheduling(vm):
            record.unscheduled_at = now
        unscheduled_ago = now - record.unscheduled_at
        return VMHealth(running, in_standby, record.failed_periods, period_over, healthy_seconds, unscheduled_ago)


def _count(record: _Record, in_standby: Health, period: float, now: float) -> bool:
    """Whether a failed period ended. A check that could not run neither increases nor resets the count."""
    record.counting = in_standby.verdict == "Failed"
    if in_standby.verdict == "Healthy":
        record.failed_periods = 0
    elif record.counting and (not record.failed_periods or now - record.counted_at >= period):
        record.failed_periods += 1
        record.counted_at = now
        return True
    return False


def needs_probe(pool: WarmPool) -> bool:
    """Whether the health checks of the pool need network probes in addition to the cached VMI."""
    readiness = pool.spec.readiness
    return bool(readiness.tcp or readiness.http or pool.spec.ec2 or pool.spec.agent)


def can_probe(pool: WarmPool, vm: WarmVM) -> bool:
    """Whether the pool probes the VM: it must run and be unclaimed. The claim controller probes claimed VMs."""
    if not vm.unclaimed or vm.deleting:
        return False
    return pool.spec.ec2 is not None or vmi_health(vm, pool.spec.readiness).verdict == "Healthy"
