"""`poolhouse hardware fleet` within the rights of the user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from defaulter.fleet import PLACED, Guest, report
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.fleet import NO_VMIS, VMS_LISTING, Domains, collect, summarize
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
    assert found is not None
    lines = VMS_LISTING.lines("text", [found.as_json()])
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
    rows = [{"defaulted": each, "changes": changes} for each, changes in (("No", [1]), ("Poolhouse", []), ("No", []))]
    assert summarize(rows) == "3 VMs: 2 No, 1 Poolhouse; 1 with changes"


@pytest.mark.libvirt
def test_addresses_that_move_are_listed_with_a_defaulter(libvirt: Libvirt) -> None:
    api: Any = Shop(*ALL)
    asked = []

    def domain(document: Json) -> str:
        asked.append(document["kind"])
        return libvirt.domain(document)

    with defaulter(domain, "7") as url:
        rows, _ = asyncio.run(collect(api, Cluster(None, "ns"), Domains(url)))
    moves = {row["name"]: [each for each in row["changes"] if each["field"] == "pciAddress"] for row in rows}
    expected = {"device": "disk root", "field": "pciAddress", "from": "0000:07:00.0", "to": "0000:08:00.0"}
    assert moves["one"][0] == {**expected, "reason": PLACED}
    assert moves["one"] == moves["two"]
    assert moves["old"] == []
    assert sorted(asked) == ["VirtualMachine", "VirtualMachineInstance"]


def test_the_error_names_a_server_that_answers_without_a_domain() -> None:
    api: Any = Shop(*ALL)
    with defaulter(lambda document: "", "7") as url, pytest.raises(Unreachable, match="is not a defaulter"):
        asyncio.run(collect(api, Cluster(None, "ns"), Domains(url)))
