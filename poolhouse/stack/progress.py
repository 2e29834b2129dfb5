"""Creates objects and shows the progress of VMs for `up --apply`. Lists pools for `status`."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from poolhouse.api.apimachinery.merge_patch import with_last_applied
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.apimachinery.yaml_reader import InvalidYAML, load_all
from poolhouse.api.kinds import KINDS
from poolhouse.api.kinds.pool import POOL
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound, Throttled, Unavailable, Unreachable, WebhookFailed
from poolhouse.runtime.resource import VMIS, VMS, Resource
from poolhouse.stack.components import Echo, StackError

POOLS = Resource.of(POOL)
INTERVAL_SECONDS = 0.5
NO_ANSWER = (Throttled, Unavailable, Unreachable, WebhookFailed)


class ProgressDisplay:
    """Creates the objects of manifests that do not exist yet, then prints each change of a VM."""

    def __init__(self, documents: Sequence[Json], echo: Echo) -> None:
        self._documents, self._echo = documents, echo

    async def run(self, api: Api) -> None:
        for document in self._documents:
            await self._apply(api, document)
        shown: dict[str, str] = {}
        while True:
            try:
                now = await vm_lines(api)
            except ApiError:
                now = shown  # The API server is restarting; the supervisor reports that.
            for name, line in now.items():
                if shown.get(name) != line:
                    self._echo(line)
            for name in shown.keys() - now.keys():
                self._echo(f"{name:28}deleted")
            shown = now
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _apply(self, api: Api, document: Json) -> None:
        """Tries again while the API server or the webhook does not answer, because the supervisor restarts them."""
        what, said = f"{document['kind']} {document['metadata']['name']}", ""
        while True:
            try:
                created = await _created(api, document)
            except NO_ANSWER as error:
                if said != error.message:
                    said = error.message
                    self._echo(f"{what} is applied again until there is an answer: {said}")
            except ApiError as error:
                raise StackError(f"{what} was refused: {error.message}") from error
            else:
                return self._echo(f"applied {what}" if created else f"{what} exists already and is not changed")
            await asyncio.sleep(INTERVAL_SECONDS)


async def _created(api: Api, document: Json) -> bool:
    """Creates the object. Returns False if it exists: a user may have changed it since the last `up`."""
    resource = _resource(document)
    assert resource is not None, "read_manifests() refuses other kinds"
    metadata = document["metadata"]
    namespace = metadata.setdefault("namespace", "default") if resource.namespaced else None
    try:
        await api.get(resource, namespace, metadata["name"])
    except NotFound:
        await api.create(resource, with_last_applied(document))
        return True
    return False


async def vm_lines(api: Api) -> dict[str, str]:
    """Returns a line for each VM, by VM name, with state, node, machine type, MAC addresses and PCI addresses."""
    vmis = {_key(vmi): vmi for vmi in (await api.list(VMIS))[0]}
    lines = {}
    for vm in sorted((await api.list(VMS))[0], key=_key):
        name = vm["metadata"]["name"]
        state = at(vm, "status", "printableStatus") or "new"
        node = at(vmis.get(_key(vm)), "status", "nodeName") or "-"
        lines[name] = f"{name:28}{state:20}{node:10}{_hardware(at(vm, 'spec', 'template', 'spec', 'domain'))}"
    return lines


def _hardware(domain: Any) -> str:
    found = [
        at(domain, "machine", "type"),
        *(at(nic, "macAddress") for _, nic in entries(domain, "devices", "interfaces")),
        *(at(disk, "disk", "pciAddress") for _, disk in entries(domain, "devices", "disks")),
    ]
    return " ".join(text for text in found if text) or "no hardware yet"


async def list_pools(kubeconfig: Path) -> list[dict[str, Any]] | None:
    """Returns the pools with their replica counts; None if the API server does not answer."""
    try:
        async with await Api.connect(kubeconfig, user_agent="poolhouse-status", timeout_seconds=5) as api:
            found, _ = await api.list(POOLS)
    except ApiError:
        return None
    return [
        {
            "namespace": pool["metadata"]["namespace"],
            "name": pool["metadata"]["name"],
            "desired": at(pool, "spec", "replicas") or 0,
            "current": at(pool, "status", "replicas") or 0,
            "ready": at(pool, "status", "readyReplicas") or 0,
        }
        for pool in found
    ]


def read_manifests(manifests: Iterable[Path]) -> list[Json]:
    """Returns the documents in the files. Raises `StackError` with all problems."""
    found: list[Json] = []
    problems: list[str] = []
    for path in manifests:
        try:
            inside = [document for document in load_all(path.read_bytes()) if document]
        except OSError as error:
            problems.append(f"{path} cannot be read: {error}")
        except InvalidYAML as error:
            problems.append(f"{path} is not YAML: {error}")
        else:
            problems += [f"{path}: {problem}" for document in inside if (problem := _problem(document))]
            found += inside
    if problems:
        raise StackError("\n".join(problems))
    return found


def _problem(document: object) -> str | None:
    if not isinstance(document, dict):
        return "a document is not a YAML mapping"
    if _resource(document) is None:
        kind, version = document.get("kind", "no kind"), document.get("apiVersion", "no apiVersion")
        return f"`up --apply` does not support {kind} of {version}; use kubectl"
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return f"metadata.name of a {document['kind']} is missing"
    return None


def _resource(document: Json) -> Resource | None:
    """Returns the resource of a kind of Poolhouse or of a VM; None for kinds that `up --apply` does not support."""
    api_version, kind = document.get("apiVersion"), document.get("kind")
    for known in KINDS:
        if kind == known.kind and api_version in known.api_versions:
            group, _, version = str(api_version).partition("/")
            return Resource(group, version, known.plural, known.kind, known.namespaced)
    return VMS if kind == VMS.kind else None


def _key(document: Json) -> tuple[str, str]:
    return document["metadata"]["namespace"], document["metadata"]["name"]
