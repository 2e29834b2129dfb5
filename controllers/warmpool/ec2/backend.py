"""Machines that are instances of EC2."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import (
    HEALTHY,
    Change,
    CreateRequest,
    Health,
    OutcomeUnknown,
    WriteConflict,
    check_transition,
)
from controllers.warmpool.ec2 import tags
from controllers.warmpool.ec2.agent import AgentClient, AgentEndpoint, Application
from controllers.warmpool.ec2.client import EC2Client
from controllers.warmpool.ec2.instance_cache import InstanceCache
from controllers.warmpool.ec2.settings import SUBNET, EC2Settings
from controllers.warmpool.warm_vm import StandbyMode, WarmVM
from kinds import meta
from kinds.warm_states import WarmState
from kinds.warmpool import Readiness
from runtime.errors import OUTCOME_UNKNOWN, AlreadyExists, Invalid, NotFound

log = logging.getLogger(__name__)

Json = dict[str, Any]

LAST_WORD_SECONDS = 3.0
"""for an agent to end its application; the instance goes anyway"""
DEDICATED = "mac"
"""types that run on dedicated hosts only"""


class EC2Backend:
    """`cluster` tells our instances from those of another cluster in the same account."""

    def __init__(
        self,
        cloud: EC2Client,
        agents: AgentClient,
        shown: InstanceCache,
        terms: EC2Settings,
        cluster: Callable[[], Awaitable[str]],
        now: Callable[[], datetime],
    ) -> None:
        self._cloud, self._agents, self._shown, self._terms = cloud, agents, shown, terms
        self._cluster, self._now = cluster, now
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    async def create(self, order: CreateRequest) -> WarmVM:
        cluster = await self._cluster()
        with_tags = tags.of_order(order, cluster, self._now())
        wanted = {
            **_wanted(order, self._terms),
            "ClientToken": tags.token(order, cluster),
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": tags.written({k: v for k, v in with_tags.items() if v})}
            ],
        }
        try:
            made = self._shown.made(await self._cloud.run(wanted))
        except OUTCOME_UNKNOWN as error:
            raise OutcomeUnknown(str(error)) from error
        if made is None or made.deleting:
            raise AlreadyExists(f"{order.name} was made before, and is gone")
        return made

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        found = await self._described({f"tag:{meta.CLAIM_UID}": [claim_uid], f"tag:{tags.NAMESPACE}": [namespace]})
        seen = {m.uid: m for m in map(self._shown.one, found) if m is not None}
        # What we wrote a moment ago, and a filter of EC2's does not find yet.
        seen |= {m.uid: m for m in self._shown.machines.by("claim", claim_uid) if m.uid not in seen}
        return [m for m in seen.values() if m.claim_uid == claim_uid]

    async def read(self, machine: WarmVM) -> WarmVM | None:
        instance = await self._live(machine)
        return tags.view(instance) if instance is not None else None

    async def change(self, machine: WarmVM, change: Change) -> WarmVM:
        check_transition(machine, change)
        async with self._alone(machine):
            instance = await self._live(machine)
            live = tags.view(instance) if instance is not None else None
            if instance is None or live is None or live.deleting or not _same(live, machine):
                raise WriteConflict(f"{machine.name} ({machine.uid}) has changed since it was looked at, or is gone")
            fresh = tags.of_change(tags.read(instance), change, self._now())
            try:
                await self._cloud.tag(machine.uid, fresh)
            except NotFound as error:
                raise WriteConflict(str(error)) from error
            except OUTCOME_UNKNOWN as error:
                raise OutcomeUnknown(str(error)) from error
            changed = self._shown.wrote(instance, fresh)
            assert changed is not None
            return changed

    async def check(self, machine: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
        """Of one that was given to a claim: launches the claim's application, and says how that is."""
        run = self._shown.vmis.get(machine.key)
        if run is None or run.owner != machine.uid:
            return Health("Failed", "NotRunning", "it does not run")
        if not run.running:
            return Health("Failed", "NotRunning", "it is starting")
        place = AgentEndpoint.read(machine.labels.get(tags.AGENT, ""), next(iter(run.addresses), ""))
        if place is None:
            return HEALTHY
        if machine.state is not WarmState.ALLOCATING or not place.grpc:
            return await self._agents.health(place, timeout_seconds)
        # Two leaders can both believe to have given it away: whose it is, its tags say.
        live = await self.read(machine)
        if live is None or live.claim_uid != machine.claim_uid:
            return Health("Failed", "Lost", "it is another claim's")
        application = Application(live.namespace, live.labels.get(meta.CLAIM_NAME, ""), live.claim_uid)
        return await self._agents.launch(place, application, timeout_seconds)

    async def activate(self, machine: WarmVM) -> None:
        """Instances wait awake."""

    async def stand_by(self, machine: WarmVM, mode: StandbyMode) -> None:
        """Instances wait awake."""

    async def terminate(self, machine: WarmVM, reason: str) -> bool:
        async with self._alone(machine):
            instance = await self._live(machine)
            live = tags.view(instance) if instance is not None else None
            if instance is None or live is None or live.deleting:
                return True
            if not _same(live, machine):
                return False
            await self._say_goodbye(live)
            try:
                await self._cloud.terminate(machine.uid)
            except NotFound as error:
                if self._shown.recent(machine.uid) is None:
                    return True
                raise OutcomeUnknown(f"EC2 does not know {machine.uid} yet: {error}") from error
            except OUTCOME_UNKNOWN as error:
                raise OutcomeUnknown(str(error)) from error
            self._shown.ended(instance)
        log_event(log, "MachineDeleting", f"terminated {machine.name}: {reason}", machine=machine, reason=reason)
        return True

    async def _say_goodbye(self, live: WarmVM) -> None:
        run = self._shown.vmis.get(live.key)
        if live.state not in (WarmState.ALLOCATING, WarmState.IN_USE, WarmState.TERMINATING) or run is None:
            return
        place = AgentEndpoint.read(live.labels.get(tags.AGENT, ""), next(iter(run.addresses), ""))
        if place is not None and place.grpc:
            await self._agents.terminate(place, LAST_WORD_SECONDS)

    async def _live(self, machine: WarmVM) -> Json | None:
        found = await self._described({"instance-id": [machine.uid]})
        for instance in found:
            if self._shown.one(instance) is not None:
                return self._shown.newest(instance)
        return None if found else self._shown.recent(machine.uid)

    async def _described(self, filters: dict[str, list[str]]) -> list[Json]:
        try:
            return await self._cloud.describe(filters)
        except OUTCOME_UNKNOWN as error:
            raise OutcomeUnknown(str(error)) from error

    @asynccontextmanager
    async def _alone(self, machine: WarmVM) -> AsyncIterator[None]:
        """Nobody else of this process writes to it, between our look and our write."""
        lock, users = self._locks.get(machine.uid, (asyncio.Lock(), 0))
        self._locks[machine.uid] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(machine.uid)
            if users > 1:
                self._locks[machine.uid] = lock, users - 1


def _same(live: WarmVM, known: WarmVM) -> bool:
    """Two that write in the same moment write the same revision: whose it is must be the same too."""
    return (live.resource_version, live.claim_uid, live.owner) == (known.resource_version, known.claim_uid, known.owner)


def _wanted(order: CreateRequest, terms: EC2Settings) -> Json:
    """The parameters of RunInstances."""
    template = order.template
    subnet = str(order.placement.get("name") or "")
    if subnet not in (template.get("subnets") or ()):
        subnet = terms.subnet
    if not subnet:
        raise Invalid(f"spec.ec2.subnets: there is none; give one, or set {SUBNET} for the controllers")
    instance_type = str(template.get("instanceType") or "")
    profile = str(template.get("iamInstanceProfile") or "")
    found: Json = {
        "ImageId": template.get("imageID"),
        "InstanceType": instance_type,
        "SubnetId": subnet,
        "KeyName": template.get("keyPair"),
        "SecurityGroupIds": list(template.get("securityGroups") or ()),
        "IamInstanceProfile": {"Arn" if profile.startswith("arn:") else "Name": profile} if profile else None,
        "Placement": {"Tenancy": "host"} if instance_type.startswith(DEDICATED) else None,
    }
    return {key: value for key, value in found.items() if value}
