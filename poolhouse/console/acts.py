"""The table of everything that the console changes: forms, routes and tests are made from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS, meta
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli import detach, updates
from poolhouse.cli.claim_status import FINISHED
from poolhouse.cli.claims import extend_claim
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.output import Failed, Unreachable
from poolhouse.cli.parameters import Duration, qualified_name, short_name
from poolhouse.cli.pools import POOL_KIND
from poolhouse.cli.undo import undo_update
from poolhouse.console.act import CONFIRMED, VM, Act, Done, Field, Preview, Run, Target, Values
from poolhouse.console.claim_page import CONNECTED
from poolhouse.console.cluster_state import Right
from poolhouse.console.page import object_path
from poolhouse.console.vm_power import POWER_ACTS
from poolhouse.console.vm_snapshots import RESTORE, TAKE
from poolhouse.runtime.resource import VMS, Resource

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

MAX_REPLICAS = 100_000


def _patch(target: Target) -> Right:
    return Right("patch", target.resource)


def _scalable() -> tuple[str, ...]:
    return tuple(kind.kind for kind in KINDS if kind.scale)


def _pausable() -> tuple[str, ...]:
    return tuple(kind.kind for kind in KINDS if "paused" in kind.spec.model_fields)


def short(target: Target) -> str:
    return f"{short_name(target.kind)}/{target.name}"


# scale


def _replicas(values: Values) -> int:
    text = values.get("replicas", "").strip()
    if not re.fullmatch(r"\d{1,6}", text) or int(text) > MAX_REPLICAS:
        raise Failed(f"replicas: must be a number from 0 to {MAX_REPLICAS}, not {text!r}")
    return int(text)


async def _scale(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    replicas = _replicas(values)
    body = {"spec": {"replicas": replicas}}
    await api.patch(target.resource, target.namespace, target.name, body, subresource="scale")
    return f"{target.name} is scaled to {replicas}"


async def _scaled(api: Api, cluster: Cluster, target: Target, values: Values) -> Preview:
    return Preview({**target.document, "spec": {**target.spec, "replicas": _replicas(values)}})


def _scaled_in(target: Target, values: Values) -> str:
    fewer = int(target.spec.get("replicas", 1)) - _replicas(values)
    noun = "VMI" if target.kind == "VirtualMachineInstanceReplicaSet" else "VM"
    return f"{target.name} deletes {count_noun(fewer, noun)}.{_disks(target)}" if fewer > 0 else ""


def _disks(target: Target) -> str:
    """What scale-in does with the disks of the VMs."""
    from controllers.pool.disk_fates import retention
    from controllers.pool.snapshot import Pool, parse_pool
    from controllers.shared.vm import disk_names

    if target.kind != POOL_KIND or not disk_names(target.spec.get("template") or {}):
        return ""
    pool = parse_pool(target.document)
    if not isinstance(pool, Pool):
        return ""
    retained = pool.spec.scale_in_strategy.retains_disks
    return f" The disks are {f'retained {retention(pool.spec.retained_disks)}' if retained else 'deleted'}."


# pause and resume


def _set_paused(paused: bool) -> Run:
    async def run(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
        await api.patch(target.resource, target.namespace, target.name, {"spec": {"paused": paused}})
        return f"{target.name} is {'paused' if paused else 'resumed'}"

    return run


def _pause_command(paused: bool) -> Callable[[Target], str]:
    def command(target: Target) -> str:
        if target.kind == POOL_KIND:
            return f"poolhouse rollout {'pause' if paused else 'resume'} {target.name}"
        text = "true" if paused else "false"
        return f'patch {qualified_name(target.kind, target.name)} --type merge -p \'{{"spec":{{"paused":{text}}}}}\''

    return command


# rollout


def _rollout(word: str) -> Callable[[Target], str]:
    return lambda target: f"poolhouse rollout {word} {target.name}"


def _present_step(target: Target) -> str:
    """The number of the step that the page shows as the present one."""
    return str(((target.status.get("update") or {}).get("stepsDone") or 0) + 1)


async def _promote(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    text = values.get("step", "").strip()
    if text and not re.fullmatch(r"[1-9]\d{0,3}", text):
        raise Failed(f"step: must be the number of a step, not {text!r}")
    place = await updates.promote_update(api, cluster, target.name, step=int(text) if text else None)
    return f"{target.name} is promoted past {place}"


async def _abort(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    await updates.abort_update(api, cluster, target.name)
    return f"{target.name} returns to its former template"


async def _retry(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    await updates.retry_update(api, cluster, target.name)
    return f"{target.name} is updated again"


async def _restart(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    await updates.restart_vms(api, cluster, target.name)
    return f"{target.name} restarts its VMs"


async def _undo(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    return (await undo_update(api, cluster, target.name, _chosen_revision(values))).message


async def _undone(api: Api, cluster: Cluster, target: Target, values: Values) -> Preview:
    undone = await undo_update(api, cluster, target.name, _chosen_revision(values), dry_run=True)
    return Preview(undone.pool, f"Then {undone.message}.")


def _chosen_revision(values: Values) -> int | None:
    text = values.get("revision", "").strip()
    if text and not re.fullmatch(r"\d{1,9}", text):
        raise Failed(f"revision: must be the number of a revision, not {text!r}")
    return int(text) if text else None


def _updating(target: Target) -> bool:
    current = target.status.get("currentRevision")
    return bool(current) and current != target.status.get("updateRevision") and not _aborted(target)


def _aborted(target: Target) -> bool:
    return bool((target.status.get("update") or {}).get("aborted"))


def _has_earlier_revision(target: Target) -> bool:
    present = target.status.get("updateRevision")
    known = {each["revision"] for each in target.status.get("history") or ()} | {target.status.get("currentRevision")}
    return bool(known - {present, None, ""})


def _has_steps(target: Target) -> bool:
    proactive = (target.spec.get("updateStrategy") or {}).get("proactive") or {}
    return _updating(target) and bool(proactive.get("steps") or proactive.get("analysis"))


def _restarted(target: Target, values: Values) -> str:
    replaces = ((target.spec.get("updateStrategy") or {}).get("proactive") or {}).get("replacePolicy") == "Recreate"
    disks = " Disks whose entry in dataVolumeTemplates differs are replaced." if replaces else ""
    return f"{target.name} restarts VMs that KubeVirt cannot change while they run, within maxUnavailable.{disks}"


# VMs


def _in_pool(target: Target) -> bool:
    return (controller_of(target.document) or {}).get("kind") == POOL_KIND


def _was_in_pool(target: Target) -> bool:
    labels = target.document["metadata"].get("labels") or {}
    return meta.POOL in labels and controller_of(target.document) is None


async def _detach(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    return (await detach.detach_vm(api, cluster, target.name))[1]


async def _attach(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    try:
        return (await detach.attach_vm(api, cluster, target.name, None, yes=False)).message
    except detach.WouldDelete as error:
        if error.consequence != values.get(CONFIRMED):
            raise
        return (await detach.attach_vm(api, cluster, target.name, None, yes=True)).message


def _scale_in(target: Target) -> str:
    return str((target.document["metadata"].get("annotations") or {}).get(meta.SCALE_IN) or "")


def _protect(value: str | None, message: str) -> Run:
    async def run(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
        await api.patch(VMS, target.namespace, target.name, {"metadata": {"annotations": {meta.SCALE_IN: value}}})
        return f"{target.name} {message}"

    return run


# claims


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


async def _release(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    await api.patch(Resource.of(CLAIM), target.namespace, target.name, {"spec": {"release": True}})
    return f"{target.name} is released"


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
    vm = (target.status.get("vmRef") or {}).get("name") or (target.status.get("instanceRef") or {}).get("id")
    return f"{vm} and its disks are deleted." if vm else "The claim does not get a VM any more."


ACTS: tuple[Act, ...] = (
    Act(
        "scale",
        "Scale",
        _scalable(),
        "Changes the number of VMs.",
        lambda target: f"scale {qualified_name(target.kind, target.name)} --replicas={{replicas}}",
        _scale,
        lambda target: Right("patch", target.resource, "scale"),
        _scaled_in,
        (Field("replicas", "Replicas", lambda target: str(target.spec.get("replicas", 1)), "number", required=True),),
        preview=_scaled,
    ),
    Act(
        "pause",
        "Pause",
        _pausable(),
        "VMs are not created, changed, healed or deleted until you resume it.",
        _pause_command(True),
        _set_paused(True),
        _patch,
        available=lambda target: not target.spec.get("paused"),
    ),
    Act(
        "resume",
        "Resume",
        _pausable(),
        "Ends the pause.",
        _pause_command(False),
        _set_paused(False),
        _patch,
        available=lambda target: bool(target.spec.get("paused")),
    ),
    Act(
        "promote",
        "Promote",
        (POOL.kind,),
        "Ends the present step of the update, such as a pause, so that the update continues.",
        lambda target: f"{_rollout('promote')(target)}[ --step {{step}}]",
        _promote,
        _patch,
        fields=(Field("step", "Step", _present_step, "hidden"),),
        available=_has_steps,
    ),
    Act(
        "abort",
        "Abort update",
        (POOL.kind,),
        "VMs get the last template again that all of them had. The pool's template stays.",
        _rollout("abort"),
        _abort,
        _patch,
        _restarted,
        available=_updating,
    ),
    Act(
        "retry",
        "Retry update",
        (POOL.kind,),
        "Tries the aborted update again.",
        _rollout("retry"),
        _retry,
        _patch,
        available=_aborted,
    ),
    Act(
        "undo",
        "Undo",
        (POOL.kind,),
        "Gives the pool the template of an earlier revision.",
        lambda target: f"poolhouse rollout undo {target.name}[ --to-revision {{revision}}]",
        _undo,
        _patch,
        _restarted,
        (Field("revision", "Revision", type="hidden"),),  # the history has a button for each revision
        available=_has_earlier_revision,
        preview=_undone,
    ),
    Act(
        "restart",
        "Restart VMs",
        (POOL.kind,),
        "Restarts all VMs, as an update without another change.",
        _rollout("restart"),
        _restart,
        _patch,
        lambda target, values: f"All VMs of {target.name} are restarted, at most maxUnavailable at once.",
    ),
    *POWER_ACTS,
    TAKE,
    RESTORE,
    Act(
        "detach",
        "Detach",
        (VM,),
        "Removes the VM from its pool. It keeps running, and the pool creates a replacement.",
        lambda target: f"poolhouse detach {target.name}",
        _detach,
        _patch,
        available=_in_pool,
    ),
    Act(
        "attach",
        "Attach",
        (VM,),
        "Puts the VM back into its pool. If the pool then has too many VMs, scale-in deletes one.",
        lambda target: f"poolhouse attach {target.name} --yes",
        _attach,
        _patch,
        available=_was_in_pool,
    ),
    Act(
        "protect",
        "Protect",
        (VM,),
        "Scale-in does not delete the VM.",
        lambda target: f"annotate vm/{target.name} {meta.SCALE_IN}=Protect --overwrite",
        _protect("Protect", "is protected from scale-in"),
        _patch,
        available=lambda target: _in_pool(target) and _scale_in(target) != "Protect",
    ),
    Act(
        "unprotect",
        "End protection",
        (VM,),
        "Scale-in may delete the VM again.",
        lambda target: f"annotate vm/{target.name} {meta.SCALE_IN}-",
        _protect(None, "is not protected any more"),
        _patch,
        available=lambda target: _in_pool(target) and bool(_scale_in(target)),
    ),
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
        _patch,
        fields=(Field("by", "Longer by", lambda target: "1h", help="600, 30m or 2h.", required=True),),
        available=lambda target: not target.spec.get("release") and _expires(target),
    ),
    Act(
        "release",
        "Release",
        (CLAIM.kind,),
        "Gives the VM back.",
        lambda target: f"poolhouse release {target.name}",
        _release,
        _patch,
        _released,
        available=lambda target: not target.spec.get("release") and target.status.get("phase") not in FINISHED,
    ),
)
BY_NAME: Mapping[str, Act] = {each.name: each for each in ACTS}


def acts_of(target: Target) -> list[Act]:
    """The acts that make sense for the object now, in the order of the table."""
    return [each for each in ACTS if target.kind in each.kinds and not each.in_row and each.available(target)]


async def perform(api: Api, cluster: Cluster, act: Act, target: Target, values: Values) -> Done:
    done = await act.run(api, replace(cluster, namespace=target.namespace), target, values)
    return done if isinstance(done, Done) else Done(done)
