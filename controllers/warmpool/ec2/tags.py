"""What is written on an instance, and what is read from it.

An instance is read as the VirtualMachine that it would be: its tags are labels and annotations, so that one function
makes the view of both. The document's own tags are there for people: `WarmPool` is the state, and an instance that has
a claim says which one in `KubernetesPodName`, `KubernetesPodNamespace` and `KubernetesPodUUID`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from controllers.warmpool.backends import Change, CreateRequest, is_nobody
from controllers.warmpool.vmi import VMI
from controllers.warmpool.warm_vm import Owner, WarmVM, parse_warm_vm
from kinds import meta
from kinds.meta import DOMAIN

Json = dict[str, Any]

TITLE = "Name"
STATE = "WarmPool"
POD = {"name": "KubernetesPodName", "namespace": "KubernetesPodNamespace", "uid": "KubernetesPodUUID"}
RESERVED_TAGS = frozenset({TITLE, STATE, *POD.values()})
"""besides all of our domain: no label of a claim takes their place"""
CLUSTER = f"{DOMAIN}/cluster"
NAMESPACE = f"{DOMAIN}/namespace"
NAME = f"{DOMAIN}/name"
OWNER = f"{DOMAIN}/owner"
REVISION = f"{DOMAIN}/revision"
AGENT = f"{DOMAIN}/agent"
"""where the agent answers, `GRPC:8200`, so that an instance can be asked also when its pool is gone"""
OUTLIVES = f"{DOMAIN}/outlives-pool"
"""on instances of a pool whose deletionPolicy is Orphan: it may be deleted while nobody looks"""

MOST_CHARACTERS = 256
GOING = ("shutting-down", "terminated")

Tags = dict[str, str]


def of_order(order: CreateRequest, cluster: str, now: datetime) -> Tags:
    """Of an instance that is to be made. Empty is as good as absent."""
    found = {
        **_given(order.labels, order.annotations),
        TITLE: order.name,
        STATE: order.state.value,
        CLUSTER: cluster,
        NAMESPACE: order.namespace,
        NAME: order.name,
        OWNER: _owner(order.owner),
        REVISION: "1",
        AGENT: _agent(order.template),
        meta.WARM_POOL: order.pool,
        meta.POOL_UID: order.pool_uid,
        meta.CLAIM_UID: order.claim_uid,
        meta.TEMPLATE_HASH: order.template_hash,
        meta.PLACEMENT: str(order.placement.get("name") or ""),
        meta.STANDBY: order.standby,
        meta.STATE_SINCE: _text(now),
    }
    return _short(found | _pod(found))


def of_change(before: Mapping[str, str], change: Change, now: datetime) -> Tags:
    """What one write sets. A tag that goes is set to nothing: one call is one write, and to delete would be another."""
    found = _given(change.labels, change.annotations)
    if change.state is not None:
        found[STATE] = change.state.value
        if change.state.value != before.get(STATE):
            found[meta.STATE_SINCE] = _text(now)
    if change.claim_uid is not None:
        found[meta.CLAIM_UID] = change.claim_uid
        if not change.claim_uid:
            found[meta.CLAIM_NAME] = ""
    if change.owner is not None:
        found[OWNER] = "" if is_nobody(change.owner) else _owner(change.owner)
    found[REVISION] = str(revision(before) + 1)
    return _short(found | _pod({**before, **found}))


def revision(tags: Mapping[str, str]) -> int:
    text = tags.get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def read(instance: Json) -> Tags:
    return {each["Key"]: each.get("Value") or "" for each in instance.get("Tags") or ()}


def written(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def view(instance: Json) -> WarmVM | None:
    """The machine that an instance is; None for one that is not ours, or that is no more."""
    tags = {key: value for key, value in read(instance).items() if value}
    state = (instance.get("State") or {}).get("Name")
    if state == "terminated" or not (tags.get(NAMESPACE) and tags.get(NAME)):
        return None
    born = _time(instance.get("LaunchTime"))
    kind, _, rest = tags.get(OWNER, "").partition("/")
    name, _, uid = rest.partition("/")
    owners = [Owner(kind, name, uid).json()] if uid else []
    labels = {**tags, meta.WARM_STATE: tags.get(STATE, "")}
    metadata: Json = {
        "namespace": tags[NAMESPACE],
        "name": tags[NAME],
        "uid": instance["InstanceId"],
        "resourceVersion": str(revision(tags)),
        "creationTimestamp": born,
        "labels": labels,
        "annotations": tags,
        "ownerReferences": owners,
        **({"deletionTimestamp": born} if state in GOING else {}),
    }
    return parse_warm_vm(
        {"metadata": metadata, "spec": {"runStrategy": "Always"}, "status": {"printableStatus": state}}
    )


def is_instance(machine: WarmVM) -> bool:
    """By its UID: those of the API server begin otherwise."""
    return machine.uid.startswith("i-")


def guest(instance: Json) -> VMI | None:
    """Its run, as a VirtualMachineInstance would say it; None while it does not run."""
    found = view(instance)
    state = (instance.get("State") or {}).get("Name")
    if found is None or state not in ("pending", "running"):
        return None
    addresses = (instance.get("PrivateIpAddress"), instance.get("PublicIpAddress"))
    return VMI(
        namespace=found.namespace,
        name=found.name,
        uid=found.uid,
        owner=found.uid,
        phase="Running" if state == "running" else "Scheduling",
        holds=frozenset({"Ready"}) if state == "running" else frozenset(),
        addresses=tuple(dict.fromkeys(each for each in addresses if each)),
    )


def token(order: CreateRequest, cluster: str) -> str:
    """The same for the same order: to ask twice makes one. In another subnet it is another: EC2 refuses a token that
    comes back with other parameters."""
    subnet = str(order.placement.get("name") or "")
    identity = "/".join((cluster, order.namespace, order.name, order.pool_uid, order.claim_uid, subnet))
    return hashlib.sha256(identity.encode()).hexdigest()


def _given(labels: Mapping[str, str | None], annotations: Mapping[str, str | None]) -> Tags:
    return {key: value or "" for key, value in {**labels, **annotations}.items() if key not in RESERVED_TAGS}


def _pod(tags: Mapping[str, str]) -> Tags:
    claimed = bool(tags.get(meta.CLAIM_UID))
    values = {"name": meta.CLAIM_NAME, "namespace": NAMESPACE, "uid": meta.CLAIM_UID}
    return {POD[key]: tags.get(source, "") if claimed else "" for key, source in values.items()}


def _owner(owner: Owner) -> str:
    return f"{owner.kind}/{owner.name}/{owner.uid}"


def _agent(template: Json) -> str:
    port = template.get("port")
    if not port:
        return ""
    return f"{template.get('protocol') or 'TCP'}:{port}{':tls' if template.get('secure') else ''}"


def _short(tags: Tags) -> Tags:
    return {key: value[:MOST_CHARACTERS] for key, value in tags.items()}


def _text(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(value: Any) -> str:
    return _text(value) if isinstance(value, datetime) else str(value or "")
