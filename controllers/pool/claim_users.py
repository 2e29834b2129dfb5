"""Finds what uses PersistentVolumeClaims of a namespace, before retained ones are deleted."""

from collections.abc import Iterator
from functools import partial

from controllers.shared.data_sources import DATA_SOURCES
from controllers.shared.sources import DATA_VOLUMES
from controllers.shared.vm import disk_names, references
from controllers.shared.vmi import DISKS
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import PODS, VMS

ENDED = ("Succeeded", "Failed")


async def claim_users(api: Api, namespace: str) -> dict[str, str]:
    """The claims that a pod mounts, a VM names, a DataVolume is cloned from or a DataSource points at, with a
    description of the user."""
    found = dict[str, str]()
    here = (DATA_VOLUMES, namespace, _cloned), (VMS, namespace, _of_vm), (PODS, namespace, _mounted)
    # A DataSource of another namespace may point at a claim of this one.
    for resource, place, claims in ((DATA_SOURCES, None, partial(_images, namespace)), *here):
        try:
            async for documents, _ in api.pages(resource, place):
                for each in documents:
                    found |= dict.fromkeys(claims(each), f"{resource.kind} {each['metadata']['name']}")
        except NotFound:  # the cluster has no CDI
            continue
    return found


def _images(namespace: str, data_source: Json) -> Iterator[str]:
    """The status has the claim behind a chain of DataSources."""
    for part in ("spec", "status"):
        claim = at(data_source, part, "source", "pvc") or {}
        if (claim.get("namespace") or data_source["metadata"]["namespace"]) == namespace and claim.get("name"):
            yield claim["name"]


def _mounted(pod: Json) -> Iterator[str]:
    if at(pod, "status", "phase") not in ENDED:
        for volume in at(pod, "spec", "volumes") or ():
            if claim := at(volume, "persistentVolumeClaim", "claimName"):
                yield claim


def _of_vm(vm: Json) -> Iterator[str]:
    yield from disk_names(vm)
    paths = (*DISKS, ("memoryDump", "claimName"))
    for volume in at(vm, "spec", "template", "spec", "volumes") or ():
        yield from (holder[key] for holder, key in references(volume, paths))


def _cloned(volume: Json) -> Iterator[str]:
    source = at(volume, "spec", "source", "pvc") or {}
    here = source.get("namespace") in (None, volume["metadata"].get("namespace"))
    if here and source.get("name") and at(volume, "status", "phase") not in ENDED:
        yield source["name"]
