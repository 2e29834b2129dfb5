"""Warnings about changes that cloud-init does not apply in VMs that keep their disks."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kinds.resource_types import POOLS
from tests.builders import manifest, vm_spec
from tests.webhook.builders import request
from webhook.cloud_init import CloudInitChanges

Json = dict[str, Any]

KEYS = {"cloudInitNoCloud": {"userData": "#cloud-config\nssh_authorized_keys: [old]"}}
OTHER_KEYS = {"cloudInitNoCloud": {"userData": "#cloud-config\nssh_authorized_keys: [new]"}}
DRIVE = {"cloudInitConfigDrive": {"secretRef": {"name": "init"}}}
OTHER_DRIVE = {"cloudInitConfigDrive": {"secretRef": {"name": "init-2"}}}
RECREATE = {"proactive": {"replacePolicy": "Recreate"}}
OWN_DISK = {"dataVolume": {"name": "root"}}
VMI = "spec.template.spec.template.spec"


def credential(secret: str, method: str) -> Json:
    return {"sshPublicKey": {"source": {"secret": {"secretName": secret}}, "propagationMethod": {method: {}}}}


def pool(
    init: Json | None = None,
    root: Json = OWN_DISK,
    image: str = "a",
    strategy: Json | None = None,
    credentials: tuple[Json, ...] = (),
    boots_from: str = "root",
) -> Json:
    volumes = [{"name": "root", **root}, {"name": "scratch", "containerDisk": {"image": "x"}}]
    disks = [{"name": "scratch", "disk": {}}, {"name": boots_from, "disk": {}, "bootOrder": 1}]
    vmi = {
        "volumes": [*volumes, {"name": "init", **init}] if init else volumes,
        "accessCredentials": list(credentials),
        "domain": {
            "devices": {"disks": [{**d, **({"bootOrder": 1} if d["name"] == boots_from else {})} for d in disks]}
        },
    }
    disk = {"metadata": {"name": "root"}, "spec": {"source": {"http": {"url": image}}}}
    template = {"spec": vm_spec(vmi, dataVolumeTemplates=[disk])}
    return manifest(POOLS, "web", {"updateStrategy": strategy or {}, "template": template})


@pytest.mark.sentence("1.53")
@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        pytest.param(pool(KEYS), pool(OTHER_KEYS), ["volumes[2].cloudInitNoCloud"], id="other keys"),
        pytest.param(pool(DRIVE), pool(OTHER_DRIVE), ["volumes[2].cloudInitConfigDrive"], id="another Secret"),
        pytest.param(pool(KEYS), pool(KEYS), [], id="no change"),
        pytest.param(None, pool(KEYS), [], id="a new pool"),
        pytest.param(pool(), pool(KEYS), [], id="a source that is new has a new instance-id"),
        pytest.param(pool(KEYS), pool(DRIVE), [], id="another source has a new instance-id"),
        pytest.param(pool(KEYS), pool(), [], id="no source any more"),
        pytest.param(
            pool(KEYS), pool(OTHER_KEYS, strategy={"proactive": {"maxSurge": 1}}), [], id="new VMs replace the others"
        ),
        pytest.param(pool(KEYS), pool(OTHER_KEYS, strategy={"unmanaged": {}}), [], id="the pool updates no VM"),
        pytest.param(
            pool(KEYS),
            pool(OTHER_KEYS, strategy={"opportunistic": {}}),
            ["volumes[2].cloudInitNoCloud"],
            id="halted VMs keep their disks too",
        ),
        pytest.param(
            pool(KEYS), pool(OTHER_KEYS, strategy=RECREATE), ["volumes[2].cloudInitNoCloud"], id="the same boot disk"
        ),
        pytest.param(pool(KEYS), pool(OTHER_KEYS, image="b", strategy=RECREATE), [], id="new boot disks"),
        pytest.param(
            pool(KEYS), pool(OTHER_KEYS, image="b"), ["volumes[2].cloudInitNoCloud"], id="boot disks that stay"
        ),
        pytest.param(
            pool(KEYS, boots_from="scratch"),
            pool(OTHER_KEYS, boots_from="scratch"),
            [],
            id="a boot disk that each start makes anew",
        ),
        pytest.param(
            pool(KEYS, root={"persistentVolumeClaim": {"claimName": "x"}}),
            pool(OTHER_KEYS, root={"persistentVolumeClaim": {"claimName": "x"}}),
            ["volumes[2].cloudInitNoCloud"],
            id="a claim",
        ),
        pytest.param(
            pool(credentials=(credential("a", "noCloud"),)),
            pool(credentials=(credential("b", "noCloud"),)),
            ["accessCredentials[0]"],
            id="keys that cloud-init applies",
        ),
        pytest.param(
            pool(credentials=(credential("a", "qemuGuestAgent"),)),
            pool(credentials=(credential("b", "qemuGuestAgent"),)),
            [],
            id="keys that the guest agent applies",
        ),
    ],
)
async def test_warns_of_cloud_init_changes_that_the_guest_ignores(
    old: Json | None, new: Json, paths: list[str]
) -> None:
    answer = await CloudInitChanges().handle(request(new, old))
    assert not answer.problems
    assert [each.partition(": ")[0] for each in answer.warnings] == [f"{VMI}.{path}" for path in paths]


async def test_a_warning_fits_into_a_header() -> None:
    (warning,) = (await CloudInitChanges().handle(request(pool(DRIVE), pool(OTHER_DRIVE)))).warnings
    assert len(warning) <= 256


async def test_other_kinds_are_left_alone() -> None:
    old, new = ({**pool(each), "kind": "VirtualMachineInstanceReplicaSet"} for each in (KEYS, OTHER_KEYS))
    assert not (await CloudInitChanges().handle(request(new, old))).warnings
