"""When the hardware of a VM is filled, and when the controller waits."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.defaulting.observe import VM, DefaultingSnapshot, VMIState, parse_vm
from controllers.defaulting.plan import (
    OLDER,
    RUNNING_SECONDS,
    Action,
    FillHardware,
    KeepGuest,
    RemoveAnnotation,
    Wait,
    WebhookScope,
    ineligible_reason,
    parse_scope,
    plan,
)
from poolhouse.api.kinds.meta import DEFAULTING, UNDEFAULTED
from poolhouse.api.kinds.vm_documents import with_undefaulted
from poolhouse.manifests import webhooks
from poolhouse.runtime.resource import VMS
from tests.builders import manifest, vm_spec

KEPT = KeepGuest()


def snapshot(vmi: VMIState = "absent", *, ineligible: str | None = None, **known: Any) -> DefaultingSnapshot:
    given = {
        "generation": 1,
        "undefaulted": True,
        "annotated": True,
        "deleting": False,
        "created": False,
        "printable_status": "",
    }
    return DefaultingSnapshot(VM("shop", "web", **{**given, **known}), vmi, ineligible)


@pytest.mark.parametrize(
    ("observed", "action"),
    [
        pytest.param(snapshot(), FillHardware("the VM has no VMI"), id="before its first start"),
        pytest.param(snapshot(annotated=False), FillHardware("the VM has no VMI"), id="without the annotation"),
        pytest.param(
            snapshot("finishing"), FillHardware("the VMI is finishing"), id="at its stop, before the next start"
        ),
        pytest.param(
            snapshot("running"),
            Wait(RUNNING_SECONDS, "the VM runs, and a change of its hardware would require a restart"),
            id="not while it runs",
        ),
        pytest.param(
            snapshot(undefaulted=False), RemoveAnnotation("all hardware fields are filled"), id="an outdated annotation"
        ),
        pytest.param(
            snapshot("running", undefaulted=False),
            RemoveAnnotation("all hardware fields are filled"),
            id="the annotation is removed from a running VM",
        ),
        pytest.param(
            snapshot(undefaulted=False, annotated=False),
            Wait(None, "all hardware fields are filled"),
            id="nothing to do",
        ),
        pytest.param(
            snapshot(ineligible="its namespace opted out"),
            RemoveAnnotation("its namespace opted out"),
            id="the namespace has opted out",
        ),
        pytest.param(snapshot(ineligible=OLDER, annotated=False), Wait(None, OLDER), id="an ineligible VM"),
        pytest.param(
            snapshot("running", ineligible=OLDER, annotated=False), Wait(None, OLDER), id="an ineligible running VM"
        ),
        pytest.param(snapshot("finishing", ineligible=OLDER, annotated=False), KEPT, id="an older VM finishes"),
        *(
            pytest.param(
                snapshot(vmi, ineligible=OLDER, annotated=False, created=True, printable_status=status),
                KEPT,
                id=f"an older VM is {status} while its VMI is {vmi}",
            )
            for vmi, status in (("running", "Stopping"), ("running", "Stopped"), ("running", "CrashLoopBackOff"))
        ),
        pytest.param(
            snapshot(ineligible=OLDER, annotated=False, printable_status="Stopped"),
            Wait(None, OLDER),
            id="an older halted VM",
        ),
        pytest.param(
            snapshot("finishing", ineligible="its namespace opted out", annotated=False),
            Wait(None, "its namespace opted out"),
            id="a VM of a namespace that opted out stops",
        ),
        pytest.param(snapshot(deleting=True), Wait(None, "the VM is being deleted"), id="a VM that is being deleted"),
    ],
)
def test_plan(observed: DefaultingSnapshot, action: Action) -> None:
    assert plan(observed) == action


def document(**changed: Any) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "web", "generation": 3, **changed.pop("metadata", {})}
    return {**manifest(VMS, spec=vm_spec(running=True), **metadata), **changed}


def test_a_vm_with_empty_fields_is_pending() -> None:
    made = {"creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"tier": "web"}}
    found = parse_vm(document(metadata=made, status={"created": True, "printableStatus": "Running"}))
    assert (found.created_at, found.labels) == ("2026-01-01T00:00:00Z", (("tier", "web"),))
    assert (found.pending, found.undefaulted, found.annotated) == (True, True, False)
    assert (found.generation, found.created, found.printable_status) == (3, True, "Running")


def test_an_annotated_vm_is_pending() -> None:
    labels = {DEFAULTING: "disabled"}
    found = parse_vm(document(metadata={"labels": labels, "annotations": {UNDEFAULTED: "DefaulterUnavailable"}}))
    assert (found.pending, found.undefaulted) == (True, False)


def test_a_vm_that_opted_out_is_never_pending() -> None:
    labels = {DEFAULTING: "disabled"}
    views = [
        parse_vm(document(metadata={"labels": labels, "generation": generation}, status=status))
        for generation, status in ((1, {}), (2, {"created": True}), (3, {"printableStatus": "Running"}))
    ]
    assert not views[0].pending
    assert len(set(views)) == 1


def test_a_vm_that_is_being_deleted_is_not_pending() -> None:
    assert not parse_vm(document(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})).pending


def test_removing_the_annotation_keeps_everything_else() -> None:
    annotated = document(metadata={"annotations": {UNDEFAULTED: "x", "owner": "jane"}})
    assert with_undefaulted(annotated, None) == document(metadata={"annotations": {"owner": "jane"}})


Json = dict[str, Any]

BEFORE, THEN, AFTER = (f"2026-01-01T00:00:0{second}Z" for second in (1, 2, 3))
NAME = "kubernetes.io/metadata.name"
SHOP = {NAME: "shop"}
OUT = {DEFAULTING: "disabled"}

NOT_SELECTED = "the webhook configuration does not select it"
NO_CONFIGURATION = "there is no webhook configuration"


def vm(since: str = AFTER, *, annotated: bool = False, **labels: str) -> VM:
    annotations = {UNDEFAULTED: "DefaulterUnavailable"} if annotated else None
    metadata: Json = {"creationTimestamp": since, "labels": labels, "annotations": annotations}
    return parse_vm(manifest(VMS, "web", vm_spec(), "shop", **metadata))


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
