"""The backend that holds warm VMs as EC2 instances."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from controllers.warmpool.agent import AgentClient, AgentEndpoint, ApplicationHealth, Launched
from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import (
    HEALTHY,
    Change,
    CreateRequest,
    Health,
    OutcomeUnknown,
    WriteConflict,
    check_transition,
    translated_errors,
)
from controllers.warmpool.ec2 import tags
from controllers.warmpool.ec2.client import EC2Client
from controllers.warmpool.ec2.instance_cache import InstanceCache
from controllers.warmpool.ec2.launch import launch_parameters, plain_user_data
from controllers.warmpool.ec2.reasons import EC2Reason
from controllers.warmpool.ec2.settings import REGION, EC2Settings
from controllers.warmpool.warm_vm import StandbyMode, WarmVM
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_readiness import Readiness
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.errors import AlreadyExists, Forbidden, NotFound

log = logging.getLogger(__name__)


TERMINATE_APPLICATION_SECONDS = 3.0
"""time limit for an agent to stop its application before the instance is terminated"""
MAX_DOWNLOAD_URLS = 1000
"""number of launches whose download URL is kept for a repetition"""
DISABLED = f"these controllers manage no EC2 instances: set {REGION} to the region of the instances"


class EC2Backend:
    """`cluster` returns the ID of this cluster, which all its instances in the AWS account have as a tag."""

    def __init__(
        self,
        client: EC2Client,
        agents: AgentClient,
        cache: InstanceCache,
        settings: EC2Settings,
        cluster: Callable[[], Awaitable[str]],
        now: Callable[[], datetime],
    ) -> None:
        self._client, self._agents, self._cache, self._settings = client, agents, cache, settings
        self._cluster, self._now = cluster, now
        self._download_urls: dict[str, str] = {}
        """by client token: a repeated request must be equal to the first, but each signed URL is different"""
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        """locks by instance ID, with the number of tasks that hold a lock or wait for it"""

    async def create(self, request: CreateRequest) -> WarmVM:
        cluster = await self._cluster()
        token = tags.client_token(request, cluster)
        given = {key: value for key, value in tags.new_tags(request, cluster, self._now()).items() if value}
        subnet = str(request.placement.get("name") or "")
        user_data = plain_user_data(request.template, await self._download_url(request.template, token))
        parameters = {
            **launch_parameters(request.template, subnet, self._settings, user_data),
            "ClientToken": token,
            "TagSpecifications": [{"ResourceType": "instance", "Tags": tags.to_aws(given)}],
        }
        with translated_errors():
            created = self._cache.created(await self._client.run(parameters))
        if created is None or created.deleting:
            raise AlreadyExists(f"{request.name} was created before, and is terminated")
        return created

    async def _download_url(self, template: Json, token: str) -> str:
        agent = template.get("bootstrapAgent")
        if not agent:
            return ""
        if token not in self._download_urls:
            with translated_errors():
                self._download_urls[token] = await self._client.download_url(agent["s3Bucket"], agent["s3Key"])
            while len(self._download_urls) > MAX_DOWNLOAD_URLS:
                del self._download_urls[next(iter(self._download_urls))]
        return self._download_urls[token]

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        found = await self._describe({f"tag:{meta.CLAIM_UID}": [claim_uid], f"tag:{tags.NAMESPACE}": [namespace]})
        vms = {vm.uid: vm for vm in map(self._cache.described, found) if vm is not None}
        # EC2's filters may miss instances that were written a moment ago.
        vms |= {vm.uid: vm for vm in self._cache.vms.by("claim", (namespace, claim_uid)) if vm.uid not in vms}
        return [vm for vm in vms.values() if vm.claim_uid == claim_uid]

    async def read(self, vm: WarmVM) -> WarmVM | None:
        found = await self._read(vm)
        return found[1] if found is not None else None

    async def change(self, vm: WarmVM, change: Change) -> WarmVM:
        check_transition(vm, change)
        async with self._locked(vm):
            found = await self._read(vm)
            if found is None or found[1].deleting or not _unchanged(found[1], vm):
                raise WriteConflict(f"{vm.name} ({vm.uid}) has changed since it was read, or is terminated")
            instance, _ = found
            changed_tags = tags.changed_tags(tags.from_aws(instance), change, self._now())
            try:
                with translated_errors():
                    await self._client.tag(vm.uid, changed_tags)
            except NotFound as error:
                raise WriteConflict(str(error)) from error
            changed = self._cache.tagged(instance, changed_tags)
            assert changed is not None
            return changed

    async def check_application(self, vm: WarmVM, timeout_seconds: float = 5.0) -> Health:
        endpoint = self._endpoint(vm)
        if endpoint is None:
            return Health("Unable", EC2Reason.NOT_RUNNING, "it does not run")
        return await self._agents.application_health(endpoint, timeout_seconds)

    async def check(
        self, vm: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0, pod: Json | None = None
    ) -> Health:
        """Returns the health of the instance. During an allocation, also launches the claim's application."""
        vmi = self._cache.vmis.get(vm.key)
        if vmi is None or vmi.owner_uid != vm.uid:
            return Health("Failed", EC2Reason.NOT_RUNNING, "it does not run")
        if not vmi.running:
            return Health("Failed", EC2Reason.NOT_RUNNING, "it is starting")
        endpoint = self._endpoint(vm)
        if endpoint is None:
            return HEALTHY
        if vm.state is not WarmState.ALLOCATING or not endpoint.grpc:
            return await self._agents.health(endpoint, timeout_seconds)
        # If two leaders gave the instance to two claims, the tags decide which claim gets it.
        live = await self.read(vm)
        if live is None or live.claim_uid != vm.claim_uid:
            return Health("Failed", EC2Reason.CLAIMED_BY_ANOTHER, "it belongs to another claim")
        launched = await self._agents.launch(endpoint, pod or _chosen_by_the_agent(live), timeout_seconds)
        if not isinstance(launched, ApplicationHealth):
            return launched
        return Launched(launched.verdict, launched.reason, launched.message, launched)

    async def terminate_application(self, vm: WarmVM, uid: str, grace_seconds: float, timeout_seconds: float) -> None:
        endpoint = self._endpoint(vm)
        if endpoint is not None and endpoint.grpc:
            await self._agents.terminate(endpoint, timeout_seconds, grace_seconds, uid)

    async def watch_application(self, vm: WarmVM) -> AsyncIterator[Health]:
        endpoint = self._endpoint(vm)
        if endpoint is not None and endpoint.grpc:
            async for each in self._agents.watch(endpoint):
                yield each

    async def activate(self, vm: WarmVM) -> bool:
        """Does nothing: EC2 instances always run."""
        return False

    async def stand_by(self, vm: WarmVM, mode: StandbyMode) -> None:
        """Does nothing: EC2 instances always run."""

    async def terminate(self, vm: WarmVM, reason: str) -> bool:
        async with self._locked(vm):
            found = await self._read(vm)
            if found is None or found[1].deleting:
                return True
            instance, live = found
            if not _unchanged(live, vm):
                return False
            await self._terminate_application(live)
            try:
                with translated_errors():
                    await self._client.terminate(vm.uid)
            except NotFound as error:
                if self._cache.recently_written(vm.uid) is None:
                    return True
                raise OutcomeUnknown(f"EC2 does not know {vm.uid} yet: {error}") from error
            self._cache.terminated(instance)
        log_event(log, "VMDeleting", f"terminated {vm.name}: {reason}", about=vm, reason=reason)
        return True

    async def _terminate_application(self, vm: WarmVM) -> None:
        endpoint = self._endpoint(vm)
        has_application = vm.state in (WarmState.ALLOCATING, WarmState.IN_USE, WarmState.TERMINATING)
        if has_application and endpoint is not None and endpoint.grpc:
            await self._agents.terminate(endpoint, TERMINATE_APPLICATION_SECONDS)

    def _endpoint(self, vm: WarmVM) -> AgentEndpoint | None:
        vmi = self._cache.vmis.get(vm.key)
        if vmi is None:
            return None
        return AgentEndpoint.parse(vm.labels.get(tags.AGENT, ""), next(iter(vmi.addresses), ""), vm.namespace)

    async def _read(self, vm: WarmVM) -> tuple[Json, WarmVM] | None:
        found = await self._describe({"instance-id": [vm.uid]})
        for instance in found:
            if live := self._cache.described(instance):
                return self._cache.newest(instance), live
        written = None if found else self._cache.recently_written(vm.uid)
        live = tags.parse_warm_vm(written) if written is not None else None
        return (written, live) if written is not None and live is not None else None

    async def _describe(self, filters: dict[str, list[str]]) -> list[Json]:
        with translated_errors():
            return await self._client.describe(filters)

    @asynccontextmanager
    async def _locked(self, vm: WarmVM) -> AsyncIterator[None]:
        """Locks the instance, so that no other task of this process writes between a read and a write."""
        lock, users = self._locks.get(vm.uid, (asyncio.Lock(), 0))
        self._locks[vm.uid] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(vm.uid)
            if users > 1:
                self._locks[vm.uid] = lock, users - 1


class DisabledEC2Backend:
    """The backend of controllers without an EC2 region. Its errors tell users which setting is missing."""

    async def create(self, request: CreateRequest) -> WarmVM:
        raise Forbidden(DISABLED, reason=EC2Reason.EC2_DISABLED)

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        return []

    async def read(self, vm: WarmVM) -> WarmVM | None:
        return None

    async def change(self, vm: WarmVM, change: Change) -> WarmVM:
        raise WriteConflict(DISABLED)

    async def check(
        self, vm: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0, pod: Json | None = None
    ) -> Health:
        return Health("Unable", EC2Reason.EC2_DISABLED, DISABLED)

    async def check_application(self, vm: WarmVM, timeout_seconds: float = 5.0) -> Health:
        return Health("Unable", EC2Reason.EC2_DISABLED, DISABLED)

    async def terminate_application(self, vm: WarmVM, uid: str, grace_seconds: float, timeout_seconds: float) -> None:
        """Does nothing: these controllers know no instance."""

    async def watch_application(self, vm: WarmVM) -> AsyncIterator[Health]:
        return
        yield

    async def activate(self, vm: WarmVM) -> bool:
        raise WriteConflict(DISABLED)

    async def stand_by(self, vm: WarmVM, mode: StandbyMode) -> None:
        raise WriteConflict(DISABLED)

    async def terminate(self, vm: WarmVM, reason: str) -> bool:
        return False


def _chosen_by_the_agent(vm: WarmVM) -> Json:
    """A Pod without a spec, for a claim without an application."""
    return {"metadata": {"namespace": vm.namespace, "name": vm.labels.get(meta.CLAIM_NAME, ""), "uid": vm.claim_uid}}


def _unchanged(live: WarmVM, known: WarmVM) -> bool:
    """Compares claim and owner too, because two leaders that write at the same time write the same revision."""
    return (live.resource_version, live.claim_uid, live.owner) == (known.resource_version, known.claim_uid, known.owner)
