"""The acts that scale, pause and update pools and replica sets."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.kinds import KINDS
from poolhouse.api.kinds.pool import POOL
from poolhouse.cli import updates
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.output import Failed
from poolhouse.cli.parameters import qualified_name
from poolhouse.cli.pools import POOL_KIND
from poolhouse.cli.undo import undo_update
from poolhouse.console.act import Act, Field, Preview, Run, Target, Values, may_patch, patches
from poolhouse.console.cluster_state import Right

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api


MAX_REPLICAS = 100_000


def _scalable() -> tuple[str, ...]:
    return tuple(kind.kind for kind in KINDS if kind.scale)


def _pausable() -> tuple[str, ...]:
    return tuple(kind.kind for kind in KINDS if "paused" in kind.spec.model_fields)


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
    from controllers.pool.pools import Pool, parse_pool
    from controllers.shared.vm import disk_names

    if target.kind != POOL_KIND or not disk_names(target.spec.get("template") or {}):
        return ""
    pool = parse_pool(target.document)
    if not isinstance(pool, Pool):
        return ""
    retained = pool.spec.scale_in_strategy.retains_disks
    return f" The disks are {f'retained {retention(pool.spec.retained_disks)}' if retained else 'deleted'}."


def _pause_command(paused: bool) -> Callable[[Target], str]:
    def command(target: Target) -> str:
        if target.kind == POOL_KIND:
            return f"poolhouse rollout {'pause' if paused else 'resume'} {target.name}"
        text = "true" if paused else "false"
        return f'patch {qualified_name(target.kind, target.name)} --type merge -p \'{{"spec":{{"paused":{text}}}}}\''

    return command


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


def _of_pool(change: Callable[[Api, Cluster, str], Awaitable[None]], done: str) -> Run:
    async def run(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
        await change(api, cluster, target.name)
        return f"{target.name} {done}"

    return run


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


SET_ACTS: tuple[Act, ...] = (
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
        patches({"spec": {"paused": True}}, "is paused"),
        may_patch,
        available=lambda target: not target.spec.get("paused"),
    ),
    Act(
        "resume",
        "Resume",
        _pausable(),
        "Ends the pause.",
        _pause_command(False),
        patches({"spec": {"paused": False}}, "is resumed"),
        may_patch,
        available=lambda target: bool(target.spec.get("paused")),
    ),
    Act(
        "promote",
        "Promote",
        (POOL.kind,),
        "Ends the present step of the update, such as a pause, so that the update continues.",
        lambda target: f"{_rollout('promote')(target)}[ --step {{step}}]",
        _promote,
        may_patch,
        fields=(Field("step", "Step", _present_step, "hidden"),),
        available=_has_steps,
    ),
    Act(
        "abort",
        "Abort update",
        (POOL.kind,),
        "VMs get the last template again that all of them had. The pool's template stays.",
        _rollout("abort"),
        _of_pool(updates.abort_update, "returns to its former template"),
        may_patch,
        _restarted,
        available=_updating,
    ),
    Act(
        "retry",
        "Retry update",
        (POOL.kind,),
        "Tries the aborted update again.",
        _rollout("retry"),
        _of_pool(updates.retry_update, "is updated again"),
        may_patch,
        available=_aborted,
    ),
    Act(
        "undo",
        "Undo",
        (POOL.kind,),
        "Gives the pool the template of an earlier revision.",
        lambda target: f"poolhouse rollout undo {target.name}[ --to-revision {{revision}}]",
        _undo,
        may_patch,
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
        _of_pool(updates.restart_vms, "restarts its VMs"),
        may_patch,
        lambda target, values: f"All VMs of {target.name} are restarted, at most maxUnavailable at once.",
    ),
)
