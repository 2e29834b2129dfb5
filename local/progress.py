"""What becomes of a manifest, shown while it happens; and the pools of a stack at a glance."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kinds import KINDS
from local.binaries import Echo
from local.components import StackError
from runtime.api import Api
from runtime.errors import ApiError, NotFound
from runtime.resource import Resource

Document = dict[str, Any]

POOLS = Resource("kubevirt.io", "v1", "virtualmachinepools", "VirtualMachinePool")
VMS = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine")
VMIS = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
EVERY_SECONDS = 0.5


@dataclass(frozen=True)
class VMLine:
    """One VM as a person sees it."""

    name: str
    state: str
    node: str
    hardware: str

    def __str__(self) -> str:
        return f"{self.name:28}{self.state:20}{self.node:10}{self.hardware}"


class ProgressDisplay:
    """Applies what is not there yet of some manifests, then says each change of their pools' VMs."""

    def __init__(self, documents: Sequence[Document], echo: Echo) -> None:
        self._documents, self._echo = documents, echo

    async def run(self, api: Api) -> None:
        for document in self._documents:
            await self._apply(api, document)
        shown: dict[str, VMLine] = {}
        while True:
            try:
                now = {line.name: line for line in await list_vms(api)}
            except ApiError:
                now = shown  # the API server is being started again; the supervisor says so
            for name, line in now.items():
                if shown.get(name) != line:
                    self._echo(str(line))
            for name in shown.keys() - now.keys():
                self._echo(f"{name:28}gone")
            shown = now
            await asyncio.sleep(EVERY_SECONDS)

    async def _apply(self, api: Api, document: Document) -> None:
        resource = _resource(document)
        assert resource is not None, "read_manifests() lets no other kind pass"
        metadata = document["metadata"]
        namespace = metadata.setdefault("namespace", "default") if resource.namespaced else None
        who = f"{document['kind']} {metadata['name']}"
        try:
            # Not applied again: what people made of it since the last `up` (a scale, an edit) is theirs.
            await api.get(resource, namespace, metadata["name"])
        except NotFound:
            pass
        except ApiError as error:
            raise StackError(f"{who} cannot be read: {error.message}") from error
        else:
            self._echo(f"{who} is there already, and left as it is")
            return
        try:
            await api.create(resource, as_applied(document))
        except ApiError as error:
            raise StackError(f"{who} was refused: {error.message}") from error
        self._echo(f"applied {who}")


def as_applied(document: Document) -> Document:
    """As `kubectl apply` would make it: its next one finds what was written the last time, and doesn't wonder."""
    metadata = {**document["metadata"], "annotations": {**(document["metadata"].get("annotations") or {})}}
    metadata["annotations"][LAST_APPLIED] = json.dumps({**document, "metadata": metadata}, sort_keys=True) + "\n"
    return {**document, "metadata": metadata}


async def list_vms(api: Api) -> list[VMLine]:
    machines, _ = await api.list(VMS)
    instances = {_key(instance): instance for instance in (await api.list(VMIS))[0]}
    return sorted((vm_line(machine, instances.get(_key(machine))) for machine in machines), key=lambda one: one.name)


def vm_line(machine: Document, instance: Document | None) -> VMLine:
    status = (instance or {}).get("status") or {}
    spec = machine.get("spec", {}).get("template", {}).get("spec", {})
    state = (machine.get("status") or {}).get("printableStatus") or "new"
    return VMLine(machine["metadata"]["name"], state, status.get("nodeName") or "-", describe_hardware(spec))


def describe_hardware(spec: dict[str, Any]) -> str:
    """What was decided for a VM, in a few words."""
    domain = spec.get("domain") or {}
    devices = domain.get("devices") or {}
    found = [
        (domain.get("machine") or {}).get("type"),
        *(interface.get("macAddress") for interface in devices.get("interfaces") or []),
        *((disk.get("disk") or {}).get("pciAddress") for disk in devices.get("disks") or []),
    ]
    return " ".join(text for text in found if text) or "hardware undecided"


async def list_pools(kubeconfig: Path) -> list[dict[str, Any]] | None:
    """Every pool with its numbers; None when the API server does not answer."""
    try:
        async with await Api.connect(kubeconfig, user_agent="poolhouse-status", timeout_seconds=5) as api:
            found, _ = await api.list(POOLS)
    except ApiError:
        return None
    return [_summary(pool) for pool in found]


def _summary(pool: Document) -> dict[str, Any]:
    status = pool.get("status") or {}
    return {
        "namespace": pool["metadata"]["namespace"],
        "name": pool["metadata"]["name"],
        "desired": pool.get("spec", {}).get("replicas", 0),
        "current": status.get("replicas", 0),
        "ready": status.get("readyReplicas", 0),
    }


def read_manifests(manifests: Iterable[Path]) -> list[Document]:
    """What the files hold. Raises `Broken` with everything that could not be applied: before a stack is started, which
    takes a while, and not after."""
    found: list[Document] = []
    problems: list[str] = []
    for path in manifests:
        try:
            inside = [document for document in yaml.safe_load_all(path.read_text()) if document]
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{path} cannot be read: {error}")
        except yaml.YAMLError as error:
            problems.append(f"{path} is no YAML: {error}")
        else:
            problems += [f"{path}: {problem}" for document in inside if (problem := _problem(document))]
            found += inside
    if problems:
        raise StackError("\n".join(problems))
    return found


def _problem(document: object) -> str | None:
    if not isinstance(document, dict):
        return "a document in it is no object"
    if _resource(document) is None:
        kind, version = document.get("kind", "without kind"), document.get("apiVersion", "without apiVersion")
        return f"`up --apply` does not know what it holds ({version}, {kind}); use kubectl"
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return f"metadata.name of a {document['kind']} is missing"
    return None


def _resource(document: Document) -> Resource | None:
    """Kinds of ours, and the VM they are made of: this is for examples, kubectl for everything else."""
    api_version, kind = document.get("apiVersion"), document.get("kind")
    for known in KINDS:
        if kind == known.kind and api_version in known.api_versions:
            group, _, version = str(api_version).partition("/")
            return Resource(group, version, known.plural, known.kind, known.namespaced)
    return VMS if kind == VMS.kind else None


def _key(document: Document) -> tuple[str, str]:
    return document["metadata"]["namespace"], document["metadata"]["name"]
