"""Reads from the cluster what `service_health` and `installation` judge, with the user's own rights."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.resource_types import CLAIMS, POOLS
from poolhouse.cli.service_health import Check, Facts, Seen, is_ours, judge
from poolhouse.runtime.errors import (
    ApiError,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from poolhouse.runtime.resource import DEPLOYMENTS, KUBEVIRTS, LEASES, VMS, Resource

if TYPE_CHECKING:
    from pathlib import Path

    from poolhouse.cli.installation import Installation
    from poolhouse.runtime.api import Api

T = TypeVar("T")
BRIEF_SECONDS = 5.0
"""time for which commands wait that only mention an outage; the API server waits longer for the webhook"""
CONFIGURATIONS = tuple(
    Resource("admissionregistration.k8s.io", "v1", f"{sort.lower()}webhookconfigurations", f"{sort}W", namespaced=False)
    for sort in ("Mutating", "Validating")
)


async def brief_checks(api: Api, namespace: str) -> list[Check]:
    """The checks of the services, which every command can show. Errors of the API server are answers too."""
    return judge(await observe(api, namespace, BRIEF_SECONDS))


async def observe(api: Api, namespace: str, seconds: float, stack: Path | None = None) -> Facts:
    """`stack` is the directory of the embedded stack, if the cluster is one."""
    claim, vm, (home, lease, now) = await asyncio.gather(
        seen(_dry_run_of_claim(api, namespace), seconds),
        seen(api.create(VMS, _vm(namespace), dry_run=True), seconds),
        _lease(api, seconds),
    )
    return Facts(namespace, home, now, claim, vm, lease, str(stack or ""))


async def seen(answer: Awaitable[T], seconds: float, call: str = "") -> Seen[T]:
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        return Unreachable(f"no answer within {seconds:g} s", call=call)
    except ApiError as error:
        return error


async def _dry_run_of_claim(api: Api, namespace: str) -> Json:
    claims, pools = Resource.of(CLAIMS), Resource.of(POOLS)
    try:
        return await api.create(claims, _object(claims, namespace, {}), dry_run=True)
    except NotFound as error:
        if error.details.get("kind") == "namespaces":
            raise
        # The chart can leave claims out.
        template = {"spec": _vm(namespace)["spec"]}
        return await api.create(pools, _object(pools, namespace, {"replicas": 0, "template": template}), dry_run=True)


def _vm(namespace: str) -> Json:
    """A VM that nothing creates. The webhook remembers the hardware of VMs for a while; a memory of its own makes this
    one new, so that the webhook asks the defaulter."""
    memory = {"guest": f"{random.randrange(65536, 131072)}Ki"}
    template = {"spec": {"domain": {"devices": {}, "memory": memory}}}
    return _object(VMS, namespace, {"runStrategy": "Halted", "template": template})


def _object(resource: Resource, namespace: str, spec: Json) -> Json:
    metadata = {"name": f"poolhouse-doctor-{uuid4().hex[:8]}", "namespace": namespace}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


async def _lease(api: Api, seconds: float) -> tuple[str, Seen[Json], datetime]:
    """Poolhouse's namespace, the Lease of its controllers, and when it was read. If the Lease is not in the usual
    namespace, the webhook configurations say where the services are, to users who may read them."""
    found = await seen(api.get(LEASES, meta.NAMESPACE, meta.CONTROLLERS), seconds, f"GET Lease {meta.CONTROLLERS}")
    if isinstance(found, NotFound):
        configurations = await seen(api.list(CONFIGURATIONS[0], label_selector=meta.OURS), seconds)
        home = None if isinstance(configurations, ApiError) else _home(configurations[0])
        if home not in (None, meta.NAMESPACE):
            return home, await seen(api.get(LEASES, home, meta.CONTROLLERS), seconds), api.now()
    return meta.NAMESPACE, found, api.now()


def _home(configurations: Sequence[Json]) -> str | None:
    found = (at(e, "clientConfig", "service", "namespace") for c in configurations for _, e in entries(c, "webhooks"))
    return next((each for each in found if isinstance(each, str)), None)


def require_answer(answer: Seen[Json]) -> None:
    """Raises the error of an API server that does not answer, or does not accept the credentials."""
    if isinstance(answer, Unauthorized | Unreachable | Unavailable | Throttled):
        raise answer


async def observe_installation(api: Api, home: str, seconds: float) -> Installation:
    from poolhouse.cli.installation import API_VERSIONS, Installation, unserved_kinds

    kubernetes = await seen(api.request("GET", "/version"), seconds)
    kubevirts, deployments, configurations = await asyncio.gather(
        seen(_list(api, KUBEVIRTS), seconds),
        seen(_list(api, DEPLOYMENTS, home, meta.OURS), seconds),
        seen(_configurations(api), seconds),
    )
    answers = await asyncio.gather(*(seen(_served(api, each), seconds) for each in API_VERSIONS))
    served = dict(zip(API_VERSIONS, answers, strict=True))
    lost = [(kind.group, kind.kind) for kind in unserved_kinds(served)]
    return Installation(
        version("poolhouse"),
        kubernetes,
        kubevirts,
        deployments,
        configurations,
        served,
        _validities(() if isinstance(configurations, ApiError) else configurations),
        await seen(_owned(api, lost), seconds) if lost else (),
    )


async def _owned(api: Api, kinds: Sequence[tuple[str, str]]) -> list[Json]:
    """The VMs with an owner of one of the kinds."""
    vms = await _list(api, VMS)
    return [
        vm for vm in vms if any(_group_kind(owner) in kinds for _, owner in entries(vm, "metadata", "ownerReferences"))
    ]


def _group_kind(owner: Json) -> tuple[str, str]:
    return str(owner.get("apiVersion")).partition("/")[0], str(owner.get("kind"))


async def _list(api: Api, resource: Resource, namespace: str | None = None, label: str | None = None) -> list[Json]:
    return (await api.list(resource, namespace, label_selector=label))[0]


async def _configurations(api: Api) -> list[Json]:
    return [each for resource in CONFIGURATIONS for each in await _list(api, resource)]


async def _served(api: Api, group_version: str) -> frozenset[str]:
    try:
        found = await api.request("GET", f"/apis/{group_version}")
    except NotFound:
        return frozenset()
    return frozenset(str(each.get("name")) for _, each in entries(found, "resources"))


def _validities(configurations: Sequence[Json]) -> dict[str, tuple[datetime, datetime] | None]:
    """When the newest certificate in the CA bundle of each of Poolhouse's webhooks is valid."""
    from poolhouse.service.certificates import split_pem
    from poolhouse.service.validity import read_validity

    found: dict[str, tuple[datetime, datetime] | None] = {}
    for each in (each for configuration in configurations for _, each in entries(configuration, "webhooks")):
        if is_ours(name := str(each.get("name"))):
            try:
                bundle = split_pem(base64.b64decode(str(at(each, "clientConfig", "caBundle") or "")))
            except ValueError:
                bundle = ()
            ends = [(validity.start, validity.end) for validity in map(read_validity, bundle)]
            found[name] = max(ends, key=lambda validity: validity[1], default=None)
    return found
