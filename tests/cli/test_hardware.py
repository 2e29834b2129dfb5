"""`poolhouse hardware`: devices, owners of fields, and differences between versions of QEMU."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from defaulter.field_record import DEFAULTED_FIELDS
from defaulter.inventory import NO_FIELD, NOT_LISTED, NOT_SET, NOT_SET_UUID, format_address
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.hardware import (
    DEFAULTER,
    DEVICES,
    OTHER_WEBHOOK,
    RECORDED,
    UNKNOWN,
    VIRT_API,
    VIRT_API_OR_DEFAULTER,
    FieldOwners,
    describe,
    lacks_addresses,
    read_domain,
)
from poolhouse.cli.main import poolhouse
from poolhouse.cli.output import Failed
from tests.defaulter.builders import disk, nic, spec, vm, vmi
from tests.defaulter.conftest import Libvirt, libvirt, recording, user, warm

__all__ = ["libvirt", "recording", "user", "warm"]

CREATED, LATER = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def stored(
    content: Json,
    manager: str = "kubectl-create",
    applied: Json | None = None,
    *,
    generation: int = 1,
    at: str = LATER,
    **fields: Any,
) -> Json:
    """As the API server stores it: lists are owned as a whole."""
    document = vm(content)
    owned = {"f:spec": {"f:template": {"f:spec": {"f:domain": {"f:devices": {"f:disks": {}}, **fields}}}}}
    managed = {"manager": manager, "time": at, "fieldsType": "FieldsV1", "fieldsV1": owned}
    document["metadata"] |= {"creationTimestamp": CREATED, "generation": generation, "managedFields": [managed]}
    if applied is not None:
        text = json.dumps(vm(applied))
        document["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": text}
    return document


PLACED = spec(disk("root", pciAddress="0000:07:00.0"), nic(pciAddress="0000:01:00.0"))
ROOT, NIC = "domain.devices.disks[root].disk.pciAddress", "domain.devices.interfaces[default].pciAddress"


@pytest.mark.parametrize(
    ("document", "field", "author"),
    [
        pytest.param(stored(PLACED), NIC, (DEFAULTER, CREATED), id="what nobody owns was filled at admission"),
        pytest.param(stored(PLACED), ROOT, (UNKNOWN, CREATED), id="inside a list that is kept whole nobody can tell"),
        pytest.param(
            stored(PLACED, applied=spec(disk("root"))),
            ROOT,
            (DEFAULTER, CREATED),
            id="kubectl apply sent no address in such a list",
        ),
        pytest.param(
            stored(PLACED, applied=PLACED), ROOT, ("kubectl-create", CREATED), id="apply sent it, by a known manager"
        ),
        pytest.param(
            stored(PLACED, **{"f:machine": {"f:type": {}}}),
            "domain.machine.type",
            ("kubectl-create", CREATED),
            id="a field of its own has its owner",
        ),
        pytest.param({"metadata": {}}, ROOT, (DEFAULTER, None), id="an object without a history"),
        pytest.param(stored(PLACED, generation=2), NIC, (DEFAULTER, None), id="in a spec that changed it may be new"),
        pytest.param(stored(PLACED, generation=2), ROOT, (UNKNOWN, None), id="a field of its owner may be new"),
        pytest.param(
            stored(PLACED, generation=2, at=CREATED),
            ROOT,
            (UNKNOWN, None),
            id="admission may have written a field since, whoever manages the list",
        ),
        pytest.param(
            stored(PLACED, generation=2, at=CREATED, **{"f:machine": {"f:type": {}}}),
            "domain.machine.type",
            ("kubectl-create", CREATED),
            id="an owner that has changed nothing since wrote it at the creation",
        ),
    ],
)
def test_the_owner_of_a_field(document: Json, field: str, author: tuple[str, str | None]) -> None:
    assert FieldOwners(document).of(field) == author


@pytest.mark.parametrize(
    ("recorded", "applied", "author"),
    [
        pytest.param("0000:07:00.0", None, (DEFAULTER, None), id="a default that an update of the VM brought"),
        pytest.param(None, None, (UNKNOWN, None), id="a value of the guest, or one that a user added"),
        pytest.param(None, PLACED, ("kubectl-create", CREATED), id="an applied value"),
    ],
)
def test_a_value_in_a_list_may_be_newer_than_what_its_manager_wrote(
    recorded: str | None, applied: Json | None, author: tuple[str, str | None]
) -> None:
    document = stored(PLACED, generation=3, at=CREATED, applied=applied)
    record = {ROOT: recorded} if recorded else {}
    document["metadata"].setdefault("annotations", {})[DEFAULTED_FIELDS] = json.dumps(record)
    assert FieldOwners(document).of(ROOT) == author


UUIDS = {"uuid": "63431781-74fa-89c8-8a15-38fcd4aaf6b5", "serial": "5d307ca9-b3ef-428c-8861-06e72d69f223"}
RANDOM = spec(disk("root"), domain={"firmware": UUIDS, "cpu": {"model": "Nehalem"}})
FIRMWARE_ID, SERIAL = "domain.firmware.uuid", "domain.firmware.serial"


@pytest.mark.parametrize(
    ("record", "field", "author"),
    [
        pytest.param(None, FIRMWARE_ID, DEFAULTER, id="a UUID that is derived from the name"),
        pytest.param(None, SERIAL, VIRT_API, id="a random one, which virt-api set first"),
        pytest.param({FIRMWARE_ID: UUIDS["uuid"]}, FIRMWARE_ID, DEFAULTER, id="a default in the record"),
        pytest.param({}, SERIAL, VIRT_API, id="a serial that is not in the record"),
        pytest.param(
            {SERIAL: UUIDS["serial"]}, SERIAL, VIRT_API, id="a random one that the record counts as a default"
        ),
        pytest.param(
            {}, "domain.devices.disks[root].disk.bus", "kubectl-create", id="the field manager of a list item"
        ),
        pytest.param({}, "domain.cpu.model", OTHER_WEBHOOK, id="a field of no client that is not in the record"),
        pytest.param({"domain.cpu.model": "host-model"}, "domain.cpu.model", OTHER_WEBHOOK, id="another value"),
    ],
)
def test_the_owner_of_a_field_of_a_vm_with_a_record(record: Json | None, field: str, author: str) -> None:
    document = stored(RANDOM)
    if record is not None:
        document["metadata"]["annotations"] = {DEFAULTED_FIELDS: json.dumps(record)}
    assert FieldOwners(document).of(field)[0] == author


def test_a_vm_without_a_record_shows_what_its_spec_holds() -> None:
    found = describe(stored(PLACED))
    rows = {row["device"]: (row["kind"], row["place"], row["by"]) for row in found["devices"]}
    assert rows["disk root"] == ("virtio", "0000:07:00.0", UNKNOWN)
    assert rows["nic default"] == ("", "0000:01:00.0", DEFAULTER)
    assert found["record"] is None
    assert "spec.template.spec.domain.machine.type" in found["undecided"]


MAC, OLD_NIC = "02:54:00:12:34:56", {"name": "default", "masquerade": {}, "model": "virtio"}
GUEST = vmi(
    {
        "domain": {
            "machine": {"type": "q35"},
            "firmware": {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"},
            "devices": {"disks": [disk("root"), disk("late")], "interfaces": [OLD_NIC]},
        },
        "volumes": [{"name": "root"}, {"name": "late"}],
    }
)
GUEST["status"] = {
    "machine": {"type": "pc-q35-9.2"},
    "interfaces": [{"name": "default", "mac": MAC, "infoSource": "domain"}],
}
LISTED = {"domain": {"machine": {"type": "q35"}, "devices": {"disks": [disk()], "interfaces": [OLD_NIC]}}}
UNLISTED = {"domain": {"machine": {"type": "q35"}, "devices": {}}, "volumes": [{"name": "root"}]}
VMS = {"lists its devices": {**LISTED, "volumes": [{"name": "root"}]}, "lists none": UNLISTED}


def devices(found: Json) -> dict[str, tuple[str | None, str | None, str | None]]:
    return {row["device"]: (row["place"] or row["unset"], row["guest"], row["by"]) for row in found["devices"]}


@pytest.mark.parametrize("content", VMS.values(), ids=VMS)
@pytest.mark.parametrize("labels", [{}, {"poolhouse.dev/defaulting": "disabled"}], ids=["", "opted out"])
def test_an_older_vm_shows_what_its_guest_has_and_that_nothing_is_set(content: Json, labels: Json) -> None:
    document = stored(content)
    document["metadata"]["labels"] = labels
    found = describe(document, GUEST)
    assert devices(found) == {
        "machine": ("q35", "pc-q35-9.2", VIRT_API),
        "firmware uuid": (NOT_SET_UUID, "5d307ca9-b3ef-428c-8861-06e72d69f223", None),
        "nic default": (NOT_SET, None, None),
        "mac default": (NOT_SET, MAC, None),
        "disk root": (NOT_SET, None, None),
        "disk late": (NOT_LISTED, None, None),
    }
    assert "spec.template.spec.domain.cpu.model" in found["undecided"]


def test_the_page_shows_what_the_command_prints_of_an_older_vm() -> None:
    lines = DEVICES.lines("text", describe(stored(VMS["lists its devices"]), GUEST)["devices"][:5])
    page = (Path(__file__).parents[2] / "docs/hardware.md").read_text()
    assert "\n".join(f"    {line}" for line in lines) in page


def test_without_a_vmi_nothing_is_said_of_the_guest() -> None:
    found = devices(describe(stored(VMS["lists its devices"])))
    assert found["mac default"] == (NOT_SET, None, None)
    assert {guest for _, guest, _ in found.values()} == {None}


def test_addresses_of_the_guest_in_the_vmi_are_shown() -> None:
    """KubeVirt copies the addresses of the spec with which the guest started into the VMI."""
    running = vmi(spec(disk("root", pciAddress="0000:08:00.0"), nic(macAddress=MAC)))
    assert devices(describe(stored(PLACED), running))["disk root"] == ("0000:07:00.0", "0000:08:00.0", UNKNOWN)


def test_addresses_that_were_read_in_the_domain_are_shown() -> None:
    running = vmi(spec(disk("root"), nic()), uid="u")
    running["status"] = {"phase": "Running", **GUEST["status"]}
    assert lacks_addresses(running)
    addresses = {"disk root": "0000:08:00.0", "interface default": "0000:01:00.0"}
    note = json.dumps({"vmi": "u", "addresses": addresses})
    running["metadata"]["annotations"] = {"poolhouse.dev/guest-addresses": note}
    assert not lacks_addresses(running)
    found = devices(describe(stored(VMS["lists its devices"]), running))
    assert (found["disk root"][1], found["nic default"][1]) == ("0000:08:00.0", "0000:01:00.0")


DOMAIN = """<domain type="kvm"><os><type machine="pc-q35-9.2">hvm</type></os><devices>
<controller type="pci" index="0" model="pcie-root"/>
<controller type="scsi" index="0" model="virtio-scsi"><address type="pci" bus="0x05" slot="0x00"/></controller>
<disk type="file" device="disk"><target dev="vda" bus="virtio"/><alias name="ua-root"/>
<address type="pci" domain="0x0000" bus="0x07" slot="0x00" function="0x0"/></disk>
<interface type="ethernet"><model type="virtio"/><alias name="ua-default"/>
<address type="pci" domain="0x0000" bus="0x01" slot="0x00" function="0x0"/></interface>
</devices></domain>"""


@pytest.mark.parametrize("guest", [GUEST, None], ids=["with a VMI", "without one"])
def test_the_domain_shows_the_address_of_each_device(guest: Json | None) -> None:
    record = read_domain(BytesIO(DOMAIN.encode()))
    found = devices(describe(stored(VMS["lists its devices"]), guest, record))
    assert found["machine"] == ("q35", "pc-q35-9.2", VIRT_API)
    assert found["disk root"] == (NOT_SET, "0000:07:00.0", None)
    assert found["nic default"] == (NOT_SET, "0000:01:00.0", None)
    assert found["controller scsi 0"] == (NO_FIELD, "0000:05:00.0", None)


@pytest.mark.parametrize("text", ["", "<html/>", "<domain/>", "no XML", "\x00"])
def test_a_file_without_a_domain_is_refused(text: str) -> None:
    with pytest.raises(Failed, match="--domain"):
        read_domain(BytesIO(text.encode()))


@pytest.mark.parametrize(
    ("machine", "author"),
    [("q35", VIRT_API), ("pc", VIRT_API), ("virt", VIRT_API), ("pc-q35-9.2", VIRT_API_OR_DEFAULTER)],
)
def test_the_machine_type_of_a_vm_without_a_record(machine: str, author: str) -> None:
    """virt-api sets the machine type of every VM, and Poolhouse never an alias."""
    document = stored(spec(disk("root"), domain={"machine": {"type": machine}}))
    assert FieldOwners(document).of("domain.machine.type")[0] == author


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ({"type": "pci", "domain": "0x0000", "bus": "0x1f", "slot": "0x02", "function": "0x1"}, "0000:1f:02.1"),
        (
            {"type": "drive", "controller": "0", "bus": "0", "target": "0", "unit": "3"},
            "drive controller 0, bus 0, unit 3",
        ),
        ({"type": "usb", "bus": "0", "port": "1"}, "usb bus 0, port 1"),
        ({"type": "pci", "bus": "zz"}, "pci bus zz"),
        ({}, ""),
    ],
)
def test_places(address: dict[str, str], shown: str) -> None:
    assert format_address(address) == shown


@contextmanager
def defaulter(domain: Callable[[Json], str], qemu: str) -> Iterator[str]:
    """A defaulter's two answers that a comparison needs."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(json.dumps({"libvirt": "1.2.3", "qemu": {"amd64": qemu}}))

        def do_POST(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._send(domain(document))

        def _send(self, text: str) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def diff(tmp_path: Path, document: Json, *options: str) -> Result:
    """Of a manifest, which wants no cluster."""
    file = tmp_path / "vm.yaml"
    file.write_text(yaml.safe_dump(document))
    nowhere = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    return CliRunner(env=nowhere).invoke(poolhouse, ["hardware", "diff", "-f", str(file), *options])


RICH = spec(disk("root"), nic(), domain={"devices": {"rng": {}, "watchdog": {"name": "dog"}}})


@pytest.mark.libvirt
def test_a_recorded_vm_shows_every_device(recording: Libvirt) -> None:
    document = recording.default(vm(RICH)).object
    found = describe(document)
    rows = {row["device"]: row for row in found["devices"]}
    assert rows["disk root"]["place"] == "0000:08:00.0"
    assert rows["controller scsi 0"]["by"] == RECORDED
    assert next(row for name, row in rows.items() if name.startswith("memballoon"))["place"]
    assert found["record"]["machine"].startswith("pc-q35-")
    assert len(rows) == len(found["devices"]), "no device twice"
    assert found["undecided"] == []


@pytest.mark.libvirt
def test_equal_defaulters_give_equal_addresses(libvirt: Libvirt, tmp_path: Path) -> None:
    with defaulter(libvirt.domain, "7") as one, defaulter(libvirt.domain, "8") as other:
        result = diff(tmp_path, vm(RICH), "--server", one, "--against", other)
    assert result.exit_code == 0, result.output
    assert result.output == "No address changes from libvirt 1.2.3, QEMU 7 to libvirt 1.2.3, QEMU 8.\n"


def roomier(libvirt: Libvirt) -> Callable[[Json], str]:
    """What a version did that kept more room for NICs."""

    def domain(document: Json) -> str:
        annotations = {"kubevirt.io/pci-interface-slot-count": "6"}
        template = {**document["spec"]["template"], "metadata": {"annotations": annotations}}
        return libvirt.domain({**document, "spec": {**document["spec"], "template": template}})

    return domain


@pytest.mark.libvirt
def test_changed_addresses_are_listed_by_device(libvirt: Libvirt, tmp_path: Path) -> None:
    with defaulter(libvirt.domain, "7") as one, defaulter(roomier(libvirt), "8") as other:
        describe_ = diff(tmp_path, vm(RICH), "--server", one, "--against", other, "-o", "json")
        assert describe_.exit_code == 1, describe_.output
        moved = {row["device"]: (row["before"], row["after"]) for row in json.loads(describe_.output)["differences"]}
        assert moved["disk root"] == ("0000:08:00.0", "0000:0a:00.0")
        assert "interface default" not in moved
        printed = diff(tmp_path, vm(RICH), "--server", one, "--against", other)
    assert "disk root" in printed.output
    assert "QEMU 8" in printed.output.splitlines()[0]


@pytest.mark.libvirt
def test_the_record_is_compared_with_another_version_s_own_choice(
    recording: Libvirt, libvirt: Libvirt, tmp_path: Path
) -> None:
    document = recording.default(vm(RICH)).object
    with defaulter(roomier(libvirt), "8") as other, defaulter(libvirt.domain, "7") as same:
        assert diff(tmp_path, document, "--against", same).exit_code == 0
        moved = diff(tmp_path, document, "--against", other)
    assert moved.exit_code == 1
    assert "disk root" not in moved.output, "a spec holds it"
    assert "memballoon" in moved.output


@pytest.mark.libvirt
def test_a_vm_that_opted_out_is_compared_too(libvirt: Libvirt, tmp_path: Path) -> None:
    document = vm(RICH)
    document["metadata"]["labels"] = {"poolhouse.dev/defaulting": "disabled", "app": "web"}
    with defaulter(libvirt.domain, "7") as one, defaulter(roomier(libvirt), "8") as other:
        result = diff(tmp_path, document, "--server", one, "--against", other)
    assert result.exit_code == 1
    assert "disk root" in result.output


@pytest.mark.parametrize("answer", ["", "<html>", "<html></html>", "<domain/>", "{}", "it works!"])
def test_a_server_that_answers_without_a_domain_is_not_a_defaulter(tmp_path: Path, answer: str) -> None:
    with defaulter(lambda _: answer, "7") as other:
        result = diff(tmp_path, vm(RICH), "--server", other, "--against", other)
        assert result.exit_code == 3, result.output
        assert f"{other} is not a defaulter" in result.output
        file = str(tmp_path / "vm.yaml")
        completed = CliRunner().invoke(poolhouse, ["default", "-f", file, "--server", other])
        assert completed.exit_code == 3, completed.output
        assert f"{other} is not a defaulter" in completed.output


def test_without_a_record_the_other_side_must_be_named(tmp_path: Path) -> None:
    result = diff(tmp_path, vm(RICH), "--against", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "the VM has no record of its hardware; give the present defaulter with --server" in result.output
    assert "Usage" not in result.output


def test_a_defaulter_that_is_away_is_unreachable(tmp_path: Path) -> None:
    result = diff(tmp_path, vm(RICH), "--server", "http://127.0.0.1:9", "--against", "http://127.0.0.1:9")
    assert result.exit_code == 3
