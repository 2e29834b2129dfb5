"""The backend that holds warm VMs as VirtualMachines."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime

from controllers.shared.creation import DefaultingCreator
from controllers.shared.subresources import Subresources, Verb
from controllers.warmpool import agent_certificates, health, ssh_keys, vm_manifest
from controllers.warmpool.agent import AgentClient, ApplicationHealth, Launched, NetworkAgentClient
from controllers.warmpool.agent_authority import AgentAuthority
from controllers.warmpool.agent_reasons import AgentReason
from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import (
    Change,
    CreateRequest,
    Health,
    OutcomeUnknown,
    WriteConflict,
    check_transition,
    translated_errors,
)
from controllers.warmpool.probe_address import Network
from controllers.warmpool.vm_agent import VMAgents
from controllers.warmpool.warm_vm import NO_OWNER, StandbyMode, WarmVM, parse_warm_vm
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta, tracking_marks
from poolhouse.api.kinds.warm_agent import Agent, parse_agent
from poolhouse.api.kinds.warm_readiness import Readiness
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, ApiError, Conflict, NotFound
from poolhouse.runtime.resource import SECRETS, VMS

log = logging.getLogger(__name__)


class VMBackend:
    def __init__(
        self,
        api: Api,
        creator: DefaultingCreator,
        subresources: Subresources,
        now: Callable[[], datetime],
        machines: Sequence[Network] = (),
        agents: AgentClient | None = None,
        authority: AgentAuthority | None = None,
    ) -> None:
        """`machines` are networks outside the Pod network in which VMs have addresses. `authority` issues certificates
        to agents."""
        self._api, self._creator, self._subresources, self._now = api, creator, subresources, now
        self._authority = authority or AgentAuthority(api)
        self._vm_agents = VMAgents(api, machines, self._authority)
        self._agents: AgentClient = agents or NetworkAgentClient()

    async def create(self, request: CreateRequest) -> WarmVM:
        has_certificate = vm_manifest.has_issued_certificate(request)
        if has_certificate:
            with translated_errors():
                await self._authority.all()  # a VM of which no certificate can be issued must not be created
        created = await self._create(request)
        if ssh_keys.wants_key(request.template):
            await self._create_secret(created, ssh_keys.secret(created))
        if has_certificate:
            authority = await self._authority.of(created)
            await self._create_secret(created, agent_certificates.secret(created, authority, self._now()))
        return created

    async def _create(self, request: CreateRequest) -> WarmVM:
        (document,) = await self._creator([vm_manifest.build_vm(request)])
        try:
            with translated_errors():
                return parse_warm_vm(await self._creator.create(document))
        except AlreadyExists:
            existing = await self._get(request.namespace, request.name)
            if request.repeated and existing is not None and _matches(existing, request):
                return existing
            raise

    async def _create_secret(self, vm: WarmVM, secret: Json) -> None:
        try:
            # The Secret may exist from a call whose response was lost. Who writes to it later checks its owner. A
            # certificate that another client has put there fails at the first call of the agent.
            with suppress(AlreadyExists), translated_errors():
                await self._api.create(SECRETS, secret)
        except OutcomeUnknown:
            raise
        except ApiError:
            with suppress(ApiError):  # the VM cannot start without its Secret
                await self._api.delete(VMS, vm.namespace, vm.name, uid=vm.uid, propagation="Background")
            raise

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        found, _ = await self._api.list(VMS, namespace, label_selector=f"{meta.CLAIM_UID}={claim_uid}")
        return [parse_warm_vm(each) for each in found]

    async def read(self, vm: WarmVM) -> WarmVM | None:
        found = await self._get(vm.namespace, vm.name)
        return found if found is not None and found.uid == vm.uid else None

    async def change(self, vm: WarmVM, change: Change) -> WarmVM:
        check_transition(vm, change)
        patch = {"metadata": _metadata_patch(vm, change, self._now())}
        try:
            with translated_errors():
                return parse_warm_vm(await self._api.patch(VMS, vm.namespace, vm.name, patch))
        except (Conflict, NotFound) as error:
            raise WriteConflict(str(error)) from error

    async def check_application(self, vm: WarmVM, timeout_seconds: float = 5.0) -> Health:
        endpoint = await self._vm_agents.endpoint(vm)
        if isinstance(endpoint, Health):
            return endpoint
        return await self._agents.application_health(endpoint, timeout_seconds)

    async def terminate_application(self, vm: WarmVM, uid: str, grace_seconds: float, timeout_seconds: float) -> None:
        endpoint = await self._vm_agents.endpoint(vm)
        if not isinstance(endpoint, Health):
            await self._agents.terminate(endpoint, timeout_seconds, grace_seconds, uid)

    async def watch_application(self, vm: WarmVM) -> AsyncIterator[Health]:
        endpoint = await self._vm_agents.endpoint(vm)
        if not isinstance(endpoint, Health):
            async for each in self._agents.watch(endpoint):
                yield each

    async def check(
        self, vm: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0, pod: Json | None = None
    ) -> Health:
        result = health.vmi_health(vm, readiness)
        probes, agent = readiness.tcp or readiness.http, parse_agent(vm.agent)
        if result.verdict != "Healthy" or vm.vmi is None or not (probes or agent or pod):
            return result
        address = await self._vm_agents.address(vm.vmi)
        if isinstance(address, Health):
            return address
        if probes and (result := await health.probe(address, readiness, timeout_seconds)).verdict != "Healthy":
            return result
        if agent is None and pod is None:
            return result
        return await self._check_agent(vm, agent, address, timeout_seconds, pod)

    async def _check_agent(
        self, vm: WarmVM, agent: Agent | None, address: str, timeout_seconds: float, pod: Json | None
    ) -> Health:
        """Launches the application of the claim. The VM is handed over as soon as the agent has accepted it: pulling an
        image may take longer than a claim waits for another VM, and an application that fails is the claim's own."""
        if agent is None:
            message = "the VM was made before its pool had spec.agent; the claim gets another VM"
            return Health("Failed", AgentReason.NO_AGENT, message)
        endpoint = await self._vm_agents.endpoint_at(vm, agent, address)
        if isinstance(endpoint, Health):
            return endpoint
        if pod is None or vm.state is not WarmState.ALLOCATING:
            return await self._agents.health(endpoint, timeout_seconds)
        launched = await self._agents.launch(endpoint, pod, timeout_seconds)
        if not isinstance(launched, ApplicationHealth):
            return launched
        return Launched("Healthy", AgentReason.APPLICATION_LAUNCHED, launched.message, launched)

    async def activate(self, vm: WarmVM) -> bool:
        if vm.run_strategy == "Halted":
            if vm.vmi is None:  # KubeVirt refuses to start a VM that is still shutting down
                await self._put_subresource("start", vm)
        elif vm.vmi is None or vm.vmi.paused or vm.standby == "Paused":
            # KubeVirt answers after libvirt has resumed the guest.
            return await self._put_subresource("unpause", vm)
        return False

    async def stand_by(self, vm: WarmVM, mode: StandbyMode) -> None:
        if mode == "Running":
            await self.activate(vm)
        elif mode == "Paused":
            await self._put_subresource("pause", vm)
        elif vm.run_strategy != "Halted":
            await self._put_subresource("stop", vm)

    async def terminate(self, vm: WarmVM, reason: str) -> bool:
        try:
            with translated_errors():
                await self._api.delete(
                    VMS,
                    vm.namespace,
                    vm.name,
                    uid=vm.uid,
                    resource_version=vm.resource_version,
                    propagation="Background",
                )
        except NotFound:
            return True
        except Conflict:
            return False
        log_event(log, "VMDeleting", f"deleted {vm.name}: {reason}", about=vm, reason=reason)
        return True

    async def _put_subresource(self, verb: Verb, vm: WarmVM) -> bool:
        """Calls a subresource. Returns False after a Conflict: the VM is already in that state, or cannot change now.
        The next check of the VM shows which. A Conflict that does not pass raises `RepeatedlyRefused`."""
        try:
            with translated_errors():
                await self._subresources.put(verb, vm.namespace, vm.name, vm.uid)
            return True
        except Conflict:
            return False
        except NotFound as error:
            raise WriteConflict(str(error)) from error

    async def _get(self, namespace: str, name: str) -> WarmVM | None:
        try:
            with translated_errors():
                return parse_warm_vm(await self._api.get(VMS, namespace, name))
        except NotFound:
            return None


def _matches(existing: WarmVM, request: CreateRequest) -> bool:
    if existing.deleting or not existing.owned_by(request.owner.uid):
        return False
    return existing.claim_uid == request.claim_uid and existing.pool_uid == request.pool_uid


def _metadata_patch(vm: WarmVM, change: Change, now: datetime) -> Json:
    """The resourceVersion makes the patch a compare-and-swap. The UID excludes another VM of the same name."""
    labels, annotations = dict(change.labels), dict(change.annotations)
    if change.state is not None:
        labels[meta.WARM_STATE] = change.state.value
        if change.state is not vm.state:
            annotations[meta.STATE_SINCE] = format_time(now)
    if change.claim_uid is not None:
        labels[meta.CLAIM_UID] = change.claim_uid or None
    if change.owner == NO_OWNER:
        labels |= dict.fromkeys(tracking_marks.LABELS)
        annotations |= dict.fromkeys(tracking_marks.ANNOTATIONS)
    metadata: Json = {"resourceVersion": vm.resource_version, "uid": vm.uid}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    if change.owner is not None:
        controller = () if change.owner == NO_OWNER else (change.owner,)
        metadata["ownerReferences"] = [each.json() for each in (*vm.other_owners, *controller)]
    return metadata
