"""`poolhouse hardware`: which devices a VM has, where, and who said so; and what another QEMU would make of it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from apimachinery.unstructured import at
from cli.cluster import Cluster, cluster_options, cluster_options_without
from cli.manifests import read_manifests
from cli.output import Failed, Unreachable, is_structured, output_option, print_structured
from cli.resource_names import VM, complete_names
from cli.table import Listing, align_columns, field

if TYPE_CHECKING:
    from defaulter.inventory import Difference

Json = dict[str, Any]

LIBVIRT = "libvirt, by Poolhouse"
UNKNOWN = "the author or Poolhouse"
RECORDED = "libvirt, recorded by Poolhouse"

DEVICES = Listing(
    (
        field("DEVICE", "device"),
        field("KIND", "kind"),
        field("PLACE OR VALUE", "place"),
        field("DECIDED BY", "by"),
        field("SINCE", "since"),
        field("FIELD", "field", wide=True),
    )
)


class _OrShow(click.Group):
    """`hardware NAME` is `hardware show NAME`; a VM of the name of a command is shown by the long form."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        first = next((arg for arg in args if not arg.startswith("-")), None)
        if first is not None and first not in self.commands and "--help" not in args:
            args = ["show", *args]
        return super().parse_args(context, args)


@click.group(cls=_OrShow)
def hardware() -> None:
    """Print a VM's devices: what, where, decided by whom and since when.

    `hardware VM` is short for `hardware show VM`.
    """


@hardware.command()
@click.argument("vm", type=VM, shell_complete=complete_names("virtualmachines"))
@DEVICES.option
@cluster_options
def show(cluster: Cluster, vm: str, output: str) -> None:
    """Print a VM's devices: what, where, decided by whom, and since when where that is known."""
    found = told(_document(cluster, vm))
    DEVICES.show(output, found["devices"], nothing=f"nothing of the hardware of {vm} is written down", whole=found)
    if is_structured(output):
        return
    if found["record"] is None:
        click.echo("No record: the places of all other devices are libvirt's choice at each start.")
    else:
        record = found["record"]
        click.echo(f"Recorded with libvirt {record['libvirt']} and QEMU {record['qemu']}, machine {record['machine']}.")
    for path in found["undecided"]:
        click.echo(f"undecided: {path}")


@hardware.command()
@click.argument("vm", type=VM, required=False, shell_complete=complete_names("virtualmachines"))
@click.option("-f", "--filename", "source", type=click.File("rb"), help="A manifest instead of a VM of the cluster.")
@click.option("--server", metavar="URL", help="The defaulter of today; without it, what the VM's record says.")
@click.option("--against", metavar="URL", required=True, help="The defaulter with the other libvirt and QEMU.")
@output_option("text")
@cluster_options_without("source")
def diff(cluster: Cluster | None, vm: str | None, source: Any, server: str | None, against: str, output: str) -> None:
    """Say what another libvirt and QEMU would move, device by device. Exits with 1 when something moves.

    The VM is asked about as it stands, without its record: so this is what happens where nothing gives recorded places
    back at a start.
    """
    from defaulter.inventory import differences

    if (vm is None) == (source is None):
        raise click.UsageError("name a VM or give a manifest, one of the two")
    document = _manifest(source) if cluster is None else _document(cluster, str(vm))
    before = _asked(server.rstrip("/"), document) if server is not None else _recorded(document)
    after = _asked(against.rstrip("/"), document)
    found = differences(before, after)
    sides = {"before": before, "after": after}
    versions = {side: {name: record[name] for name in ("libvirt", "qemu")} for side, record in sides.items()}
    if is_structured(output):
        rows = [{"device": d.device, "before": d.before, "after": d.after} for d in found]
        print_structured(output, {**versions, "differences": rows})
    else:
        labels = [f"libvirt {v['libvirt']}, QEMU {v['qemu']}" for v in versions.values()]
        for line in _moves(found, *labels):
            click.echo(line)
    if found:
        raise click.exceptions.Exit(1)


def told(document: Json) -> Json:
    """All that is known of a stored VM's hardware."""
    from defaulter import hook
    from defaulter.contract import HARDWARE_ANNOTATION, undefaulted_fields
    from defaulter.inventory import add_recorded_addresses, devices_of_spec
    from defaulter.vm_paths import locate

    where = locate(document)
    if where is None:
        raise Failed(f"a {document.get('kind')} has no hardware")
    text = at(document, *where.record)
    devices = devices_of_spec(document)
    try:
        record = hook.read_record(str(text)) if text is not None else None
    except hook.InvalidHardwareRecord as error:
        raise Failed(f"{HARDWARE_ANNOTATION}: {error}") from None
    authors = Authors(document)
    rows = []
    for device in add_recorded_addresses(devices, record) if record is not None else devices:
        by, since = authors.of(device.field) if device.field else (RECORDED if record else UNKNOWN, authors.since())
        said = {"device": device.name, "kind": device.kind, "place": device.address, "field": device.field or None}
        rows.append({**said, "by": by, "since": since})
    named = {key: record[key] for key in ("libvirt", "qemu", "machine")} if record is not None else None
    return {
        "vm": document["metadata"].get("name"),
        "namespace": document["metadata"].get("namespace"),
        "devices": rows,
        "record": named,
        "undecided": undefaulted_fields(document),
    }


class Authors:
    """Who wrote a field, as far as the object itself tells.

    The API server notes who owns a field before webhooks change the object, so what they fill is owned by nobody. But
    it keeps lists as a whole; inside them, what `kubectl apply` sent says more. Where neither tells, nor do we.

    Since when is known of what is as it was created: of all of a spec that never changed, and of what somebody wrote
    who has changed nothing since. A later time would be that of any change of his, of a label or a run strategy.
    """

    def __init__(self, document: Json) -> None:
        metadata = document["metadata"]
        self._created = metadata.get("creationTimestamp")
        self._unchanged = metadata.get("generation") == 1
        self._owned = [
            (str(entry.get("manager")), entry.get("time"), entry.get("fieldsV1") or {})
            for entry in metadata.get("managedFields") or ()
            if not entry.get("subresource")
        ]
        self._applied = _applied(metadata.get("annotations") or {})

    def of(self, field: str) -> tuple[str, str | None]:
        """Of a field, as `decided` names it: who, and since when, where that is known."""
        steps = ["spec", "template", "spec", *field.partition("[")[0].split(".")]
        in_list = "[" in field
        for manager, time, fields in self._owned:
            if _owns(fields, steps):
                if self._applied is not None:
                    return (manager if field in self._applied else LIBVIRT), self.since(time)
                return (UNKNOWN if in_list else manager), self.since(time)
        if self._applied is not None and field in self._applied:
            return "kubectl apply", self.since()
        return LIBVIRT, self.since()

    def since(self, time: str | None = None) -> str | None:
        """`time` is when the field's owner last changed anything."""
        return self._created if self._unchanged or (time is not None and time == self._created) else None


def _applied(annotations: Json) -> set[str] | None:
    from defaulter.contract import defaulted_fields

    try:
        return set(defaulted_fields(json.loads(annotations["kubectl.kubernetes.io/last-applied-configuration"])))
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _owns(fields: Json, steps: list[str]) -> bool:
    for step in steps:
        if f"f:{step}" not in fields:
            return False
        fields = fields[f"f:{step}"] or {}
    return True


def _document(cluster: Cluster, vm: str) -> Json:
    from cli.pools import get_vm

    return cluster.run(lambda api: get_vm(api, cluster, vm))


def _manifest(source: Any) -> Json:
    from defaulter.vm_paths import locate

    found = [each.document for each in read_manifests(source) if locate(each.document) is not None]
    if len(found) != 1:
        raise Failed(f"the manifest has {len(found)} VMs in it; give one")
    return found[0]


def _recorded(document: Json) -> Json:
    from defaulter import hook
    from defaulter.vm_paths import locate

    where = locate(document)
    text = at(document, *where.record) if where is not None else None
    if text is None:
        raise click.UsageError("the VM has no record; give --server, a defaulter of what runs today")
    try:
        return hook.read_record(str(text))
    except hook.InvalidHardwareRecord as error:
        raise Failed(str(error)) from None


def _asked(server: str, document: Json) -> Json:
    """The record of the domain that a defaulter would have for it now."""
    from defaulter import hook, xml

    version = _fetched(f"{server}/version", None)
    domain = _fetched(f"{server}/apis/vms/defaults", json.dumps(_undecided(document)).encode())
    try:
        said = json.loads(version)
        return hook.read_record(
            hook.build_record(xml.read(domain.decode()), said["libvirt"], next(iter(said["qemu"].values()), ""))
        )
    except (ValueError, LookupError, TypeError, AttributeError, SyntaxError):
        raise Unreachable(f"{server} is no defaulter: it answered with something else than a domain") from None


def _undecided(document: Json) -> Json:
    """Without its record, which would hold it where it is, and without its wish to be left alone."""
    from defaulter.json_paths import DocumentEditor
    from defaulter.vm_paths import OPT_OUT, locate

    where = locate(document)
    draft = DocumentEditor(document)
    for place in (where.record if where is not None else (), ("metadata", "labels", OPT_OUT)):
        if place and at(document, *place) is not None:
            draft.replace(place[:-1], {k: v for k, v in at(document, *place[:-1]).items() if k != place[-1]})
    return draft.document


def _fetched(url: str, body: bytes | None) -> bytes:
    headers = {"Content-Type": "application/json", "Accept": "application/xml"} if body is not None else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=15) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        raise (Failed if error.code < 500 else Unreachable)(f"{url}: {error.read().decode(errors='replace')}") from None
    except (OSError, ValueError) as error:
        raise Unreachable(f"{url} does not answer: {getattr(error, 'reason', error)}") from None


def _moves(found: list[Difference], before: str, after: str) -> Iterator[str]:
    if not found:
        yield f"Nothing moves from {before} to {after}."
        return
    yield from align_columns([("DEVICE", before, after), *((d.device, d.before or "-", d.after or "-") for d in found)])
