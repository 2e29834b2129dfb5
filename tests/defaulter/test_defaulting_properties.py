"""Properties of any spec, with a real libvirt.

`POOLHOUSE_EXAMPLES=20000 pytest tests/defaulter/test_defaulting_properties.py` looks longer.
"""

from __future__ import annotations

import os
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from defaulter.contract import forbidden_changes, undefaulted_fields
from tests.defaulter.builders import addresses, inner, pool, spec, vm
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt

EXAMPLES = int(os.environ.get("POOLHOUSE_EXAMPLES", "30"))
HOW = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

Json = dict[str, Any]

NAMES = st.text("abcdefgh-_0123456789", min_size=1, max_size=12)
maybe = st.one_of


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=fields)


ADDRESS = st.builds("0000:{:02x}:00.0".format, st.integers(1, 20))
DISK = st.one_of(
    st.builds(lambda inner: {"disk": inner}, optional(bus=st.sampled_from(["virtio", "sata", "scsi", "usb"]))),
    st.builds(lambda a: {"disk": {"bus": "virtio", "pciAddress": a}}, ADDRESS),
    st.builds(lambda inner: {"cdrom": inner}, optional(bus=st.sampled_from(["sata", "scsi"]), readonly=st.booleans())),
    st.just({"lun": {"bus": "scsi"}}),
    st.just({}),
)
MAC = st.builds("52:54:00:00:00:{:02x}".format, st.integers(0, 255))
NIC = optional(
    model=st.sampled_from(["virtio", "e1000e", "virtio", "virtio", "rtl8139"]),
    macAddress=MAC,
    pciAddress=ADDRESS,
    state=st.sampled_from(["up", "down", "absent"]),
)
EXTRAS = optional(
    rng=st.just({}),
    watchdog=st.just({"name": "the-watchdog"}),
    sound=st.builds(lambda model: {"name": "the-sound", **model}, optional(model=st.sampled_from(["ich9", "ac97"]))),
    inputs=st.just([{"name": "the-tablet", "bus": "virtio", "type": "tablet"}]),
    autoattachGraphicsDevice=st.booleans(),
    autoattachSerialConsole=st.booleans(),
    autoattachMemBalloon=st.booleans(),
    disableHotplug=st.booleans(),
    useVirtioTransitional=st.booleans(),
    gpus=st.just([{"name": "gpu", "deviceName": "x/y"}]),
    filesystems=st.just([{"name": "share", "virtiofs": {}}]),
)


@st.composite
def contents(draw: st.DrawFn) -> Json:
    names = draw(st.lists(NAMES, unique=True, max_size=9))
    split = draw(st.integers(0, len(names)))
    disks = [{"name": name, **draw(DISK)} for name in names[:split]]
    nics = [{"name": name, "bridge": {}, **draw(NIC)} for name in names[split:]]
    seen: set[str] = set()
    for device in (*disks, *nics):
        for target in (device, device.get("disk", {})):
            for field in ("macAddress", "pciAddress"):
                if target.get(field) in seen:
                    del target[field]
                seen.add(str(target.get(field)))
    domain: Json = {"devices": draw(EXTRAS)}
    domain |= draw(optional(cpu=optional(cores=st.integers(0, 4), sockets=st.integers(0, 2), threads=st.just(1))))
    domain |= draw(optional(memory=st.builds(lambda size: {"guest": size}, st.sampled_from(["64Mi", "3Gi"]))))
    content = spec(*disks, *nics, domain=domain)
    # The builder tells disks from NICs by their target, and here some disks have none.
    content["domain"]["devices"] |= {"disks": disks, "interfaces": nics}
    content["volumes"] = [{"name": disk["name"]} for disk in disks] + [{"name": "share"}]
    content["networks"] = [{"name": nic["name"], "pod": {}} for nic in nics]
    if "filesystems" not in domain["devices"]:
        content["volumes"].pop()
    return content


def completed(libvirt: Libvirt, document: Json, **envelope: Any) -> Json:
    """The answer; a spec that clashes with what KubeVirt puts there itself is none of these properties' business."""
    answer = libvirt.default(document, **envelope)
    assert answer.status in (200, 422), answer.content
    assume(answer.status == 200)
    return answer.object


def leaves(value: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """Every given value by its path, devices by their names."""
    if isinstance(value, dict):
        return {k: v for key, child in value.items() for k, v in leaves(child, (*path, key)).items()}
    if isinstance(value, list):
        has_alias = [(c.get("name", i) if isinstance(c, dict) else i, c) for i, c in enumerate(value)]
        return {k: v for key, child in has_alias for k, v in leaves(child, (*path, key)).items()}
    return {} if value in (None, "") or (value == 0 and value is not False) else {path: value}


def leaving(document: Json, name: str) -> bool:
    """A NIC that is being unplugged has no place of its own any more."""
    nics = inner(document)["domain"]["devices"]["interfaces"]
    return any(nic["name"] == name and nic.get("state") == "absent" for nic in nics)


@HOW
@given(contents())
@pytest.mark.sentence("4.4")
def test_values_stay_and_unset_fields_are_filled_once(libvirt: Libvirt, content: Json) -> None:
    document = vm(content)
    answer = completed(libvirt, document)
    after = leaves(answer)
    assert {path: after[path] for path in leaves(document)} == leaves(document)
    assert undefaulted_fields(answer) == []
    assert forbidden_changes(document, answer) == []
    assert libvirt.default(answer).object == answer


@HOW
@given(contents(), st.randoms(use_true_random=False))
@pytest.mark.sentence("4.35")
def test_the_order_of_devices_changes_no_default(libvirt: Libvirt, content: Json, chance: Any) -> None:
    answer = libvirt.default(vm(content))
    # Where no address can be written down, the order may move what libvirt puts behind a bridge; the warning says so.
    assume(answer.status == 200 and not answer.warnings)
    shuffled = deepcopy(answer.object)
    chance.shuffle(inner(shuffled)["domain"]["devices"]["disks"])
    chance.shuffle(inner(shuffled)["domain"]["devices"]["interfaces"])
    assert leaves(libvirt.default(shuffled).object) == leaves(shuffled)
    assert leaves(shuffled) == leaves(answer.object)


@HOW
@given(contents(), st.data())
@pytest.mark.sentence("4.37")
def test_removing_and_adding_devices_moves_no_other(libvirt: Libvirt, content: Json, data: st.DataObject) -> None:
    stored = completed(libvirt, vm(content))
    bare = deepcopy(vm(content))
    devices = inner(bare)["domain"]["devices"]
    for kind in ("disks", "interfaces"):
        if devices[kind] and data.draw(st.booleans(), label=f"remove one of {kind}"):
            del devices[kind][data.draw(st.integers(0, len(devices[kind]) - 1))]
    if data.draw(st.booleans(), label="add a disk first"):
        devices["disks"].insert(0, {"name": "NEW", "disk": {"bus": "virtio"}})
        inner(bare)["volumes"].append({"name": "NEW"})
    changed = libvirt.default(bare, oldObject=stored)
    assume(changed.status == 200)
    answer = changed.object
    before, after = addresses(stored), addresses(answer)
    # A conventional PCI device takes every address out of the spec, with a warning.
    holds = not changed.warnings
    stayed = {name for name in before if name in after}
    if holds:
        assert {name: after[name] for name in stayed if before[name]} == {n: before[n] for n in stayed if before[n]}
    found = [address for name, address in after.items() if address and not leaving(bare, name)]
    assert len(set(found)) == len(found)
    identity = inner(stored)["domain"]["firmware"]
    assert inner(answer)["domain"]["firmware"] == identity


@HOW
@given(contents())
def test_replicas_share_addresses_but_no_identity(libvirt: Libvirt, content: Json) -> None:
    for nic in content["domain"]["devices"]["interfaces"]:
        nic.pop("macAddress", None)
    template = completed(libvirt, pool(content))
    first = libvirt.default(vm(inner(template), name="p-1")).object
    second = libvirt.default(vm(inner(template), name="p-2")).object
    assert addresses(first) == addresses(second) == addresses(template)
    mine = {path: value for path, value in leaves(inner(first)).items() if path[-1] in ("uuid", "serial", "macAddress")}
    theirs = leaves(inner(second))
    assert all(theirs[path] != value for path, value in mine.items())


@HOW
@given(contents())
def test_the_cache_gives_what_libvirt_gave(libvirt: Libvirt, content: Json) -> None:
    """The second VM of a shape is answered from memory: as the domain it would have been, asked anew, says."""
    from defaulter import xml
    from defaulter.vmi_spec import alias

    completed(libvirt, vm(content, name="one"))
    answer = libvirt.default(vm(content, name="two")).object
    domain = xml.read(libvirt.domain(vm(content, name="two")))
    for name, address in addresses(answer).items():
        if address and not leaving(answer, name):
            device = next(
                d for d in domain.iter("disk", "interface") if d.find(f"alias[@name='{alias(name)}']") is not None
            )
            place = device.find("address")
            assert place.get("bus") == f"0x{address[5:7]}"


KEYS = (
    *("domain", "devices", "disks", "disk", "bus", "name", "interfaces", "cpu", "cores", "memory", "guest", "features"),
    *("hyperv", "clock", "timer", "firmware", "uuid", "machine", "type", "volumes", "networks", "pciAddress", "model"),
    *(
        "macAddress",
        "enabled",
        "spec",
        "template",
        "metadata",
        "annotations",
        "kernelBoot",
        "bootloader",
        "efi",
        "video",
    ),
    *("watchdog", "i6300esb", "action", "sound", "inputs", "panicDevices", "resources", "requests", "limits", "sriov"),
)

WILD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.dictionaries(
            st.sampled_from(KEYS) | st.text(max_size=5),
            inside,
            max_size=6,
        )
    ),
    max_leaves=30,
)


@HOW
@given(
    st.sampled_from(
        ["VirtualMachine", "VirtualMachineInstance", "VirtualMachinePool", "VirtualMachineInstanceReplicaSet"]
    ),
    WILD,
    WILD,
)
def test_nonsense_gets_defaults_or_problems(libvirt: Libvirt, kind: str, wild: Any, old: Any) -> None:
    document = {
        "kind": kind,
        "metadata": {"name": "a"},
        "spec": {
            "domain": wild,
            "architecture": old,
            "template": {"spec": {"domain": wild, "architecture": old, "template": {"spec": wild}}},
        },
    }
    assert undefaulted_fields(document) is not None
    assert libvirt.default(document, oldObject={"spec": old}).status in (200, 422)
