"""Shows what becomes of a manifest's pools: a line whenever something about one of their VMs changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from kinds import by_gvk
from runtime.api import Api, ApiError, Resource

Json = dict[str, Any]

MACHINES = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine")
LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Glance:
    """What a person wants to know of a VM."""

    state: str
    hardware: str

    def __str__(self) -> str:
        return f"{self.state:<20} {self.hardware}"


def apply_and_show(manifest: Path) -> Callable[[Api], Awaitable[None]]:
    """For `up`: applies the manifest, then watches its pools until it is cancelled."""
    documents = [d for d in yaml.safe_load_all(manifest.read_text()) if d]

    async def show(api: Api) -> None:
        pools = [await _apply(api, document) for document in documents]
        seen: dict[str, Glance] = {}
        announced = False
        while True:
            found = await _look(api, {p for p in pools if p is not None})
            for name, glance in sorted(found.items()):
                if seen.get(name) != glance:
                    click.echo(f"  {name:<24} {glance}")
            for name in sorted(seen.keys() - found.keys()):
                click.echo(f"  {name:<24} gone")
            seen = found
            if not announced and found and all(g.state == "Running" for g in found.values()):
                announced = True
                click.echo("All VMs run. In another terminal: kubectl get vmpool,vm,vmi. Ctrl-C ends it all.")
            await asyncio.sleep(LOOK_SECONDS)

    return show


async def _apply(api: Api, document: Json) -> tuple[str, str] | None:
    """The UID of a pool, None for anything else."""
    kind = by_gvk(document.get("apiVersion", ""), document.get("kind", ""))
    if kind is None:
        raise click.ClickException(f"{document.get('kind')} is no kind of Poolhouse's: apply it with kubectl")
    metadata = document["metadata"]
    namespace = metadata.setdefault("namespace", "default") if kind.namespaced else None
    resource = Resource(kind.group, kind.versions[0], kind.plural, kind.kind, kind.namespaced)
    stored = await api.patch(
        resource, namespace, metadata["name"], document, kind="apply", field_manager="poolhouse-up", force=True
    )
    click.echo(f"applied {kind.kind} {metadata['name']}")
    return (namespace or "", stored["metadata"]["uid"]) if kind.plural == "virtualmachinepools" else None


async def _look(api: Api, pools: set[tuple[str, str]]) -> dict[str, Glance]:
    found = {}
    owners = {uid for _, uid in pools}
    for namespace in sorted({namespace for namespace, _ in pools}):
        try:
            machines, _ = await api.list(MACHINES, namespace)
        except ApiError:  # it is being restarted: the next look shows more
            continue
        for machine in machines:
            metadata = machine["metadata"]
            if owners & {owner["uid"] for owner in metadata.get("ownerReferences") or ()}:
                found[metadata["name"]] = _glance(machine)
    return found


def _glance(machine: Json) -> Glance:
    domain = machine["spec"]["template"]["spec"].get("domain") or {}
    devices = domain.get("devices") or {}
    hardware = [(domain.get("machine") or {}).get("type") or "hardware not decided yet"]
    hardware += [f"{d['name']} {d['disk']['pciAddress']}" for d in devices.get("disks") or () if _at(d, "pciAddress")]
    hardware += [
        " ".join([i["name"], i["macAddress"], i.get("pciAddress") or ""]).strip()
        for i in devices.get("interfaces") or ()
        if i.get("macAddress")
    ]
    return Glance((machine.get("status") or {}).get("printableStatus") or "created", "  ".join(hardware))


def _at(disk: Json, field: str) -> Any:
    return (disk.get("disk") or {}).get(field)
