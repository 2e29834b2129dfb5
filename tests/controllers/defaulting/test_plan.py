"""When the hardware of a VM is filled, and when the controller waits."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.defaulting.apply import without_annotation
from controllers.defaulting.observe import VM, DefaultingSnapshot, VMIState, parse_vm
from controllers.defaulting.plan import RUNNING_SECONDS, Action, FillHardware, RemoveAnnotation, Wait, plan
from kinds.meta import DEFAULTING, UNDEFAULTED

OLDER = "it is older than the webhook configuration"


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
        pytest.param(snapshot(deleting=True), Wait(None, "the VM is being deleted"), id="a VM that is being deleted"),
    ],
)
def test_plan(observed: DefaultingSnapshot, action: Action) -> None:
    assert plan(observed) == action


def document(**changed: Any) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "web", "generation": 3, **changed.pop("metadata", {})}
    spec = {"running": True, "template": {"spec": {"domain": {"devices": {}}}}}
    return {"kind": "VirtualMachine", "apiVersion": "kubevirt.io/v1", "metadata": metadata, "spec": spec, **changed}


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
    assert without_annotation(annotated) == document(metadata={"annotations": {"owner": "jane"}})
