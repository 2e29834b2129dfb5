"""The acts that claim a VM of a warm pool, extend a claim, and release it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.claim_status import FINISHED, vm_of
from poolhouse.cli.claims import extend_claim
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.output import Failed, Unreachable
from poolhouse.cli.parameters import Duration
from poolhouse.console.act import Act, Done, Field, Target, Values, may_patch, patches
from poolhouse.console.claim_page import CONNECTED
from poolhouse.console.cluster_state import Right
from poolhouse.console.page import object_path
from poolhouse.runtime.resource import Resource

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api


async def _claim(api: Api, cluster: Cluster, target: Target, values: Values) -> Done:
    spec: Json = {"poolName": target.name}
    if ttl := values.get("ttl", "").strip():
        if not re.fullmatch(r"\d{1,9}", ttl):
            raise Failed(f"ttl: must be a number of seconds, not {ttl!r}")
        spec["ttlSeconds"] = int(ttl)
    name = values.get("name", "").strip() or f"claim-{uuid4().hex[:8]}"
    body = {
        "apiVersion": CLAIM.api_version,
        "kind": CLAIM.kind,
        "metadata": {"namespace": target.namespace, "name": name},
        "spec": spec,
    }
    await api.create(Resource.of(CLAIM), body)
    return Done(f"{name} claims a VM of {target.name}.", object_path(CLAIM.short_name, target.namespace, name))


async def _extend(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    text = values.get("by", "").strip()
    try:
        seconds = Duration().convert(text, None, None)
    except click.UsageError:
        raise Failed(f"by: must be a time such as 600, 30m or 2h, not {text!r}") from None
    try:
        return (await extend_claim(api, target.namespace, target.name, seconds))[1]
    except Unreachable as error:
        raise Failed(error.message) from None


def _expires(target: Target) -> bool:
    return bool(target.status.get("expiresAt")) and target.status.get("phase") in CONNECTED


def _released(target: Target, values: Values) -> str:
    vm = vm_of(target.status)
    return f"{vm} and its disks are deleted." if vm else "The claim does not get a VM any more."


CLAIM_ACTS: tuple[Act, ...] = (
    Act(
        "claim",
        "Claim a VM",
        (WARM_POOL.kind,),
        "Takes a VM of the pool for you.",
        lambda target: f"poolhouse claim[ {{name}}] --pool {target.name}[ --ttl {{ttl}}]",
        _claim,
        lambda target: Right("create", Resource.of(CLAIM)),
        fields=(
            Field("name", "Name", help="Empty: a random name."),
            Field("ttl", "Release after (seconds)", type="number", help="Empty: the pool's limit."),
        ),
    ),
    Act(
        "extend",
        "Extend",
        (CLAIM.kind,),
        "Keeps the VM longer, up to the limit of the pool.",
        lambda target: f"poolhouse claim extend {target.name} --by {{by}}",
        _extend,
        may_patch,
        fields=(Field("by", "Longer by", lambda target: "1h", help="600, 30m or 2h.", required=True),),
        available=lambda target: not target.spec.get("release") and _expires(target),
    ),
    Act(
        "release",
        "Release",
        (CLAIM.kind,),
        "Gives the VM back.",
        lambda target: f"poolhouse release {target.name}",
        patches({"spec": {"release": True}}, "is released"),
        may_patch,
        _released,
        available=lambda target: not target.spec.get("release") and target.status.get("phase") not in FINISHED,
    ),
)
