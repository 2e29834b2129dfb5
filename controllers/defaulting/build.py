"""Builds the defaulting controller."""

from __future__ import annotations

from time import monotonic

from controllers.defaulting.apply import DefaultingWriter
from controllers.defaulting.controller import DefaultingController
from controllers.shared.component import Component
from defaulter.contract import Defaulter, MACPolicy
from runtime.api import Api
from runtime.events import EventRecorder


def build(
    api: Api, events: EventRecorder, defaulter: Defaulter, seed: str, macs: MACPolicy = "deterministic"
) -> Component:
    writer = DefaultingWriter(api, defaulter, events, seed=seed)
    controller = DefaultingController(api, writer, now=monotonic, macs=macs)
    return Component("defaulting", controller.informers, controller.controller.run)
