"""Explains a claim, for `poolhouse why vmclaim/NAME`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.owner_references import controlling_pod
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.claim_status import FINISHED, describe, to_the_second
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.doctor import with_outage
from poolhouse.cli.output import echo, is_structured, print_structured
from poolhouse.cli.parameters import spellings
from poolhouse.cli.past import events_about

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

KIND = "VirtualMachineClaim"


def claim_name(text: str) -> str:
    """The name in vmclaim/NAME, in any spelling of the kind; empty for other texts."""
    prefix, _, name = text.partition("/")
    return name if prefix.partition(".")[0].lower() in spellings(KIND) and "/" not in name else ""


def show_claim(cluster: Cluster, name: str, output: str) -> None:
    show(cluster, lambda api: _explain(api, cluster.namespace, name), output)


def show(cluster: Cluster, explain: Callable[[Api], Awaitable[Json]], output: str) -> None:
    """Prints the message, the facts and the Events of an explanation."""
    found = cluster.run(lambda api: with_outage(api, cluster, explain(api)))
    if is_structured(output):
        print_structured(output, found)
        return
    echo(found["message"])
    for fact in found["present"]:
        echo(f"  now   {fact}")
    for each in found["past"]:
        echo(f"  {to_the_second(each['time'])}  {each['reason']}: {each['note']}")


async def _explain(api: Api, namespace: str, name: str) -> Json:
    from poolhouse.cli.resources import CLAIMS

    claim = await api.get(CLAIMS, namespace, name)
    status = claim.get("status") or {}
    return {
        "claim": name,
        "uid": claim["metadata"]["uid"],
        "phase": status.get("phase") or "Pending",
        "message": describe(name, status),
        "present": list(facts(claim)),
        "past": past(await events_about(api, namespace, name), claim["metadata"]["uid"]),
    }


def facts(claim: Json) -> Iterator[str]:
    """Whose claim it is, of which pool, and when it ends."""
    from poolhouse.api.kinds import meta

    metadata, status = claim["metadata"], claim.get("status") or {}
    requester = (metadata.get("annotations") or {}).get(meta.REQUESTER)
    yield f"it was created at {metadata['creationTimestamp']}" + (f" by {requester}" if requester else "")
    if status.get("finishedAt"):
        gone = "its VM is deleted" if status.get("boundAt") else "it never had a VM"
        yield f"it has ended at {to_the_second(status['finishedAt'])}; {gone}"
        return
    if status.get("phase") not in FINISHED:
        yield from (c["message"] for c in status.get("conditions") or () if c["type"] == "Evicting")
        yield _end(claim)


def _end(claim: Json) -> str:
    """What a claim waits for, or what ends it."""
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    if spec.get("release"):
        return "its release was requested, and no controller has released it yet"
    if not status.get("boundAt"):
        pool = status.get("poolName") or spec.get("poolName")
        which = f"the warm pool {pool}" if pool else "the default warm pool of the namespace"
        command = f"; `poolhouse warmpool why {pool}` explains the pool" if pool else ""
        return f"it waits for a VM of {which}{command}"
    if status.get("expiresAt"):
        return f"it ends at {to_the_second(status['expiresAt'])}; `poolhouse claim extend` moves the end"
    if owner := controlling_pod(claim):
        return f"it ends with Pod {owner['name']}"
    return "it has no time limit; `poolhouse release` ends it"


def past(events: Sequence[Json], uid: str) -> list[Json]:
    """The Events about the claim, the oldest first."""
    from poolhouse.runtime.events import last_observed

    about = [each for each in events if (each.get("regarding") or {}).get("uid") == uid]
    rows = [{"time": last_observed(each), "reason": each.get("reason"), "note": each.get("note")} for each in about]
    return sorted(rows, key=lambda row: str(row["time"]))
