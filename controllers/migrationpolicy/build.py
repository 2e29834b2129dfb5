"""Builds the controller of migration policies."""

from __future__ import annotations

from time import monotonic

from prometheus_client import CollectorRegistry

from controllers.migrationpolicy import observe
from controllers.migrationpolicy.apply import PolicyWriter
from controllers.migrationpolicy.controller import PolicyController
from controllers.migrationpolicy.metrics import PolicyMetrics
from controllers.shared.component import Component
from controllers.shared.crd_presence import POLL_SECONDS, OptionalInformer
from controllers.shared.sources import NAMESPACES
from controllers.shared.status_writer import StatusWriter
from kinds.migrationpolicy import MigrationPolicyStatus
from runtime.api import Api
from runtime.events import EventRecorder
from runtime.informer import Informer
from runtime.resource import VMIS


def build(
    api: Api, events: EventRecorder, registry: CollectorRegistry, *, poll_seconds: float = POLL_SECONDS
) -> Component:
    policies = Informer(api, observe.POLICIES, observe.parse_policy)
    namespaces = Informer(api, NAMESPACES, observe.parse_namespace)
    vmis = Informer(api, VMIS, observe.parse_vmi)
    upstream = OptionalInformer(api, observe.UPSTREAM, observe.parse_enforcing_policy, poll_seconds=poll_seconds)
    kubevirts = OptionalInformer(api, observe.KUBEVIRTS, observe.parse_kubevirt, poll_seconds=poll_seconds)
    statuses: StatusWriter[MigrationPolicyStatus] = StatusWriter(api, observe.POLICIES, monotonic)
    controller = PolicyController(
        observe.Stores(policies.store, namespaces.store, vmis.store, upstream, kubevirts),
        PolicyWriter(api, events),
        statuses,
        PolicyMetrics(registry),
        clock=monotonic,
        now=api.now,
        metrics=api.metrics,
    )
    policies.subscribe(controller.policy_changed)
    namespaces.subscribe(controller.namespace_changed)
    vmis.subscribe(controller.vmi_changed)
    # A policy of KubeVirt, or its configuration, can affect the condition Enforced of every policy.
    upstream.subscribe(controller.enqueue_all)
    kubevirts.subscribe(controller.enqueue_all)
    return Component("policy", (policies, namespaces, vmis), controller.work)
