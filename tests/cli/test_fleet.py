"""`poolhouse hardware fleet` within the rights of the user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from defaulter import hook, xml
from defaulter.fleet import NOT_COMPARED, PLACED, Guest, report
from defaulter.json_paths import DocumentEditor
from defaulter.vm_paths import locate
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.fleet import NO_VMIS, REFUSED, VMS_LISTING, Domains, collect, summarize
from poolhouse.cli.output import Unreachable
from poolhouse.runtime.errors import Forbidden, NotFound
from poolhouse.runtime.resource import NAMESPACES, VMIS, VMS
from tests.cli.test_hardware import defaulter
from tests.defaulter.builders import disk, nic, spec, vm, vmi
from tests.defaulter.conftest import Libvirt, libvirt, user, warm

__all__ = ["libvirt", "user", "warm"]

Json = dict[str, Any]


class Rights:
    """A cluster with a VM in each of two namespaces, for a user with these rights."""

    def __init__(self, *allowed: tuple[Any, str | None]) -> None:
        self._allowed = allowed

    def _check(self, resource: Any, namespace: str | None) -> None:
        if (resource, namespace) not in self._allowed and (resource, None) not in self._allowed:
            raise Forbidden("forbidden", status=403)

    async def list(self, resource: Any, namespace: str | None = None) -> tuple[list[Json], str]:
        self._check(resource, namespace)
        return [{"metadata": {"name": "one"}}, {"metadata": {"name": "two"}}], "1"

    async def get(self, resource: Any, namespace: str | None, name: str) -> Json:
        raise NotFound("not found", status=404)

    async def pages(self, resource: Any, namespace: str | None = None) -> AsyncIterator[tuple[list[Json], str]]:
        self._check(resource, namespace)
        for each in ("one", "two"):
            if resource is VMS and namespace in (None, each):
                yield [vm(spec(nic()), name="web", namespace=each)], "1"


ALL = [(NAMESPACES, None), (VMS, None), (VMIS, None)]


@pytest.mark.parametrize(
    ("rights", "everywhere", "seen", "refused"),
    [
        pytest.param(ALL, True, ["one", "two"], [], id="all"),
        pytest.param(ALL, False, ["one"], [], id="one namespace"),
        pytest.param(
            [(NAMESPACES, None), (VMS, "two"), (VMIS, "two")], True, ["two"], ["namespace one"], id="some namespaces"
        ),
        pytest.param(
            [(VMS, "one"), (VMIS, "one")],
            True,
            ["one"],
            ["all namespaces; this is namespace one"],
            id="no list of namespaces",
        ),
        pytest.param([], True, [], ["any namespace"], id="nothing"),
        pytest.param([], False, [], ["namespace one"], id="nothing in the namespace"),
    ],
)
def test_namespaces_that_are_refused_are_named(
    rights: list[Any], everywhere: bool, seen: list[str], refused: list[str]
) -> None:
    api: Any = Rights(*rights)
    rows, found = asyncio.run(collect(api, Cluster(None, "one", everywhere=everywhere)))
    assert ([row["namespace"] for row in rows], found) == (seen, refused)


def test_without_the_right_to_list_vmis_the_guest_is_unknown() -> None:
    api: Any = Rights((VMS, None))
    rows, _ = asyncio.run(collect(api, Cluster(None, "one")))
    assert [(row["changes"], row["unknown"]) for row in rows] == [([], [NO_VMIS])]


def test_the_page_shows_what_the_command_prints() -> None:
    found = report(vm(spec(disk(), nic()), name="old"), Guest({"default": "02:00:00:00:00:01"}))
    rows = [found.as_json()]
    lines = [*VMS_LISTING.lines("text", rows), summarize(rows)]
    page = (Path(__file__).parents[2] / "docs/hardware.md").read_text()
    assert "\n".join(f"    {line}" for line in lines) in page


class Shop(Rights):
    """A cluster with VMs of one shape that run, to which somebody has added a disk, and one whose VMI is older."""

    async def pages(self, resource: Any, namespace: str | None = None) -> AsyncIterator[tuple[list[Json], str]]:
        for name, topology in (("one", "v3"), ("two", "v3"), ("old", "v2")):
            annotations = {"kubevirt.io/pci-topology-version": topology}
            if resource is VMS:
                yield [vm(spec(disk("new"), disk(), nic()), name=name, annotations=annotations)], "1"
            else:
                yield [vmi(spec(disk(), nic(model="virtio")), name=name, annotations=annotations)], "1"


def test_a_fleet_is_summarized() -> None:
    facts: list[tuple[str, list[int], list[str]]] = [("No", [1], ["MAC"]), ("Poolhouse", [], []), ("No", [], [])]
    rows = [{"defaulted": each, "changes": changes, "unknown": unknown} for each, changes, unknown in facts]
    assert summarize(rows) == "3 VMs: 2 No, 1 Poolhouse; 1 with changes"
    rows[1]["unknown"] = [NOT_COMPARED.format(why=REFUSED)]
    assert summarize(rows) == "3 VMs: 2 No, 1 Poolhouse; 1 with changes; 1 not compared, -o wide says why"


def test_a_server_that_does_not_answer_is_an_error_also_if_no_vm_is_compared() -> None:
    with pytest.raises(Unreachable):
        Domains.of("http://127.0.0.1:1")


@pytest.mark.libvirt
def test_addresses_that_move_are_listed_with_a_defaulter(libvirt: Libvirt) -> None:
    api: Any = Shop(*ALL)
    asked = []

    def domain(document: Json) -> str:
        asked.append(document["kind"])
        return libvirt.domain(document)

    with defaulter(domain, "7") as url:
        rows, _ = asyncio.run(collect(api, Cluster(None, "ns"), Domains.of(url)))
    moves = {row["name"]: [each for each in row["changes"] if each["field"] == "pciAddress"] for row in rows}
    expected = {"device": "disk root", "field": "pciAddress", "from": "0000:07:00.0", "to": "0000:08:00.0"}
    assert moves["one"][0] == {**expected, "reason": PLACED}
    assert moves["one"] == moves["two"]
    assert moves["old"] == []
    assert sorted(asked) == ["VirtualMachine", "VirtualMachineInstance"]


def test_the_error_names_a_server_that_answers_without_a_domain() -> None:
    api: Any = Shop(*ALL)
    with defaulter(lambda document: "", "7") as url, pytest.raises(Unreachable, match="is not a defaulter"):
        asyncio.run(collect(api, Cluster(None, "ns"), Domains.of(url)))


def domain_with_disk_at(bus: int) -> str:
    """A domain whose disk is on this bus."""
    return f"""<domain type="kvm"><os><type machine="pc-q35-9.2">hvm</type></os><devices>
      <disk type="file" device="disk"><alias name="ua-root"/>
        <address type="pci" domain="0x0000" bus="{bus:#04x}" slot="0x00" function="0x0"/></disk>
    </devices></domain>"""


class Upgraded(Rights):
    """A cluster with two VMs of one shape, one of them with a hardware record, and one that has an instance type."""

    async def pages(self, resource: Any, namespace: str | None = None) -> AsyncIterator[tuple[list[Json], str]]:
        if resource is VMS:
            one, two, sized = (vm(spec(disk(), nic()), name=name) for name in ("one", "two", "sized"))
            location = locate(two)
            editor = DocumentEditor(two)
            editor.fill(location.record, hook.build_record(xml.read(domain_with_disk_at(7)), "1.2.3", "6"))
            sized["spec"]["instancetype"] = {"name": "u1"}
            yield [one, editor.document, sized], "1"


class Refusing(Domains):
    def ask(self, document: Json) -> Json | None:
        return None


SIZED = NOT_COMPARED.format(why="it has an instance type or a preference")
UNRECORDED = NOT_COMPARED.format(why="it has no hardware record, and no --server is given")
NOT_ACCEPTED = NOT_COMPARED.format(why=REFUSED)


@pytest.mark.parametrize(
    ("present", "other", "qemu", "unknown"),
    [
        pytest.param("server", "server", {"one": "7", "two": "7"}, {"sized": SIZED}, id="with the present defaulter"),
        pytest.param("", "server", {"two": "6"}, {"one": UNRECORDED, "sized": SIZED}, id="with hardware records"),
        pytest.param(
            "", "refuses", {}, {"one": UNRECORDED, "two": NOT_ACCEPTED, "sized": SIZED}, id="the other one refuses"
        ),
        pytest.param(
            "refuses",
            "server",
            {},
            {"one": NOT_ACCEPTED, "two": NOT_ACCEPTED, "sized": SIZED},
            id="the present one refuses",
        ),
    ],
)
def test_what_another_defaulter_moves_is_listed(
    present: str, other: str, qemu: dict[str, str], unknown: dict[str, str]
) -> None:
    """`qemu` has the QEMU version that the VMs are compared with."""
    asked = list[str]()

    def newer(document: Json) -> str:
        asked.append(document["metadata"]["name"])
        return domain_with_disk_at(8)

    api: Any = Upgraded(*ALL)
    with defaulter(lambda document: domain_with_disk_at(7), "7") as old, defaulter(newer, "8") as new:
        before = {"server": Domains.of(old), "refuses": Refusing.of(old), "": None}[present]
        after = {"server": Domains.of(new), "refuses": Refusing.of(new)}[other]
        rows, _ = asyncio.run(collect(api, Cluster(None, "ns"), before, after))
    move = {"device": "disk root", "field": "pciAddress", "from": "0000:07:00.0", "to": "0000:08:00.0"}
    assert {row["name"]: row["changes"] for row in rows if row["changes"]} == {
        name: [{**move, "reason": f"libvirt 1.2.3, QEMU 8 instead of libvirt 1.2.3, QEMU {version}"}]
        for name, version in qemu.items()
    }
    compared = {row["name"]: [each for each in row["unknown"] if each.startswith("other versions")] for row in rows}
    assert compared == {name: [unknown[name]] if name in unknown else [] for name in ("one", "two", "sized")}
    assert len(asked) == (1 if qemu else 0), "VMs of one shape are asked about once"
