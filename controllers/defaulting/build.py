"""The parts of the completion controller, put together."""

from __future__ import annotations

from time import monotonic

from controllers.defaulting.apply import Apply
from controllers.defaulting.controller import Completion
from controllers.shared.component import Component
from defaulter.contract import Defaulter, MACPolicy
from runtime.api import Api
from runtime.events import EventRecorder


def build(
    api: Api, events: EventRecorder, defaulter: Defaulter, seed: str, macs: MACPolicy = "deterministic"
) -> Component:
    completion = Completion(api, Apply(api, defaulter, events, seed=seed), now=monotonic, macs=macs)
    return Component("completion", completion.informers, completion.controller.run)
