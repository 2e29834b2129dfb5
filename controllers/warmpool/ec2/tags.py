"""Converts between the tags of an EC2 instance and the view of a warm VM.

The parser treats the tags as the labels and annotations of a VirtualMachine, so that VMs and instances have one view.
Some tags of the design document are for people: `WarmPool` is the state. `KubernetesPodName`, `KubernetesPodNamespace`
and `KubernetesPodUUID` identify the claim of an instance, or the Pod that controls the claim.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from controllers.shared.vmi import VMI
from controllers.warmpool import warm_vm
from controllers.warmpool.backends import Change, CreateRequest
from controllers.warmpool.warm_vm import NO_OWNER, Owner, WarmVM
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.ec2 import DISPLAY_NAME, POD, RESERVED_TAGS, STATE, is_reserved_tag
from poolhouse.api.kinds.meta import DOMAIN

Tags = dict[str, str]

CLUSTER = f"{DOMAIN}/cluster"
NAMESPACE = f"{DOMAIN}/namespace"
NAME = f"{DOMAIN}/name"
OWNER = f"{DOMAIN}/owner"
REVISION = f"{DOMAIN}/revision"
AGENT = f"{DOMAIN}/agent"
"""endpoint of the agent, such as `GRPC:8200`; the tag is needed after the pool is deleted"""
OUTLIVES_POOL = f"{DOMAIN}/outlives-pool"
"""tag of instances of a pool with deletionPolicy Orphan, for a pool that is deleted while EC2 is unreachable"""

MAX_CHARACTERS = 256
TERMINATED_STATES = ("shutting-down", "terminated")


def new_tags(request: CreateRequest, cluster: str, now: datetime) -> Tags:
    """The tags of a new instance. An empty tag counts as absent."""
    found = {
        **{key: value for key, value in (request.template.get("tags") or {}).items() if not is_reserved_tag(key)},
        **_without_reserved(request.labels, request.annotations),
        DISPLAY_NAME: request.name,
        STATE: request.state.value,
        CLUSTER: cluster,
        NAMESPACE: request.namespace,
        NAME: request.name,
        OWNER: _owner_tag(request.owner),
        REVISION: "1",
        AGENT: _agent_tag(request.template),
        meta.WARM_POOL: request.pool,
        meta.POOL_UID: request.pool_uid,
        meta.CLAIM_UID: request.claim_uid,
        meta.TEMPLATE_HASH: request.template_hash,
        meta.PLACEMENT: str(request.placement.get("name") or ""),
        meta.STANDBY: request.standby,
        meta.STATE_SINCE: format_time(now),
    }
    return _truncated(found | _pod_tags(found))


def changed_tags(before: Mapping[str, str], change: Change, now: datetime) -> Tags:
    """The tags that one write sets. A removed tag becomes empty, because its deletion would need a second call."""
    found = _without_reserved(change.labels, change.annotations)
    if change.state is not None:
        found[STATE] = change.state.value
        if change.state.value != before.get(STATE):
            found[meta.STATE_SINCE] = format_time(now)
    if change.claim_uid is not None:
        found[meta.CLAIM_UID] = change.claim_uid
        if not change.claim_uid:
            found |= {key: "" for key in (meta.CLAIM_NAME, meta.POD_NAME, meta.POD_UID) if key in before}
    if change.owner is not None:
        found[OWNER] = "" if change.owner == NO_OWNER else _owner_tag(change.owner)
    found[REVISION] = str(revision(before) + 1)
    return _truncated(found | _pod_tags({**before, **found}))


def revision(tags: Mapping[str, str]) -> int:
    text = tags.get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def from_aws(instance: Json) -> Tags:
    return {each["Key"]: each.get("Value") or "" for each in instance.get("Tags") or ()}


def to_aws(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def parse_warm_vm(instance: Json) -> WarmVM | None:
    """The view of an instance. None for a terminated instance, or without the tags of this project."""
    tags = {key: value for key, value in from_aws(instance).items() if value}
    state = (instance.get("State") or {}).get("Name")
    if state == "terminated" or not (tags.get(NAMESPACE) and tags.get(NAME)):
        return None
    launched_at = _time(instance.get("LaunchTime"))
    kind, _, rest = tags.get(OWNER, "").partition("/")
    name, _, uid = rest.partition("/")
    owners = [Owner(kind, name, uid).json()] if uid else []
    labels = {**tags, meta.WARM_STATE: tags.get(STATE, "")}
    metadata: Json = {
        "namespace": tags[NAMESPACE],
        "name": tags[NAME],
        "uid": instance["InstanceId"],
        "resourceVersion": str(revision(tags)),
        "creationTimestamp": launched_at,
        "labels": labels,
        "annotations": tags,
        "ownerReferences": owners,
        **({"deletionTimestamp": launched_at} if state in TERMINATED_STATES else {}),
    }
    return warm_vm.parse_warm_vm(
        {"metadata": metadata, "spec": {"runStrategy": "Always"}, "status": {"printableStatus": state}}
    )


def is_instance(vm: WarmVM) -> bool:
    """Whether the UID is an instance ID. UIDs of the API server never start with `i-`."""
    return vm.uid.startswith("i-")


def has_agent(vm: WarmVM) -> bool:
    """Whether the instance has an agent that starts applications."""
    return is_instance(vm) and vm.labels.get(AGENT, "").startswith("GRPC:")


def parse_vmi(instance: Json) -> VMI | None:
    """The instance as a VMI. None if the instance is neither pending nor running."""
    vm = parse_warm_vm(instance)
    state = (instance.get("State") or {}).get("Name")
    if vm is None or state not in ("pending", "running"):
        return None
    addresses = (instance.get("PrivateIpAddress"), instance.get("PublicIpAddress"))
    return VMI(
        namespace=vm.namespace,
        name=vm.name,
        uid=vm.uid,
        owner_uid=vm.uid,
        phase="Running" if state == "running" else "Scheduling",
        conditions=frozenset({"Ready"}) if state == "running" else frozenset(),
        ready=state == "running",
        addresses=tuple(dict.fromkeys(each for each in addresses if each)),
    )


def client_token(request: CreateRequest, cluster: str) -> str:
    """A token that is equal for equal requests, so that a repeated request creates one instance. The token includes
    the subnet, because EC2 refuses a token that is repeated with other parameters."""
    subnet = str(request.placement.get("name") or "")
    identity = "/".join((cluster, request.namespace, request.name, request.pool_uid, request.claim_uid, subnet))
    return hashlib.sha256(identity.encode()).hexdigest()


def _without_reserved(labels: Mapping[str, str | None], annotations: Mapping[str, str | None]) -> Tags:
    return {key: value or "" for key, value in {**labels, **annotations}.items() if key not in RESERVED_TAGS}


def _pod_tags(tags: Mapping[str, str]) -> Tags:
    claimed = bool(tags.get(meta.CLAIM_UID))
    values = {
        "name": tags.get(meta.POD_NAME) or tags.get(meta.CLAIM_NAME, ""),
        "namespace": tags.get(NAMESPACE, ""),
        "uid": tags.get(meta.POD_UID) or tags.get(meta.CLAIM_UID, ""),
    }
    return {POD[key]: value if claimed else "" for key, value in values.items()}


def _owner_tag(owner: Owner) -> str:
    return f"{owner.kind}/{owner.name}/{owner.uid}"


def _agent_tag(template: Json) -> str:
    port = template.get("port")
    if not port:
        return ""
    return f"{template.get('protocol') or 'TCP'}:{port}{':tls' if template.get('secure') else ''}"


def _truncated(tags: Tags) -> Tags:
    return {key: value[:MAX_CHARACTERS] for key, value in tags.items()}


def _time(value: Any) -> str:
    return format_time(value) if isinstance(value, datetime) else str(value or "")
