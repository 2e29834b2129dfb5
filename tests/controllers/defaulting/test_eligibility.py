"""Which VMs the controller may fill after their creation."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.defaulting.eligibility import WebhookScope, ineligible_reason, parse_scope
from controllers.defaulting.observe import VM, parse_vm
from kinds.meta import DEFAULTING, UNDEFAULTED
from manifests import webhooks

Json = dict[str, Any]

BEFORE, THEN, AFTER = (f"2026-01-01T00:00:0{second}Z" for second in (1, 2, 3))
NAME = "kubernetes.io/metadata.name"
SHOP = {NAME: "shop"}
OUT = {DEFAULTING: "disabled"}

OLDER = "it is older than the webhook configuration"
NOT_SELECTED = "the webhook configuration does not select it"
NO_CONFIGURATION = "there is no webhook configuration"


def vm(since: str = AFTER, *, annotated: bool = False, **labels: str) -> VM:
    metadata: Json = {"namespace": "shop", "name": "web", "creationTimestamp": since, "labels": labels}
    if annotated:
        metadata["annotations"] = {UNDEFAULTED: "DefaulterUnavailable"}
    content: Json = {"template": {"spec": {"domain": {"devices": {}}}}}
    return parse_vm({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": content})


def configuration(**changed: Any) -> Json:
    """Our webhook configuration, created at THEN."""
    (found,) = (
        each
        for each in webhooks.configurations(url="https://a", ca_bundle=b"")
        if (each["kind"], each["metadata"]["name"])
        == ("MutatingWebhookConfiguration", webhooks.DEFAULTING_CONFIGURATION)
    )
    found["metadata"]["creationTimestamp"] = THEN
    found["webhooks"][0] |= changed
    return found


def registered(**changed: Any) -> WebhookScope:
    return parse_scope(configuration(**changed))


def exempt(*namespaces: str) -> Json:
    return {"matchExpressions": [{"key": NAME, "operator": "NotIn", "values": list(namespaces)}]}


@pytest.mark.parametrize(
    ("vm", "namespace", "scope", "reason"),
    [
        pytest.param(vm(), SHOP, registered(), None, id="created while the webhook was down"),
        pytest.param(vm(THEN), SHOP, registered(), None, id="created in the same second as the configuration"),
        pytest.param(vm(BEFORE), SHOP, registered(), OLDER, id="older than the configuration"),
        pytest.param(vm(BEFORE, annotated=True), SHOP, registered(), None, id="older, but the webhook has seen it"),
        pytest.param(vm(), SHOP, None, NO_CONFIGURATION, id="no configuration"),
        pytest.param(vm(annotated=True), SHOP, None, None, id="no configuration, but the webhook has seen it"),
        pytest.param(vm(), {NAME: "kube-system"}, registered(), NOT_SELECTED, id="kube-system"),
        pytest.param(
            vm(), SHOP, registered(namespaceSelector=exempt("shop", "bank")), NOT_SELECTED, id="one of exemptNamespaces"
        ),
        pytest.param(
            vm(annotated=True),
            SHOP,
            registered(namespaceSelector=exempt("shop")),
            NOT_SELECTED,
            id="the namespace was excluded later",
        ),
        pytest.param(
            vm(annotated=True), {**SHOP, **OUT}, None, "its namespace opted out", id="the namespace opted out"
        ),
        pytest.param(
            vm(tier="db"),
            SHOP,
            registered(objectSelector={"matchLabels": {"tier": "web"}}),
            NOT_SELECTED,
            id="the object selector does not match",
        ),
        pytest.param(
            vm(tier="web"),
            SHOP,
            registered(objectSelector={"matchLabels": {"tier": "web"}}),
            None,
            id="the object selector matches",
        ),
        pytest.param(vm(), SHOP, registered(objectSelector=None), None, id="without a selector everything matches"),
        pytest.param(
            vm(),
            SHOP,
            registered(matchConditions=[{"name": "ours-only", "expression": "object.metadata.name != 'web'"}]),
            "additional matchConditions decide whether the webhook is called for it",
            id="additional matchConditions",
        ),
        pytest.param(
            vm(annotated=True),
            SHOP,
            registered(matchConditions=[{"name": "ours-only", "expression": "true"}]),
            None,
            id="additional matchConditions, but the webhook has seen it",
        ),
        pytest.param(
            vm(), SHOP, registered(name="other.dev"), NOT_SELECTED, id="the configuration has no entry for VMs"
        ),
    ],
)
def test_the_reason_why_a_vm_is_not_filled(
    vm: VM, namespace: Json, scope: WebhookScope | None, reason: str | None
) -> None:
    assert ineligible_reason(vm, namespace, scope) == reason


def test_a_new_ca_bundle_does_not_change_the_scope() -> None:
    renewed = configuration(clientConfig={"caBundle": "bmV3"})
    assert parse_scope(renewed) == registered()
