"""The acts that start, stop, restart and pause a VM, by KubeVirt's subresources with the rights of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from controllers.shared.subresources import RESOURCES, Verb
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.cluster import Cluster
from poolhouse.console.act import VM, Act, Run, Target, Values, nothing
from poolhouse.console.cluster_state import Right

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

OFF = ("", "Stopped", "Stopping", "Terminating")
"""values of a VM's printableStatus with which nothing can be stopped"""


def _act(
    verb: Verb,
    label: str,
    help: str,
    done: str,
    when: Callable[[str], bool],
    destroys: Callable[[Target, Values], str] = nothing,
) -> Act:
    return Act(
        f"vm-{verb}",  # a pool has an act `restart`, too
        label,
        (VM,),
        help,
        lambda target: f"virt {verb} {'vm ' if verb in ('pause', 'unpause') else ''}{target.name}",
        _run(verb, done),
        lambda target: Right("update", RESOURCES[verb], verb),
        destroys,
        available=lambda target: not waits_in_warm_pool(target) and when(_status(target)),
    )


def _run(verb: Verb, done: str) -> Run:
    async def run(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
        await api.put_subresource(RESOURCES[verb], target.namespace, target.name, verb)
        return f"{target.name} {done}"

    return run


def _status(target: Target) -> str:
    return str(target.status.get("printableStatus") or "")


def waits_in_warm_pool(target: Target) -> bool:
    """Whether the warm pool decides if the VM runs."""
    return (controller_of(target.document) or {}).get("kind") == WARM_POOL.kind


def _ends_guest(target: Target, values: Values) -> str:
    return f"The guest of {target.name} is shut down, and what it has only in memory is lost."


POWER_ACTS = (
    _act("start", "Start", "Starts the VM.", "starts", lambda status: status == "Stopped"),
    _act("stop", "Stop", "Shuts the guest down.", "stops", lambda status: status not in OFF, _ends_guest),
    _act(
        "restart",
        "Restart",
        "Shuts the guest down and starts it again.",
        "restarts",
        lambda status: status in ("Running", "Paused"),
        _ends_guest,
    ),
    _act("pause", "Pause", "Freezes the guest; its memory stays.", "is paused", lambda status: status == "Running"),
    _act("unpause", "Unpause", "Lets a frozen guest go on.", "goes on", lambda status: status == "Paused"),
)
