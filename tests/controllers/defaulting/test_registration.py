"""Whose hardware is ours to decide later."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.defaulting.observe import Machine, machine
from controllers.defaulting.registration import Registration, left_alone, registration
from kinds.meta import DEFAULTING, UNDEFAULTED
from manifests import webhooks

Json = dict[str, Any]

BEFORE, THEN, AFTER = (f"2026-01-01T00:00:0{second}Z" for second in (1, 2, 3))
NAME = "kubernetes.io/metadata.name"
SHOP = {NAME: "shop"}
OUT = {DEFAULTING: "disabled"}

ELDER = "it is older than the webhook's registration"
UNASKED = "the webhook is not asked about it"
NOBODY = "no webhook is registered"


def vm(since: str = AFTER, *, noted: bool = False, **labels: str) -> Machine:
    metadata: Json = {"namespace": "shop", "name": "web", "creationTimestamp": since, "labels": labels}
    if noted:
        metadata["annotations"] = {UNDEFAULTED: "DefaulterUnavailable"}
    content: Json = {"template": {"spec": {"domain": {"devices": {}}}}}
    return machine({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": content})


def configuration(**changed: Any) -> Json:
    """Ours, as the API server has it since THEN."""
    (found,) = (
        each
        for each in webhooks.configurations(url="https://a", ca_bundle=b"")
        if (each["kind"], each["metadata"]["name"])
        == ("MutatingWebhookConfiguration", webhooks.DEFAULTING_CONFIGURATION)
    )
    found["metadata"]["creationTimestamp"] = THEN
    found["webhooks"][0] |= changed
    return found


def registered(**changed: Any) -> Registration:
    return registration(configuration(**changed))


def exempt(*namespaces: str) -> Json:
    return {"matchExpressions": [{"key": NAME, "operator": "NotIn", "values": list(namespaces)}]}


@pytest.mark.parametrize(
    ("found", "namespace", "there", "reason"),
    [
        pytest.param(vm(), SHOP, registered(), None, id="the webhook was away when it came"),
        pytest.param(vm(THEN), SHOP, registered(), None, id="in the second in which the webhook was registered"),
        pytest.param(vm(BEFORE), SHOP, registered(), ELDER, id="it was there before us"),
        pytest.param(vm(BEFORE, noted=True), SHOP, registered(), None, id="it was there before us, and changed since"),
        pytest.param(vm(), SHOP, None, NOBODY, id="in an emergency nobody is asked"),
        pytest.param(vm(noted=True), SHOP, None, None, id="who was asked before is completed in an emergency too"),
        pytest.param(vm(), {NAME: "kube-system"}, registered(), UNASKED, id="kube-system"),
        pytest.param(
            vm(), SHOP, registered(namespaceSelector=exempt("shop", "bank")), UNASKED, id="one of exemptNamespaces"
        ),
        pytest.param(
            vm(noted=True), SHOP, registered(namespaceSelector=exempt("shop")), UNASKED, id="a namespace exempt since"
        ),
        pytest.param(vm(noted=True), {**SHOP, **OUT}, None, "its namespace opted out", id="a namespace that opted out"),
        pytest.param(
            vm(tier="db"),
            SHOP,
            registered(objectSelector={"matchLabels": {"tier": "web"}}),
            UNASKED,
            id="VMs of other labels only",
        ),
        pytest.param(
            vm(tier="web"), SHOP, registered(objectSelector={"matchLabels": {"tier": "web"}}), None, id="VMs like it"
        ),
        pytest.param(vm(), SHOP, registered(objectSelector=None), None, id="a selector that is absent selects all"),
        pytest.param(
            vm(),
            SHOP,
            registered(matchConditions=[{"name": "ours-only", "expression": "object.metadata.name != 'web'"}]),
            "conditions that are not ours say whether the webhook is asked about it",
            id="CEL is not ours to evaluate",
        ),
        pytest.param(
            vm(noted=True),
            SHOP,
            registered(matchConditions=[{"name": "ours-only", "expression": "true"}]),
            None,
            id="whom the conditions let through says so",
        ),
        pytest.param(vm(), SHOP, registered(name="other.dev"), UNASKED, id="the registration has no entry for VMs"),
    ],
)
def test_who_is_left_alone(found: Machine, namespace: Json, there: Registration | None, reason: str | None) -> None:
    assert left_alone(found, namespace, there) == reason


def test_only_what_is_decided_by_changes_the_registration() -> None:
    renewed = configuration(clientConfig={"caBundle": "bmV3"})
    assert registration(renewed) == registered()
