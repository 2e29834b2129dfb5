"""Which machine type the VMs of a revision get whose template has an alias."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.pool.actions import Create, PinMachineType
from controllers.pool.actions.base import after
from controllers.pool.machine_types import machine_type
from controllers.pool.plan import plan
from controllers.pool.revisions import parse_revision
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.template import build_vm
from tests.controllers.pool.builders import (
    LIGHT,
    NOW,
    OLD,
    REVISION,
    a_pool,
    document,
    leaving,
    old,
    snapshot,
    template,
    vm,
)

OLDER, NEWER = "pc-q35-9.0", "pc-q35-9.2"
ALIAS = replace(REVISION, machine_type="q35")
BEFORE = replace(OLD, machine_type="q35")
OTHER_ALIAS = replace(OLD, machine_type="pc")
SURGE = {"proactive": {"maxSurge": 1}}


def seen(*vms: object, of: object = 3, revision: object = ALIAS, before: object = BEFORE) -> PoolSnapshot:
    return snapshot(of, *vms, revision=revision, revisions=(before, LIGHT, revision))


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(seen(), "", id="before the first VM, admission chooses"),
        pytest.param(seen(vm(1, machine_type="q35")), "", id="a VM that has the alias says nothing"),
        pytest.param(seen(vm(1, machine_type=OLDER)), OLDER, id="the next VM gets the type of the first"),
        pytest.param(
            seen(vm(1, machine_type=NEWER, created_at="b"), vm(2, machine_type=OLDER, created_at="a")),
            OLDER,
            id="the oldest VM decides",
        ),
        pytest.param(
            seen(leaving(1, machine_type=OLDER), vm(2, machine_type=NEWER)), NEWER, id="a VM that is deleted does not"
        ),
        pytest.param(
            seen(vm(1, machine_type=NEWER), revision=replace(ALIAS, pinned_machine_type=OLDER)),
            OLDER,
            id="what the revision says is true whatever VMs have",
        ),
        pytest.param(
            seen(vm(1, machine_type=OLDER), revision=replace(ALIAS, machine_type="")),
            OLDER,
            id="no machine type in the template is KubeVirt's alias",
        ),
        pytest.param(
            seen(vm(1, machine_type=OLDER), revision=replace(ALIAS, machine_type=NEWER)),
            "",
            id="a canonical type in the template is the author's",
        ),
        pytest.param(
            seen(old(1, machine_type=OLDER)), OLDER, id="VMs that an update leaves in place decide for the new revision"
        ),
        pytest.param(
            seen(old(1, machine_type=OLDER), of=a_pool(3, updateStrategy=SURGE)),
            "",
            id="VMs that an update replaces do not",
        ),
        pytest.param(
            seen(old(1, machine_type=OLDER, scale_in="Protect"), of=a_pool(3, updateStrategy=SURGE)),
            OLDER,
            id="a protected VM is not replaced",
        ),
        pytest.param(
            seen(old(1, machine_type="pc-i440fx-9.0"), before=OTHER_ALIAS), "", id="the author wants another family now"
        ),
        pytest.param(seen(vm(1, machine_type=OLDER, revision="lost")), "", id="a VM of an unknown revision does not"),
    ],
)
def test_the_machine_type_of_new_vms(observed: PoolSnapshot, expected: str) -> None:
    assert machine_type(observed, observed.revision) == expected
    created = [each.machine_type for each in plan(observed, NOW).actions if isinstance(each, Create)]
    assert set(created) == ({expected} if created else set())


def test_the_revision_keeps_the_type_and_another_plan_does_not_write_it_again() -> None:
    observed = seen(vm(1, machine_type=OLDER), vm(2, machine_type=OLDER), vm(3, machine_type=OLDER))
    (pin,) = plan(observed, NOW).actions
    assert isinstance(pin, PinMachineType)
    assert (pin.name, pin.machine_type) == (ALIAS.name, OLDER)
    assert plan(after(observed, [pin]), NOW).actions == ()


def test_a_rollback_gives_new_vms_the_older_type() -> None:
    """The pool has the former template again, with VMs of the newer revision."""
    former = replace(ALIAS, pinned_machine_type=OLDER)
    newer = replace(BEFORE, pinned_machine_type=NEWER)
    vms = [old(n, machine_type=NEWER) for n in (1, 2, 3)]
    observed = seen(*vms, of=a_pool(3, updateStrategy=SURGE), revision=former, before=newer)
    (create,) = (each for each in plan(observed, NOW).actions if isinstance(each, Create))
    assert (create.revision, create.machine_type) == (former.name, OLDER)


@pytest.mark.parametrize("machine", [None, {"type": "q35"}], ids=["no machine type", "an alias"])
def test_a_vm_is_built_with_the_type(machine: dict[str, str] | None) -> None:
    given = template()
    if machine is not None:
        given["spec"]["template"]["spec"]["domain"]["machine"] = machine
    pool = a_pool(3, template=given)
    built = build_vm(pool, 1, ALIAS, machine_type=OLDER)
    assert built["spec"]["template"]["spec"]["domain"].pop("machine") == {"type": OLDER}
    plain = build_vm(pool, 1, ALIAS)
    assert plain["spec"]["template"]["spec"]["domain"].pop("machine", None) == machine
    assert built == plain


def test_a_stored_revision_has_both_types() -> None:
    spec = document(template={"spec": {"template": {"spec": {"domain": {"machine": {"type": "q35"}}}}}})["spec"]
    metadata = {"namespace": "default", "name": "web-r1", "annotations": {"poolhouse.dev/machine-type": OLDER}}
    found = parse_revision({"metadata": metadata, "revision": 1, "data": {"template": spec["template"]}})
    assert (found.machine_type, found.pinned_machine_type) == ("q35", OLDER)
    del metadata["annotations"]
    assert parse_revision({"metadata": metadata, "data": {}}).pinned_machine_type == ""
