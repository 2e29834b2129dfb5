"""Decides whether a warm pool can adopt an EC2 instance: one that was orphaned, or that a Virtual Kubelet launched.

An adopted instance gets the tags of a new one. The controllers check its health before a claim can have it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controllers.warmpool.backends import CreateRequest
from controllers.warmpool.ec2 import tags
from controllers.warmpool.naming import unused_names
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import POOL_KIND, Owner
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.ec2 import DEFAULT_INSTANCE_TYPE, DISPLAY_NAME, POD, STATE
from poolhouse.api.kinds.warm_states import WarmState

FREE_STATES = {WarmState.READY.value, WarmState.PROVISIONING.value, WarmState.STANDING_BY.value}
"""values of the tag WarmPool of an instance that no claim and no Pod has used"""


@dataclass(frozen=True)
class Adoption:
    problems: tuple[str, ...]
    """why the pool cannot adopt the instance; empty if it can"""
    tags: Mapping[str, str]
    """the tags to write; an empty value takes a tag's effect away"""


def adoption(instance: Json, pool: WarmPool, cluster: str, now: datetime) -> Adoption:
    """`cluster` is the UID of the namespace kube-system, as in the tag of all instances of a cluster."""
    found = tuple(_problems(instance, pool, cluster))
    return Adoption(found, {} if found else _new_tags(instance, pool, cluster, now))


def _problems(instance: Json, pool: WarmPool, cluster: str) -> Iterator[str]:
    state = at(instance, "State", "Name")
    if state not in ("pending", "running"):
        yield f"is {state}; only a running instance can be adopted"
    given = {key: value for key, value in tags.from_aws(instance).items() if value}
    yield from _ownership_problems(given, pool, cluster)
    yield from _differences(instance, pool.template)


def _ownership_problems(before: tags.Tags, pool: WarmPool, cluster: str) -> Iterator[str]:
    """Says which cluster, pool or user has the instance, by its tags."""
    if before.get(tags.CLUSTER, cluster) != cluster:
        yield f"belongs to the cluster {before[tags.CLUSTER]}"
    elif before.get(meta.POOL_UID) == pool.uid and meta.ORPHANED not in before:
        yield "belongs to the pool already"
    elif before.get(meta.POOL_UID) and meta.ORPHANED not in before:
        yield f"belongs to warm pool {before.get(meta.WARM_POOL, '')} of namespace {before.get(tags.NAMESPACE, '')}"
    elif before.get(tags.NAMESPACE, pool.namespace) != pool.namespace:
        yield f"was orphaned in namespace {before[tags.NAMESPACE]}, and the pool is in {pool.namespace}"
    user = before.get(meta.CLAIM_NAME) or before.get(POD["name"])
    if before.get(meta.CLAIM_UID) or user or before.get(STATE, "Ready") not in FREE_STATES:
        yield f"has been used{f' by {user}' if user else ''}; a used instance is never used again"


def _differences(instance: Json, template: Json) -> Iterator[str]:
    """Says in which fields the instance differs from a new one of the pool."""
    profile = str(at(instance, "IamInstanceProfile", "Arn") or "")
    wanted_profile = str(template.get("iamInstanceProfile") or "")
    if wanted_profile != profile and not (wanted_profile and profile.endswith(f"/{wanted_profile}")):
        yield _differs("instance profile", profile, wanted_profile)
    groups = sorted(each["GroupId"] for _, each in entries(instance, "SecurityGroups"))
    if template.get("securityGroups") and groups != sorted(template["securityGroups"]):
        yield _differs("security groups", ", ".join(groups), ", ".join(template["securityGroups"]))
    for name, aws, wanted in (
        ("image", "ImageId", template.get("imageID")),
        ("type", "InstanceType", template.get("instanceType") or DEFAULT_INSTANCE_TYPE),
        ("key pair", "KeyName", template.get("keyPair")),
    ):
        if (instance.get(aws) or None) != wanted:
            yield _differs(name, instance.get(aws), wanted)
    subnets = template.get("subnets") or ()
    if subnets and instance.get("SubnetId") not in subnets:
        yield _differs("subnet", instance.get("SubnetId"), ", ".join(subnets))


def _differs(name: str, has: Any, wanted: Any) -> str:
    return f"has {name} {has or 'none'}, and the pool has {wanted or 'none'}"


def _new_tags(instance: Json, pool: WarmPool, cluster: str, now: datetime) -> tags.Tags:
    before = tags.from_aws(instance)
    subnet = str(instance.get("SubnetId") or "")
    placement = pool.placements.get(subnet) or next(iter(pool.placements.values()))
    name = before.get(tags.NAME) or unused_names(pool.name, instance["InstanceId"], 1)[0]
    request = CreateRequest(
        namespace=pool.namespace,
        name=name,
        pool=pool.name,
        pool_uid=pool.uid,
        owner=Owner(POOL_KIND, pool.name, pool.uid),
        template=pool.template,
        template_hash=pool.hashes.get(str(placement["name"]), pool.template_hash),
        placement=placement,
        annotations={meta.STATE_REASON: "adopted"},
    )
    after = {
        **tags.new_tags(request, cluster, now),
        tags.REVISION: str(tags.revision(before) + 1),
        meta.ORPHANED: "",
        meta.CHECK_FAILURES: "",
        tags.OUTLIVES_POOL: "",
        DISPLAY_NAME: name,
    }
    return {key: value for key, value in after.items() if value or before.get(key)}
