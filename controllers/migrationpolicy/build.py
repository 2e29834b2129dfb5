"""The parts of the policy controller, put together."""

from __future__ import annotations

from time import monotonic

from prometheus_client import CollectorRegistry

from controllers.migrationpolicy import observe, state
from controllers.migrationpolicy.apply import Apply
from controllers.migrationpolicy.controller import PolicyController
from controllers.migrationpolicy.metrics import PolicyMetrics
from controllers.shared.component import Component
from controllers.shared.crd_presence import POLL_SECONDS, OptionalInformer
from runtime.api import Api
from runtime.events import EventRecorder
from runtime.informer import Informer


def build(
    api: Api, events: EventRecorder, registry: CollectorRegistry, *, look_seconds: float = POLL_SECONDS
) -> Component:
    policies = Informer(api, observe.POLICIES, state.policy)
    namespaces = Informer(api, observe.NAMESPACES, state.namespace)
    instances = Informer(api, observe.INSTANCES, state.instance)
    upstream = OptionalInformer(api, observe.UPSTREAM, state.enforcer, poll_seconds=look_seconds)
    kubevirts = OptionalInformer(api, observe.KUBEVIRTS, observe.kubevirt, poll_seconds=look_seconds)
    controller = PolicyController(
        observe.Stores(policies.store, namespaces.store, instances.store, upstream, kubevirts),
        Apply(api, events),
        PolicyMetrics(registry),
        clock=monotonic,
        now=api.now,
        metrics=api.metrics,
    )
    policies.subscribe(controller.policy_changed)
    namespaces.subscribe(controller.namespace_changed)
    instances.subscribe(controller.instance_changed)
    # Somebody's policy may outrank any of ours, and its absence may end that.
    upstream.subscribe(controller.everything)
    kubevirts.subscribe(controller.everything)
    return Component("policy", (policies, namespaces, instances), controller.work)
