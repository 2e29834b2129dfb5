"""What an update without the former template may have left in a VM."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.pool.actions import AdoptRevision
from controllers.pool.actions.base import after
from controllers.pool.lost_base import left_fields, show, unexplained_fields
from controllers.pool.plan import plan
from controllers.pool.status import pool_status
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.vm_facts import pool_facts
from tests.controllers.pool.builders import NOW, REVISION, snapshot
from tests.controllers.pool.builders import vm as vm_of_pool

DISK = {"name": "root", "disk": {"bus": "virtio"}}
NIC = {"name": "default", "masquerade": {}}


def vm(**spec: object) -> Json:
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": {"template": {"spec": spec}}}


def devices(**found: object) -> Json:
    return {"devices": found}


@pytest.mark.parametrize(
    ("live", "new", "left"),
    [
        pytest.param(vm(hostname="x"), vm(), ("hostname",), id="a field"),
        pytest.param(vm(hostname="x"), vm(hostname="y"), (), id="a changed field"),
        pytest.param(vm(hostname=""), vm(), (), id="an empty field"),
        pytest.param(vm(dnsConfig={"nameservers": ["10.0.0.1"]}), vm(), ("dnsConfig.nameservers",), id="an object"),
        pytest.param(
            vm(domain=devices(disks=[DISK, {"name": "data", "disk": {}}])),
            vm(domain=devices(disks=[DISK])),
            ("domain.devices.disks[data]",),
            id="a disk",
        ),
        pytest.param(
            vm(volumes=[{"name": "root"}, {"name": "data"}]),
            vm(volumes=[{"name": "root"}]),
            ("volumes[data]",),
            id="a volume",
        ),
        pytest.param(
            vm(domain={"firmware": {"uuid": "u", "serial": "s"}, "machine": {"type": "pc-q35-9.2"}}),
            vm(),
            (),
            id="hardware that defaulting fills",
        ),
        pytest.param(
            vm(volumes=[{"name": "root"}], domain=devices(disks=[DISK], interfaces=[NIC]), networks=[{"name": "a"}]),
            vm(volumes=[{"name": "root"}]),
            (),
            id="devices that KubeVirt adds",
        ),
        pytest.param(
            vm(volumes=[{"name": "root"}], domain=devices(disks=[DISK])),
            vm(volumes=[{"name": "root"}], domain=devices(disks=[])),
            (),
            id="a disk of a volume",
        ),
        pytest.param(
            vm(architecture="amd64", domain={"features": {"acpi": {"enabled": True}}}), vm(), (), id="virt-api"
        ),
    ],
)
def test_unexplained_fields_of_an_update_without_its_base_revision(
    live: Json, new: Json, left: tuple[str, ...]
) -> None:
    assert unexplained_fields(live, new) == left


def test_many_are_counted() -> None:
    assert show("a,b,c,d,e,f,g") == "a, b, c, d, e and 2 more"


@pytest.mark.parametrize(
    ("live", "known", "lost", "left"),
    [
        pytest.param(vm(hostname="x", subdomain="y"), "", True, "hostname,subdomain", id="the base is lost"),
        pytest.param(vm(hostname="x"), "", False, "", id="with its base, an update leaves nothing"),
        pytest.param(vm(hostname="x"), "hostname,subdomain", False, "hostname", id="a user has removed one field"),
        pytest.param(vm(), "hostname", False, "", id="a user has removed all"),
        pytest.param(vm(hostname="x", subdomain="y"), "hostname", True, "hostname,subdomain", id="lost once more"),
    ],
)
def test_what_the_annotation_says_after_an_update(live: Json, known: str, lost: bool, left: str) -> None:
    assert left_fields(live, vm(), known, lost=lost) == left


def test_the_pool_tells_what_an_update_may_have_left_until_it_is_removed() -> None:
    left = snapshot(2, vm_of_pool(1, left_fields="hostname,subdomain"), vm_of_pool(2))
    conditions = {each.type: each for each in pool_status(left, plan(left, NOW), NOW).conditions}
    assert conditions["RevisionLost"].status == "True"
    assert str(conditions["RevisionLost"].message).startswith("web-1: ")
    assert "hostname, subdomain: remove these fields" in str(conditions["RevisionLost"].message)
    assert any("hostname, subdomain" in fact for fact in pool_facts(left, "web-1"))
    assert not any("revision of its former" in fact for fact in pool_facts(left, "web-2"))
    never = snapshot(1, vm_of_pool(1))
    assert "RevisionLost" not in {each.type for each in pool_status(never, plan(never, NOW), NOW).conditions}


def test_a_revision_without_an_owner_gets_the_pool_as_its_owner() -> None:
    orphan = replace(REVISION, owned=False, uid="u-revision")
    observed = replace(snapshot(1, vm_of_pool(1)), revisions=(orphan,), revision=orphan)
    (adopt,) = plan(observed, NOW).actions
    assert isinstance(adopt, AdoptRevision)
    assert (adopt.name, adopt.uid) == (REVISION.name, "u-revision")
    assert plan(after(observed, [adopt]), NOW).actions == ()
