"""Implements `poolhouse hardware`, which shows and compares the devices and addresses of a VM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.cli.cluster import Cluster, cluster_options, cluster_options_without
from poolhouse.cli.command_group import DefaultCommandGroup
from poolhouse.cli.domains import read_version, recorded, request_record
from poolhouse.cli.fleet import fleet
from poolhouse.cli.manifests import read_manifests
from poolhouse.cli.output import (
    Column,
    Failed,
    Listing,
    align_columns,
    echo,
    field,
    is_structured,
    output_option,
    print_structured,
)
from poolhouse.cli.parameters import VM

if TYPE_CHECKING:
    from defaulter.inventory import Difference
    from poolhouse.runtime.api import Api


DEFAULTER = "defaulter"
VIRT_API = "virt-api"
VIRT_API_OR_DEFAULTER = "virt-api or defaulter"
OTHER_WEBHOOK = "another webhook"
UNKNOWN = "user or defaulter"
RECORDED = "libvirt (recorded)"

DEVICES = Listing(
    (
        field("DEVICE", "device"),
        field("KIND", "kind"),
        Column("ADDRESS OR VALUE", lambda row: row["place"] or row["unset"]),
        field("GUEST", "guest"),
        field("SET BY", "by"),
        field("SINCE", "since"),
        field("FIELD", "field", wide=True),
    )
)


@click.group(cls=DefaultCommandGroup, default="show")
def hardware() -> None:
    """Print the devices of a VM, their addresses, and the origin of the addresses.

    `hardware VM` is short for `hardware show VM`.
    """


hardware.add_command(fleet)


@hardware.command()
@click.argument("vm", type=VM)
@click.option("--domain", type=click.File("rb"), help="Domain XML of the running guest, - for stdin.")
@DEVICES.option
@cluster_options
def show(cluster: Cluster, vm: str, domain: Any, output: str) -> None:
    """Print the devices of a VM and their addresses, with the client that set each address and the time if known.

    GUEST is the address or value of the running guest, as far as the VMI shows it. For all addresses, give the XML of
    its domain: `kubectl exec POD -- virsh dumpxml 1 | poolhouse hardware VM --domain -`.
    """
    document, vmi, note = cluster.run(lambda api: _read(api, cluster, vm))
    found = describe(document, vmi, read_domain(domain) if domain is not None else None)
    DEVICES.show(output, found["devices"], nothing=f"the spec of {vm} sets no hardware", whole=found)
    if is_structured(output):
        return
    if found["record"] is None:
        echo("No record: libvirt chooses the addresses of all other devices at each start.")
    else:
        record = found["record"]
        echo(f"Recorded with libvirt {record['libvirt']} and QEMU {record['qemu']}, machine {record['machine']}.")
    if note is None and domain is None and lacks_addresses(vmi):
        note = "The VMI does not show all PCI addresses. With controllers.readDomains of the chart, it does."
    if note is not None:
        echo(note)
    for path in found["undecided"]:
        echo(f"not set: {path}")


async def _read(api: Api, cluster: Cluster, vm: str) -> tuple[Json, Json | None, str | None]:
    """Returns the VM, its VMI, and a sentence if there is none."""
    from poolhouse.cli.pools import get_vm
    from poolhouse.runtime.errors import Forbidden, NotFound
    from poolhouse.runtime.resource import VMIS

    document = await get_vm(api, cluster, vm)
    try:
        return document, await api.get(VMIS, cluster.namespace, vm), None
    except NotFound:
        return document, None, "No VMI: the VM does not run, so the hardware of its guest is not known."
    except Forbidden:
        return document, None, "You may not get the VMI, so the hardware of the guest is not known."


def lacks_addresses(vmi: Json | None) -> bool:
    """Whether the running guest has PCI addresses that its VMI does not show, and that the controllers could read."""
    from defaulter.contract import needed_reading

    return vmi is not None and needed_reading(vmi) == "read"


def read_domain(source: Any) -> Json:
    """Returns the addresses in a domain, in the form of a hardware record."""
    from defaulter import running_guest

    try:
        return running_guest.read_domain(source.read().decode())
    except ValueError:
        raise Failed("--domain: it is no domain XML, as `virsh dumpxml` prints it") from None


@hardware.command()
@click.argument("vm", type=VM, required=False)
@click.option("-f", "--filename", "source", type=click.File("rb"), help="Manifest, instead of a VM of the cluster.")
@click.option("--server", metavar="URL", help="URL of the present defaulter. Default: the VM's record.")
@click.option("--against", metavar="URL", required=True, help="URL of a defaulter with another libvirt and QEMU.")
@output_option("text")
@cluster_options_without("source")
def diff(cluster: Cluster | None, vm: str | None, source: Any, server: str | None, against: str, output: str) -> None:
    """List the devices whose address changes with another libvirt and QEMU. Exits with 1 if an address changes.

    The comparison ignores the VM's record. The result is therefore that of a cluster where no hook restores recorded
    addresses.
    """
    from defaulter.inventory import differences

    if (vm is None) == (source is None):
        raise click.UsageError("give a VM or -f FILE, not both")
    document = _manifest(source) if cluster is None else _document(cluster, str(vm))
    before = _requested(server, document) if server is not None else _recorded(document)
    after = _requested(against, document)
    found = differences(before, after)
    sides = {"before": before, "after": after}
    versions = {side: {name: record[name] for name in ("libvirt", "qemu")} for side, record in sides.items()}
    if is_structured(output):
        rows = [{"device": d.device, "before": d.before, "after": d.after} for d in found]
        print_structured(output, {**versions, "differences": rows})
    else:
        labels = [f"libvirt {v['libvirt']}, QEMU {v['qemu']}" for v in versions.values()]
        for line in _diff_lines(found, *labels):
            echo(line)
    if found:
        raise click.exceptions.Exit(1)


def describe(document: Json, vmi: Json | None = None, domain: Json | None = None) -> Json:
    """Returns the hardware of a stored VM, from its spec and its hardware record, and that of its running guest, from
    its VMI and the record of its domain."""
    from defaulter import hook
    from defaulter.contract import HARDWARE_ANNOTATION, undefaulted_fields
    from defaulter.fleet import without_opt_out
    from defaulter.inventory import (
        add_domain,
        add_recorded_addresses,
        devices_of_guest,
        devices_of_spec,
        with_guest,
        without_addresses,
    )
    from defaulter.vm_paths import locate

    where = locate(document)
    if where is None:
        raise Failed(f"a {document.get('kind')} has no hardware")
    text = at(document, *where.record)
    devices, guest = devices_of_spec(document), devices_of_guest(vmi) if vmi is not None else []
    try:
        record = hook.read_record(str(text)) if text is not None else None
    except hook.InvalidHardwareRecord as error:
        raise Failed(f"{HARDWARE_ANNOTATION}: {error}") from None
    guest = add_domain(guest or without_addresses(devices), domain) if domain is not None else guest
    devices = add_recorded_addresses(devices, record) if record is not None else devices
    owners = FieldOwners(document)
    rows = []
    for device, had in with_guest(devices, guest, document):
        by, since = owners.of(device.field) if device.field else (RECORDED if record else UNKNOWN, owners.since())
        if device.unset is not None:
            by, since = None, None
        row = {"device": device.name, "kind": device.kind, "place": device.address, "field": device.field or None}
        rows.append({**row, "unset": device.unset, "guest": had, "by": by, "since": since})
    named = {key: record[key] for key in ("libvirt", "qemu", "machine")} if record is not None else None
    return {
        "vm": document["metadata"].get("name"),
        "namespace": document["metadata"].get("namespace"),
        "devices": rows,
        "record": named,
        "undecided": undefaulted_fields(without_opt_out(document)),
    }


class FieldOwners:
    """Finds the client that set a field of a VM, from the record of defaulted fields and `managedFields`.

    A VM that was last changed before Poolhouse kept the record has none. Then a field without a manager was set at
    admission, and the last applied configuration shows who set a field inside a list. KubeVirt's virt-api sets firmware
    UUIDs too; the UUID's version shows which of the two did. It also sets the machine type of each VM. Poolhouse never
    writes an alias such as q35.

    `managedFields` has only the time of a manager's last change of any field. The time of a field is therefore known
    only if the manager has changed no field since the VM's creation.
    """

    def __init__(self, document: Json) -> None:
        from defaulter.field_record import Evidence, flatten, read_record
        from defaulter.vm_paths import locate

        metadata = document["metadata"]
        self._created = metadata.get("creationTimestamp")
        self._unchanged = metadata.get("generation") == 1
        self._evidence = Evidence(document)
        location = locate(document)
        self._record = read_record(document, location) if location is not None else None
        self._values = flatten(at(document, *location.spec)) if location is not None else {}

    def of(self, field: str) -> tuple[str | None, str | None]:
        """Returns the client that set the field at this path, and the time if known."""
        managers = self._evidence.managers(field)
        author = self._author(field, [str(each.get("manager")) for each in managers])
        is_manager = bool(managers) and author == managers[0].get("manager")
        return author, self.since(managers[0].get("time") if is_manager else None)

    def _author(self, field: str, managers: list[str]) -> str:
        applied = self._evidence.applied
        if self._record is not None:
            if field in self._record:
                return VIRT_API if self._is_random_id(field) else DEFAULTER
            if "[" in field and managers and not self._unchanged and (applied is None or field not in applied):
                return UNKNOWN  # a list has one manager, and a VM that stops gets values of its guest
            return managers[0] if managers else self._at_admission(field)
        if applied is not None and field in applied:
            return managers[0] if managers else "kubectl apply"
        if not managers or applied is not None:
            return self._at_admission(field)
        return UNKNOWN if "[" in field else managers[0]

    def _is_random_id(self, field: str) -> bool:
        """Whether the field is a UUID or serial that virt-api chose. Poolhouse derives those that it writes."""
        return field.startswith("domain.firmware.") and _version(str(self._values.get(field))) == _RANDOM

    def _at_admission(self, field: str) -> str:
        from defaulter.machine_types import is_canonical

        value = str(self._values.get(field))
        if field.startswith("domain.firmware."):
            return DEFAULTER if _version(value) == _DERIVED else VIRT_API
        if field == "domain.machine.type" and self._record is None:
            return VIRT_API_OR_DEFAULTER if is_canonical(value) else VIRT_API
        return DEFAULTER if self._record is None else OTHER_WEBHOOK

    def since(self, time: str | None = None) -> str | None:
        """Returns the time of a field, if known. `time` is the manager's last change of any field."""
        return self._created if self._unchanged or (time is not None and time == self._created) else None


_DERIVED, _RANDOM = 8, 4
"""versions of the UUIDs that Poolhouse derives from names, and of those that virt-api chooses"""


def _version(uuid: str) -> int | None:
    try:
        return UUID(uuid).version
    except ValueError:
        return None


def _document(cluster: Cluster, vm: str) -> Json:
    from poolhouse.cli.pools import get_vm

    return cluster.run(lambda api: get_vm(api, cluster, vm))


def _manifest(source: Any) -> Json:
    from defaulter.vm_paths import locate

    found = [each.document for each in read_manifests(source) if locate(each.document) is not None]
    if len(found) != 1:
        raise Failed(f"the manifest must contain one VM, not {len(found)}")
    return found[0]


def _requested(server: str, document: Json) -> Json:
    url = server.rstrip("/")
    return request_record(url, read_version(url), document)


def _recorded(document: Json) -> Json:
    found = recorded(document)
    if found is None:
        raise Failed("the VM has no record of its hardware; give the present defaulter with --server")
    return found


def _diff_lines(found: list[Difference], before: str, after: str) -> Iterator[str]:
    if not found:
        yield f"No address changes from {before} to {after}."
        return
    yield from align_columns([("DEVICE", before, after), *((d.device, d.before or "-", d.after or "-") for d in found)])
