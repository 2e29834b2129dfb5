"""Maps changes to the policies and VMIs that they affect, and reconciles these."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from controllers.migrationpolicy.apply import PolicyWriter
from controllers.migrationpolicy.memory import PolicyMemory, UnlabelledVMIs
from controllers.migrationpolicy.metrics import PolicyMetrics
from controllers.migrationpolicy.observe import (
    POLICIES,
    Namespace,
    Policy,
    PolicySnapshot,
    Stores,
    VMILabels,
    observe,
    parse_enforcing_policy,
    parse_namespace,
    parse_policy,
    parse_vmi,
)
from controllers.migrationpolicy.plan import Action, RepairUpstream, plan, plan_label
from controllers.migrationpolicy.reasons import ActiveReason, EnforcedReason, PolicyEvent
from controllers.migrationpolicy.status import changed, status
from controllers.migrationpolicy.winners import Changes, Winners
from controllers.shared.component import Component, ControllerContext
from controllers.shared.status_writer import StatusWriter
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.migrationpolicy import MigrationPolicyStatus
from poolhouse.api.migrationpolicies.effective_settings import excerpt
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import ApiError, Forbidden, Invalid, NotFound
from poolhouse.runtime.events import EventType
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.optional_informer import POLL_SECONDS, OptionalInformer
from poolhouse.runtime.resource import KUBEVIRTS, NAMESPACES, UPSTREAM_POLICIES, VMIS, Key

BATCH_SECONDS = 0.3
"""Delay that joins changes of counts, so that the start of a thousand VMs causes one status update of their policy."""
RETRY_SECONDS = 0.5
"""Interval of checks whether KubeVirt's objects are listed."""


class PolicyController:
    def __init__(
        self,
        stores: Stores,
        writer: PolicyWriter,
        statuses: StatusWriter[MigrationPolicyStatus],
        policy_metrics: PolicyMetrics,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        metrics: Metrics,
    ) -> None:
        self.winners: Winners | None = None
        """None while another replica is the leader, or while the stores are not synced."""
        self.policies: Controller[str] = Controller("policy", self.reconcile, metrics=metrics)
        self.labels: Controller[Key] = Controller("policy-label", self.reconcile_label, workers=16, metrics=metrics)
        self._stores = stores
        self._writer = writer
        self._statuses = statuses
        self._metrics = policy_metrics
        self._clock = clock
        self._now = now
        self._memory: dict[str, PolicyMemory] = {}
        self._unlabelled = UnlabelledVMIs()

    async def work(self) -> None:
        self.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.policies.run(), name="policy")
                group.create_task(self.labels.run(), name="policy-label")
                group.create_task(self._stores.upstream.run(), name="policy-upstream")
                group.create_task(self._stores.kubevirts.run(), name="policy-kubevirt")
        finally:
            self.winners = None
            self._unlabelled.clear()
            self._metrics.clear()

    def start(self) -> None:
        self.winners, now = Winners(), self._now()
        self.winners.load(
            (candidate for each in self._stores.policies if (candidate := each.candidate(now))),
            {each.name: each.labels for each in self._stores.namespaces},
            ((each.key, each.labels) for each in self._stores.vmis if each.active),
        )
        for each in self._stores.vmis:
            self._enqueue_label(each)
        self.enqueue_all()

    async def reconcile(self, name: str) -> float | None:
        if self.winners is None:
            return None
        if not self._stores.known:
            return RETRY_SECONDS
        now = self._now()
        self._expire(name, now)
        snapshot = observe(self._stores, self.winners, name, now)
        if snapshot is None:
            self._memory.pop(name, None)
            self._metrics.gone((name,))
            return None
        memory = self._memory.setdefault(name, PolicyMemory(name))
        action, pause = plan(snapshot), 0.0
        if isinstance(action, RepairUpstream):
            pause = memory.repair_pause((snapshot.policy.generation, snapshot.cluster), self._clock())
        error = None if pause else await self._apply(snapshot.policy, action)
        refusal, unlabelled = error.message if error else "", self._unlabelled.of(name)
        snapshot = replace(snapshot, repair_postponed=pause > 0, refusal=refusal, unlabelled=unlabelled)
        wait = await self._write_status(snapshot, memory)
        if error is not None:
            raise error
        return min((each for each in (pause, wait, _seconds_left(snapshot.policy, now)) if each), default=None)

    def _expire(self, name: str, now: datetime) -> None:
        """Takes VMIs from a policy that has expired. Each reconcile of the policy asks to be called at its end."""
        assert self.winners is not None
        policy = self._stores.policies.get(("", name))
        if policy is not None and policy.expired(now):
            self._enqueue_changes(self.winners.policy(name, None))

    async def _apply(self, policy: Policy, action: Action | None) -> ApiError | None:
        """Returns errors that the status reports. Raises other errors, so that the controller retries."""
        if action is None:
            return None
        try:
            await self._writer.apply(policy, action)
        except (Invalid, Forbidden, NotFound) as error:
            return error
        if isinstance(action, RepairUpstream):
            self._metrics.repairs.inc()
        return None

    async def _write_status(self, snapshot: PolicySnapshot, memory: PolicyMemory) -> float | None:
        policy = snapshot.policy
        fresh = status(snapshot, self._now())
        self._metrics.update(policy.name, fresh)
        if policy.deleting:
            return None
        update = await self._statuses.update(policy, fresh, memory.status)
        for condition in changed(policy.status, fresh) if update.written else ():
            self._emit(policy, condition)
        return update.wait_seconds

    def _emit(self, policy: Policy, condition: Condition) -> None:
        if condition.status == "False":
            if condition.reason != EnforcedReason.NOT_ACTIVE:  # the event of the condition Active has the reason
                type: EventType = "Normal" if condition.reason == ActiveReason.EXPIRED else "Warning"
                self._writer.emit(policy, type, condition.reason, condition.message)
        elif condition.type == "Enforced" and policy.status.conditions:  # a new policy needs no event
            self._writer.emit(policy, "Normal", PolicyEvent.ENFORCED, condition.message)

    async def reconcile_label(self, key: Key) -> float | None:
        if self.winners is None:
            return None
        vmi = self._stores.vmis.get(key)
        if vmi is not None and self.winners.decided(key) and (action := plan_label(vmi, self.winners.winner(key))):
            try:
                await self._writer.label(vmi, action)
            except (Forbidden, Invalid) as error:
                if self._replaced(vmi):
                    return None
                self._enqueue(self._unlabelled.refused(key, action.policy, error.message))
                raise
            self._metrics.labels.inc()
        self._enqueue(self._unlabelled.resolved(key))
        return None

    def _replaced(self, before: VMILabels) -> bool:
        """Whether the VMI has finished, or a new VMI has its name. The new VMI has its own event."""
        found = self._stores.vmis.get(before.key)
        return found is None or found.uid != before.uid or not found.active

    def policy_changed(self, old: Policy | None, new: Policy | None) -> None:
        if self.winners is None:
            return
        for name in {each.name for each in (old, new) if each is not None}:
            self._enqueue_changes(self.winners.policy(name, new.candidate(self._now()) if new is not None else None))
            self.policies.enqueue(name)

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        if self.winners is None:
            return
        for name in {each.name for each in (old, new) if each is not None}:
            self._enqueue_changes(self.winners.namespace(name, new.labels if new is not None else None))

    def vmi_changed(self, old: VMILabels | None, new: VMILabels | None) -> None:
        if self.winners is None:
            return
        for key in {each.key for each in (old, new) if each is not None}:
            self._enqueue_changes(self.winners.vmi(key, new.labels if new is not None and new.active else None))
        if new is not None:
            self._enqueue_label(new)
        if old is not None and (new is None or not new.active or new.uid != old.uid):
            self._enqueue(self._unlabelled.resolved(old.key))

    def enqueue_all(self) -> None:
        if self.winners is not None:
            self._enqueue(each.name for each in self._stores.policies)

    def _enqueue_changes(self, changes: Changes) -> None:
        for key in changes.vmis:
            vmi = self._stores.vmis.get(key)
            if vmi is not None:
                self._enqueue_label(vmi)
        self._enqueue(changes.policies)

    def _enqueue_label(self, vmi: VMILabels) -> None:
        assert self.winners is not None
        if self.winners.decided(vmi.key) and plan_label(vmi, self.winners.winner(vmi.key)):
            self.labels.enqueue(vmi.key)

    def _enqueue(self, names: Iterable[str]) -> None:
        for name in names:
            self.policies.enqueue(name, BATCH_SECONDS)


def _seconds_left(policy: Policy, now: datetime) -> float | None:
    """Seconds until the policy expires; None if it does not, or has."""
    if policy.expires_at is None or policy.expired(now):
        return None
    return (policy.expires_at - now).total_seconds()


def build(context: ControllerContext, *, poll_seconds: float = POLL_SECONDS) -> Component:
    api = context.api
    policies = Informer(api, POLICIES, parse_policy)
    namespaces = Informer(api, NAMESPACES, parse_namespace)
    vmis = Informer(api, VMIS, parse_vmi)
    upstream = OptionalInformer(api, UPSTREAM_POLICIES, parse_enforcing_policy, poll_seconds=poll_seconds)
    kubevirts = OptionalInformer(api, KUBEVIRTS, excerpt, poll_seconds=poll_seconds)
    statuses: StatusWriter[MigrationPolicyStatus] = StatusWriter(api, POLICIES, api.monotonic)
    controller = PolicyController(
        Stores(policies.store, namespaces.store, vmis.store, upstream, kubevirts),
        PolicyWriter(api, context.events),
        statuses,
        PolicyMetrics(context.registry),
        clock=api.monotonic,
        now=api.now,
        metrics=api.metrics,
    )
    policies.subscribe(controller.policy_changed)
    namespaces.subscribe(controller.namespace_changed)
    vmis.subscribe(controller.vmi_changed)
    # A change of KubeVirt's policies or configuration can affect the condition Enforced of every policy.
    upstream.subscribe(controller.enqueue_all)
    kubevirts.subscribe(controller.enqueue_all)
    return Component("policy", (policies, namespaces, vmis), controller.work)
