"""Whose hardware is ours to decide later: who went through the webhook undecided, and who should have.

A VM with our note is one of the first sort. One without is of the second if the API server had to ask the webhook about
it: it is no older than the webhook's registration, which selects it. Who was there before us is left alone, since the
guest has had other hardware from KubeVirt, and is known by it: until its spec changes while it is halted, as
`virtctl start` changes it of all but Manual and RerunOnFailure. Then the webhook decides it, with the UUID that the
guest knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apimachinery.label_selectors import matches
from controllers.defaulting.observe import Machine
from kinds.meta import DEFAULTING, DISABLED
from manifests.webhooks import DEFAULTING_WEBHOOK, OWN_MATCH_CONDITIONS

Json = dict[str, Any]


@dataclass(frozen=True)
class Registration:
    """Our MutatingWebhookConfiguration, as far as it says whom the API server asks about."""

    since: str
    namespaces: Json | None
    objects: Json | None
    """selectors; None selects nothing"""
    conditional: bool
    """conditions that are not ours decide as well, and only the API server can evaluate those"""

    def selects(self, machine: Machine, namespace: Mapping[str, str]) -> bool:
        return matches(self.namespaces, namespace) and matches(self.objects, dict(machine.labels))


def registration(document: Json) -> Registration:
    since = document["metadata"]["creationTimestamp"]
    entry = next((each for each in document.get("webhooks") or () if each["name"] == DEFAULTING_WEBHOOK), None)
    if entry is None:
        return Registration(since, None, None, conditional=False)
    conditions = {each["name"] for each in entry.get("matchConditions") or ()}
    return Registration(
        since,
        entry.get("namespaceSelector") or {},
        entry.get("objectSelector") or {},
        conditional=bool(conditions - OWN_MATCH_CONDITIONS),
    )


def left_alone(machine: Machine, namespace: Mapping[str, str], registered: Registration | None) -> str | None:
    """Why a VM is not ours to complete; `namespace` are the labels of its namespace."""
    if namespace.get(DEFAULTING) == DISABLED:
        return "its namespace opted out"
    if registered is not None and not registered.selects(machine, namespace):
        return "the webhook is not asked about it"
    if machine.noted:
        return None
    if registered is None:
        return "no webhook is registered"
    if machine.since < registered.since:
        return "it is older than the webhook's registration"
    if registered.conditional:
        return "conditions that are not ours say whether the webhook is asked about it"
    return None
