"""Explains a Pod of the virtual node, for `poolhouse why pod/NAME`, by its claim and its VM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli import why_claim
from poolhouse.cli.claim_status import describe
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.past import events_about

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api
    from poolhouse.runtime.resource import Resource

PREFIXES = ("pod", "pods", "po")


def pod_name(text: str) -> str:
    """The name in pod/NAME; empty for other texts."""
    prefix, _, name = text.partition("/")
    return name if prefix.lower() in PREFIXES and "/" not in name else ""


def show_pod(cluster: Cluster, name: str, output: str) -> None:
    why_claim.show(cluster, lambda api: _explain(api, cluster.namespace, name), output)


async def other_object(api: Api, namespace: str, name: str) -> str:
    """Names the command for the claim or the Pod of this name."""
    from poolhouse.cli.resources import CLAIMS
    from poolhouse.runtime.resource import PODS

    if await _find(api, CLAIMS, namespace, name) is not None:
        return f". It is a claim: `poolhouse why vmclaim/{name}` explains it"
    if await _find(api, PODS, namespace, name) is not None:
        return f". It is a Pod: `poolhouse why pod/{name}` explains it"
    return ""


async def _explain(api: Api, namespace: str, name: str) -> Json:
    from controllers.shared.pod_claims import claim_name, pod_of
    from poolhouse.cli.resources import CLAIMS
    from poolhouse.runtime.resource import PODS

    pod = await api.get(PODS, namespace, name)
    uid = pod["metadata"]["uid"]
    claim = await _find(api, CLAIMS, namespace, claim_name(name, uid))
    if claim is not None and pod_of(claim) is None:
        claim = None
    past = why_claim.past(await events_about(api, namespace, name), uid)
    if claim is not None:
        metadata = claim["metadata"]
        past += why_claim.past(await events_about(api, namespace, metadata["name"]), metadata["uid"])
    return {
        "pod": name,
        "uid": uid,
        "phase": _phase(pod),
        "claim": claim["metadata"]["name"] if claim is not None else None,
        "message": headline(pod),
        "present": list(facts(pod, claim)),
        "past": sorted(past, key=lambda row: str(row["time"])),
    }


async def _find(api: Api, resource: Resource, namespace: str, name: str) -> Json | None:
    from poolhouse.runtime.errors import Forbidden, NotFound

    with contextlib.suppress(Forbidden, NotFound):
        return await api.get(resource, namespace, name)
    return None


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def headline(pod: Json) -> str:
    """Phase, reason and message of the Pod, and of the scheduler if it has found no node."""
    status = pod.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    said = status if pod["spec"].get("nodeName") else conditions.get("PodScheduled", {})
    why = [said[key] for key in ("reason", "message") if said.get(key)]
    return ": ".join([f"Pod {pod['metadata']['name']} is {_phase(pod)}", *why])


def facts(pod: Json, claim: Json | None) -> Iterator[str]:
    """On which node the Pod is, its VM, and what its claim says."""
    from poolhouse.api.apimachinery.containers import waiting_containers
    from poolhouse.api.kinds import meta

    metadata, node = pod["metadata"], pod["spec"].get("nodeName")
    if metadata.get("deletionTimestamp"):
        yield "it is being deleted, and goes after its VM"
    conditions = {each["type"] for each in (pod.get("status") or {}).get("conditions") or ()}
    if not node:
        yield "the scheduler has bound it to no node yet"
    elif claim is None and meta.WARM_VM not in conditions:
        yield f"it is on node {node}. Poolhouse runs only Pods of the virtual node, and has done nothing for this one"
    if claim is None:
        return
    name = claim["metadata"]["name"]
    status = claim.get("status") or {}
    if vm := (status.get("vmRef") or {}).get("name"):
        yield f"its VM is {vm}: `poolhouse why {vm}` explains the VM"
    for container, why in waiting_containers(pod.get("status") or {}):
        yield f"container {container} waits: {why}"
    yield f"its claim is {describe(name, status, told=headline(pod))}"
    yield from (f"claim {name}: {fact}" for fact in why_claim.facts(claim))
