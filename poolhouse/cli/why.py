"""Implements `poolhouse why`, which explains past, present and planned actions on a VM of a pool or replica set."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import UID_LENGTH
from poolhouse.cli.claim_status import to_the_second
from poolhouse.cli.cluster import Cluster, all_namespaces, cluster_options
from poolhouse.cli.completion import complete_names
from poolhouse.cli.doctor import with_outage
from poolhouse.cli.output import Failed, Listing, echo, field, is_structured, output_option, print_structured
from poolhouse.cli.parameters import parse_name, spellings
from poolhouse.cli.past import VM_KINDS, deletions
from poolhouse.cli.why_claim import claim_name, show_claim
from poolhouse.cli.why_pod import pod_name, show_pod
from poolhouse.cli.why_vm import explain, owners

FORMS = "NAME or NAME/UID of a VM, vm/NAME, vmi/NAME, vmclaim/NAME or pod/NAME"
EXPLAINED_BY = {
    "VirtualMachinePool": "rollout status",
    "VirtualMachineWarmPool": "warmpool why",
    "MigrationPolicy": "policy explain",
}
"""commands that explain objects of other kinds"""
WARM_POOL_KIND = "VirtualMachineWarmPool"
DELETED = Listing(
    (
        field("TIME", "time"),
        field("VM", "vm"),
        field("OWNER", "owner"),
        field("REASON", "reason"),
        field("MESSAGE", "message"),
    )
)
_REFERENCE = re.compile(r"(?P<name>.+)/(?P<uid>[0-9a-f][0-9a-f-]{0,35})")


def _needs_name(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Refuses a command without VM before it looks for a cluster."""
    if (name is None) is not context.params.get("deleted", False) and not context.resilient_parsing:
        raise click.UsageError("give the name of a VM, vmclaim/NAME, pod/NAME, or --deleted")
    return name


@click.command()
@click.argument(
    "name",
    metavar="[VM]",
    required=False,
    callback=_needs_name,
    shell_complete=complete_names(
        "virtualmachines",
        "virtualmachineinstances",
        vm="virtualmachines",
        vmi="virtualmachineinstances",
        vmclaim="virtualmachineclaims",
    ),
)
@click.option("--deleted", is_flag=True, is_eager=True, help="List the VMs that were deleted, in place of VM.")
@output_option("text")
@all_namespaces
@cluster_options
def why(cluster: Cluster, name: str | None, deleted: bool, output: str) -> None:
    """Explain what the controllers did to a VM and why, what the VM waits for, and the next actions.

    VM may be deleted. If several VMs had the name, VM/UID chooses one, with the first characters of its UID, as the
    statuses of pools write it. The past comes from events, which the cluster keeps for an hour, and from the logs of
    decisions in the statuses of pools, replica sets and warm pools, which keep the last hundreds of deletions. The next
    actions are simulated with the controllers' own code.

    vmclaim/NAME explains a claim: what it waits for, whose it is, and when it ends. pod/NAME explains a Pod of the
    virtual node, by its claim.

    With --deleted, list the deleted VMs that these logs have, the last deletion last.
    """
    if cluster.everywhere and not deleted:
        raise click.UsageError("-A needs --deleted; give the namespace of the VM with -n")
    if name is None:
        hidden: list[str] = []
        rows = deletions(cluster.run(lambda api: owners(api, cluster.scope, hidden)))
        if hidden and not rows:
            where = "all namespaces; choose one with -n" if cluster.everywhere else cluster.place
            raise Failed(f"you may not list {', '.join(hidden)}, which have the logs of deletions, in {where}")
        if hidden:
            echo(f"not shown, because you may not list them: {', '.join(hidden)}", err=True)
        nothing = f"no log of a pool, replica set or warm pool has a deleted VM in {cluster.place}"
        DELETED.show(output, rows, nothing=nothing, everywhere=cluster.everywhere)
        return
    if claim := claim_name(name):
        show_claim(cluster, claim, output)
        return
    if pod := pod_name(name):
        show_pod(cluster, pod, output)
        return
    vm, uid = parse_reference(name)
    found = cluster.run(lambda api: with_outage(api, cluster, explain(api, cluster.namespace, vm, uid)))
    if is_structured(output):
        print_structured(output, found)
        return
    for line in _lines(found):
        echo(line)


def parse_reference(text: str) -> tuple[str, str]:
    """Returns name and UID of NAME, KIND/NAME, NAME/UID or KIND/NAME/UID; the UID may be empty, or its beginning."""
    try:
        return parse_name(text, *VM_KINDS)[1], ""
    except click.UsageError:
        if (found := _REFERENCE.fullmatch(text)) is None:
            for kind, command in EXPLAINED_BY.items():
                if text.partition("/")[0].partition(".")[0].lower() in spellings(kind):
                    raise click.UsageError(f"{text!r} is not a VM; `poolhouse {command}` explains it") from None
            raise click.UsageError(f"{text!r} is invalid: give {FORMS}") from None
    try:
        return parse_name(found["name"], *VM_KINDS)[1], found["uid"]
    except click.UsageError:
        raise click.UsageError(f"{text!r} is invalid: give {FORMS}") from None


def _lines(found: Json) -> Iterator[str]:
    others = found["others"]
    # Beside another VM of the name, the name alone could mean either.
    vm = f"{found['vm']}/{found['uid'][:UID_LENGTH]}" if any(each["exists"] for each in others) else found["vm"]
    yield f"{vm} {_membership(found)}"
    for fact in found["present"]:
        yield f"  now   {fact}"
    for each in others:
        if each["exists"]:
            yield f"  now   {each['vm']} has the name: `poolhouse why {found['vm']}` explains it"
        else:
            said = _sentence(each["deletion"]) if each["deletion"] else f"it was last mentioned at {each['last']}"
            yield f"  once  {each['vm']}: {said}"
    for each in found["past"]:
        client = f" ({each['setBy']} had set the spec)" if each.get("setBy") else ""
        yield f"  {to_the_second(each['time'])}  {each['reason']}: {each['note']}{client}"
    for each in found["next"]:
        yield f"  next  {each['action']}: {each['reason']}"


def _membership(found: Json) -> str:
    """Of which set the VM is a member, or that it does not exist."""
    noun, owner = ("replica set", found["replicaSet"]) if "replicaSet" in found else ("pool", found["pool"])
    kind, _, controller = (found.get("controller") or "").partition(" ")
    if not found["exists"]:
        return "does not exist" + (f": {_sentence(found['deletion'])}" if found["deletion"] else "")
    if found["member"]:
        return f"is in {owner}"
    if kind == WARM_POOL_KIND:
        return f"is in the warm pool {controller}; `poolhouse warmpool why {controller}` explains the pool"
    if kind:
        return f"is in no {noun}: {kind} {controller} controls it"
    return f"is in no {noun}" + (f"; it was in {owner}" if owner else "")


def _sentence(deletion: Json) -> str:
    """Who deleted a VM, when and why."""
    if deletion["reason"] == "DeletedByOther":
        return f"it was deleted at {deletion['time']}: {deletion['note']}"
    client = f"; {deletion['setBy']} had set spec.replicas" if deletion.get("setBy") else ""
    return f"{deletion['owner']} deleted it at {deletion['time']}: {deletion['note']}{client}"
