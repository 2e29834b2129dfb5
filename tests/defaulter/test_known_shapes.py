"""Answers that are remembered by shape equal the answers of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given

from defaulter.client import Defaulter, _accept
from defaulter.field_record import DEFAULTED_FIELDS
from defaulter.identity import with_firmware_ids
from defaulter.known_shapes import (
    MAX_SHAPES,
    REMEMBERED_SECONDS,
    KnownShapes,
    NewVM,
    new_vm,
)
from defaulter.messages import DEFAULTS_PATH
from poolhouse.api.apimachinery.unstructured import Json, at, replaced
from tests.defaulter.builders import disk, inner, nic, spec, vm, vmi
from tests.defaulter.conftest import Libvirt
from tests.defaulter.test_defaulting_properties import HOW, contents
from tests.serving import serving

SEED = "s"
UUID = "12345678-1234-4234-8234-123456789abc"
OTHER_UUID = "87654321-1234-4234-8234-123456789abc"
OWN_MAC = nic(macAddress="02:00:00:00:00:01")


ONE, TWO = vm(spec(disk(), nic()), "one"), vm(spec(disk(), nic()), "two")


def volume(name: str, **source: Any) -> Json:
    return {"name": name, **source}


def with_volume(source: Json) -> Json:
    return spec(disk(), volumes=[volume("root", **source)])


def ids(**values: Any) -> Json:
    return {"firmware": values}


def of(document: Json, seed: str | None = SEED, other_fields: bytes = b"", namespace: str | None = None) -> NewVM:
    found = new_vm(document, namespace, seed, other_fields)
    assert found is not None
    return found


def with_metadata(document: Json, *path: str) -> Json:
    """The document with a label and an annotation at this path."""
    more = {"labels": {"a": "b"}} if path else {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    holder = at(document, *path)
    metadata = {**(holder.get("metadata") or {}), **more}
    return replaced(document, {**holder, "metadata": metadata}, *path) if path else {**document, "metadata": metadata}


def with_own(**metadata: Json) -> Json:
    return {**PLAIN, "metadata": {"name": "a", **metadata}}


SAME: dict[str, tuple[Json, Json]] = {
    "another name": (vm(spec(disk(), nic()), "a"), vm(spec(disk(), nic()), "b")),
    "another namespace": (vm(spec(disk(), nic()), namespace="x"), vm(spec(disk(), nic()), namespace="y")),
    "two NICs": (vm(spec(nic("x"), nic("y"))), vm(spec(nic("x"), nic("y")), "b")),
    "another DataVolume": (
        vm(with_volume({"dataVolume": {"name": "a-root"}}), dataVolumeTemplates=[{"metadata": {"name": "a-root"}}]),
        vm(with_volume({"dataVolume": {"name": "b-root"}}), "b", dataVolumeTemplates=[{"metadata": {"name": "b"}}]),
    ),
    "another firmware UUID": (
        vm(spec(disk(), domain=ids(uuid=UUID, serial=UUID))),
        vm(spec(disk(), domain=ids(uuid=OTHER_UUID, serial=OTHER_UUID)), "b"),
    ),
    "metadata of the template": (vm(spec(disk())), with_metadata(vm(spec(disk()), "b"), "spec", "template")),
    "metadata of the VM": (vm(spec(disk())), with_metadata(vm(spec(disk()), "b"))),
    "another run strategy": (vm(spec(disk())), vm(spec(disk()), runStrategy="Halted")),
    "ordinals in Secrets": (
        vm(with_volume({"cloudInitNoCloud": {"secretRef": {"name": "s-1"}, "userData": "a"}})),
        vm(with_volume({"cloudInitNoCloud": {"secretRef": {"name": "s-2"}, "userData": "bb"}}), "b"),
    ),
    "an emptied MAC address": (
        vm(spec(disk(), nic(macAddress="", model="virtio", pciAddress="0000:01:00.0"))),
        vm(spec(disk(), nic(macAddress="", model="virtio", pciAddress="0000:01:00.0")), "b"),
    ),
    "a MAC address that is null": (vm(spec(nic(macAddress=None))), vm(spec(nic(macAddress=None)), "b")),
    "emptied firmware IDs": (
        vm(spec(nic(), domain=ids(uuid="", serial=""))),
        vm(spec(nic(), domain=ids(uuid="", serial="")), "b"),
    ),
    "an emptied serial, and everything else complete": (
        vm(spec(nic(macAddress=""), domain=ids(uuid=UUID, serial=""))),
        vm(spec(nic(macAddress=""), domain=ids(uuid=OTHER_UUID, serial="")), "b"),
    ),
    "VMIs": (vmi(spec(disk(), nic()), "a"), vmi(spec(disk(), nic()), "b")),
}
"""Two documents of the same shape."""

PLAIN = vm(spec(disk(), nic()))
OTHERS: dict[str, Json] = {
    "memory": vm(spec(disk(), nic(), domain={"memory": {"guest": "64Mi"}})),
    "a disk": vm(spec(disk(), disk("data"), nic())),
    "the order of disks": vm(spec(disk("a"), disk("b"))),
    "the name of a disk": vm(spec(disk("a"), nic())),
    "a bus": vm(spec(disk(bus="sata"), nic())),
    "a MAC address": vm(spec(disk(), OWN_MAC)),
    "an annotation of the VMI": vm(
        spec(disk(), nic()), annotations={"kubevirt.io/placePCIDevicesOnRootComplex": "true"}
    ),
    "an instance type": vm(spec(disk(), nic()), instancetype={"name": "x"}),
    "a preference": vm(spec(disk(), nic()), preference={"name": "x"}),
    "a firmware UUID": vm(spec(disk(), nic(), domain=ids(uuid=UUID))),
    "an invalid firmware UUID": vm(spec(disk(), nic(), domain=ids(uuid="x"))),
    "a serial": vm(spec(disk(), nic(), domain=ids(serial=UUID))),
    "a hotpluggable volume": vm(
        spec(disk(), nic(), volumes=[volume("root", persistentVolumeClaim={"claimName": "", "hotpluggable": True})])
    ),
    "the type of a volume": vm(spec(disk(), nic(), volumes=[volume("root", containerDisk={"image": ""})])),
    "a kind": vmi(spec(disk(), nic())),
    "the number of disks of its own": vm(spec(disk(), nic()), dataVolumeTemplates=[{}]),
}


@pytest.mark.parametrize(("one", "other"), [pytest.param(*pair, id=name) for name, pair in SAME.items()])
def test_vms_of_a_pool_have_one_shape(one: Json, other: Json) -> None:
    assert of(one).shape == of(other).shape


def test_what_decides_an_answer_makes_another_shape() -> None:
    shapes = [of(each).shape for each in (PLAIN, *OTHERS.values())]
    assert len(set(shapes)) == len(shapes)
    assert of(PLAIN, other_fields=b"x").shape != of(PLAIN).shape
    assert of(PLAIN, seed=None).shape != of(PLAIN).shape


@pytest.mark.parametrize(
    ("document", "seed"),
    [
        pytest.param({"kind": "Pod"}, SEED, id="no VM"),
        pytest.param(vm("text"), SEED, id="no spec"),
        pytest.param(vm(spec(disk()), name=""), None, id="random identity"),
        pytest.param(
            {**PLAIN, "metadata": {"name": "a", "labels": {"poolhouse.dev/defaulting": "disabled"}}},
            SEED,
            id="opted out",
        ),
        pytest.param(with_own(annotations={DEFAULTED_FIELDS: "{}"}), SEED, id="copied"),
        pytest.param(vm(spec(*(disk(f"disk-{number}") for number in range(400)))), SEED, id="large"),
        pytest.param(with_own(labels={"a": "\ud800"}), SEED, id="half a surrogate pair"),
        pytest.param(vm(spec(domain={"x": 2**70})), SEED, id="a number beyond 64 bits"),
    ],
)
def test_other_documents_have_no_shape(document: Json, seed: str | None) -> None:
    assert new_vm(document, None, seed, b"") is None


def answered(libvirt: Libvirt, document: Json, seed: str | None = SEED) -> Json:
    """The document with defaults and their record, as the client returns it."""
    envelope = {} if seed is None else {"seed": seed}
    return _accept(document, None, libvirt.default(document, **envelope).object)


def known(one: NewVM, answer: Json, other: NewVM) -> Json | None:
    shapes, before = KnownShapes(lambda: 0.0), deepcopy((one.document, answer, other.document))
    shapes.learn(one, answer, (), "")
    found = shapes.find(other)
    applied = None if found is None else found.apply(other)
    assert (one.document, answer, other.document) == before, "an answer must not share what it changes"
    return applied


@pytest.mark.libvirt
@pytest.mark.parametrize(("one", "other"), [pytest.param(*pair, id=name) for name, pair in SAME.items()])
def test_a_known_answer_is_the_answer_of_the_service(one: Json, other: Json, libvirt: Libvirt) -> None:
    before = deepcopy(other)
    assert known(of(one), answered(libvirt, one), of(other)) == answered(libvirt, other)
    assert other == before


@pytest.mark.libvirt
def test_a_known_answer_has_the_hardware_record_of_its_shape(sealing: Libvirt) -> None:
    one, other = (vm(spec(disk(), nic(), domain={"devices": {"rng": {}}}), name) for name in "ab")
    answer = known(of(one), answered(sealing, one), of(other))
    assert answer == answered(sealing, other)
    assert at(answer, "spec", "template", "metadata", "annotations", "poolhouse.dev/hardware")


@pytest.mark.libvirt
@HOW
@given(contents())
def test_any_spec_has_the_answer_of_its_shape(libvirt: Libvirt, content: Json) -> None:
    one, other = vm(content), with_firmware_ids(vm(deepcopy(content), "b"), SEED)
    named = vm(deepcopy(content), "b")
    first = libvirt.default(one, seed=SEED)
    if first.status != 200:
        return
    assert known(of(one), _accept(one, None, first.object), of(named)) == answered(libvirt, named)
    assert of(other).shape != of(named).shape


@pytest.mark.libvirt
def test_an_answer_with_another_seed_is_not_remembered(libvirt: Libvirt) -> None:
    document = vm(spec(disk(), nic()))
    assert known(of(document), answered(libvirt, document, "other"), of(document)) is None


# The client


class Service:
    """Answers as the real one does, and counts."""

    def __init__(self, libvirt: Libvirt) -> None:
        self._libvirt = libvirt
        self.calls = 0
        self.macs: list[str] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.calls += 1
        answer = await asyncio.to_thread(self._libvirt.raw, await request.read())
        for interface, mac in zip(inner(answer.object)["domain"]["devices"]["interfaces"], self.macs, strict=False):
            interface["macAddress"] = mac
        return web.json_response(answer.content)


async def calls(libvirt: Libvirt, ask: Callable[..., Any], shapes: KnownShapes | None, **options: Any) -> int:
    service = Service(libvirt)
    async with (
        serving(web.post(DEFAULTS_PATH, service.handle)) as port,
        Defaulter(f"http://127.0.0.1:{port}", 60, known_shapes=shapes, **options) as defaulter,
    ):
        await ask(defaulter, service)
    return service.calls


@pytest.mark.libvirt
async def test_the_second_vm_of_a_shape_needs_no_call(libvirt: Libvirt) -> None:
    async def ask(defaulter: Defaulter, service: Service) -> None:
        answers = [await defaulter.complete(each, seed=SEED) for each in (ONE, TWO, ONE)]
        expected = [await asyncio.to_thread(answered, libvirt, each) for each in (ONE, TWO, ONE)]
        assert [each.object for each in answers] == expected
        macs = {inner(each.object)["domain"]["devices"]["interfaces"][0]["macAddress"] for each in answers}
        assert len(macs) == 2

    counted = list[str]()
    assert await calls(libvirt, ask, KnownShapes(lambda: 0.0, counted.append)) == 1
    assert counted == ["learned", "known", "known"]
    assert await calls(libvirt, ask, None) == 3


@pytest.mark.libvirt
async def test_updates_and_hotplugs_need_a_call(libvirt: Libvirt) -> None:
    async def ask(defaulter: Defaulter, service: Service) -> None:
        stored = (await defaulter.complete(ONE, seed=SEED)).object
        await defaulter.complete(ONE, old=stored, seed=SEED)
        await defaulter.complete(ONE, vmi={}, seed=SEED)

    assert await calls(libvirt, ask, KnownShapes(lambda: 0.0)) == 3


@pytest.mark.libvirt
async def test_an_answer_is_forgotten_after_a_while(libvirt: Libvirt) -> None:
    times = iter([0.0, 0.0, REMEMBERED_SECONDS + 1, REMEMBERED_SECONDS + 1])

    async def ask(defaulter: Defaulter, service: Service) -> None:
        await defaulter.complete(ONE, seed=SEED)
        await defaulter.complete(TWO, seed=SEED)

    assert await calls(libvirt, ask, KnownShapes(lambda: next(times))) == 2


@pytest.mark.libvirt
async def test_a_change_of_the_cluster_needs_a_call(libvirt: Libvirt) -> None:
    kubevirts = iter([{"spec": {}}, {"spec": {"configuration": {"cpuModel": "Haswell"}}}])

    async def ask(defaulter: Defaulter, service: Service) -> None:
        await defaulter.complete(ONE, seed=SEED)
        found = (await defaulter.complete(TWO, seed=SEED)).object
        assert inner(found)["domain"]["cpu"]["model"] == "Haswell"

    assert await calls(libvirt, ask, KnownShapes(lambda: 0.0), kubevirt=lambda: next(kubevirts)) == 2


@pytest.mark.libvirt
async def test_random_addresses_are_not_remembered(libvirt: Libvirt) -> None:
    async def ask(defaulter: Defaulter, service: Service) -> None:
        for number in range(2):
            service.macs = [f"52:54:00:00:00:0{number}"]
            found = (await defaulter.complete(ONE, seed=SEED)).object
            assert inner(found)["domain"]["devices"]["interfaces"][0]["macAddress"] == service.macs[0]

    counted = list[str]()
    assert await calls(libvirt, ask, KnownShapes(lambda: 0.0, counted.append)) == 2
    assert counted == ["not_repeatable"] * 2


@pytest.mark.libvirt
def test_the_number_of_remembered_answers_is_limited(libvirt: Libvirt) -> None:
    shapes, answer = KnownShapes(lambda: 0.0), answered(libvirt, ONE)
    asked = [of(ONE, other_fields=str(number).encode()) for number in range(MAX_SHAPES + 1)]
    for each in asked:
        shapes.learn(each, answer, (), "")
    assert [shapes.find(each) is None for each in asked] == [True, *([False] * MAX_SHAPES)]
