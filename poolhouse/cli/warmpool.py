"""`poolhouse warmpool`: the status of warm pools, inconsistencies, and the import of the Virtual Kubelet's pools."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.apimachinery.yaml_reader import InvalidYAML, load
from poolhouse.cli.cluster import Cluster, all_namespaces, cluster_options
from poolhouse.cli.command_group import CommandGroup
from poolhouse.cli.health import assess, format_age
from poolhouse.cli.manifests import as_list, print_manifests
from poolhouse.cli.output import Column, Failed, Listing, echo, field, install_extra, output_option, print_json
from poolhouse.cli.overview import STATE
from poolhouse.cli.parameters import WARM_POOL, qualified_name
from poolhouse.cli.sizing import advise, why

if TYPE_CHECKING:
    from controllers.claim.doctor import Finding
    from controllers.warmpool.ec2.client import Boto3EC2Client
    from controllers.warmpool.warm_pool import WarmPool
    from poolhouse.cli.virtual_kubelet import Target
    from poolhouse.runtime.api import Api

RECHECK_SECONDS = 3.0
"""pause between two checks; only findings of both checks count, because VMs and claims can change between the lists"""

COUNTS = ("provisioning", "allocating", "claimed", "unhealthy", "unknown", "terminating", "orphaned")

STATUS = Listing(
    (
        field("NAME", "name"),
        field("DESIRED", "desired"),
        field("READY", "ready"),
        field("CLAIMED", "claimed"),
        field("QUEUED", "queuedClaims"),
        field("AGE", "age"),
        field("DEFAULT", "default", wide=True),
        Column("VMS", lambda row: ", ".join(f"{row[count]} {count}" for count in COUNTS if row[count]), wide=True),
        Column("FAILURES", lambda row: (row["failures"] or {}).get("consecutive"), wide=True),
        STATE,
        field("MESSAGE", "message"),
    ),
    name=lambda row: qualified_name("VirtualMachineWarmPool", row["name"]),
)


def _result(row: Json) -> str:
    if row["problems"]:
        return "refused"
    return "adopted" if row["adopted"] else "can be adopted"


ADOPTIONS = Listing(
    (
        field("INSTANCE", "instance"),
        Column("RESULT", _result),
        Column("MESSAGE", lambda row: "; ".join(row["problems"])),
    )
)
FINDINGS = Listing(
    (
        field("PROBLEM", "problem"),
        field("NAME", "name"),
        Column("FIX", lambda row: "deleted" if row["fixed"] else "--fix deletes it" if row["fixable"] else None),
        field("MESSAGE", "message"),
    )
)


@click.group(cls=CommandGroup)
def warmpool() -> None:
    """Inspect and size warm pools, and import pools of a Virtual Kubelet."""


warmpool.add_command(advise)
warmpool.add_command(why)


@warmpool.command()
@click.argument("pool", type=WARM_POOL, required=False)
@STATUS.option
@all_namespaces
@cluster_options
def status(cluster: Cluster, pool: str | None, output: str) -> None:
    """Print the VMs, the queued claims and the health of each warm pool."""

    async def read(api: Api) -> list[Json]:
        from poolhouse.cli.resources import WARM_POOLS

        if pool:
            return [await api.get(WARM_POOLS, cluster.namespace, pool)]
        return (await api.list(WARM_POOLS, cluster.scope))[0]

    if pool and cluster.everywhere:
        raise click.UsageError("several namespaces can have a pool of this name; leave out the name or -A")
    now = datetime.now(UTC)
    rows = [pool_row(each, now) for each in cluster.run(read)]
    STATUS.show(output, rows, nothing=f"there is no warm pool in {cluster.place}", everywhere=cluster.everywhere)


def pool_row(document: Json, now: datetime) -> Json:
    """Returns the row of a pool, with all fields of its status. Missing counts are 0."""
    spec, pool_status, health = document["spec"], document.get("status") or {}, assess(document)
    return {
        "namespace": document["metadata"].get("namespace"),
        "name": document["metadata"]["name"],
        "default": bool(spec.get("default")),
        "desired": pool_status.get("desiredReplicas", spec.get("replicas", 1)),
        "ready": pool_status.get("availableReplicas", 0),
        "age": format_age(document, now),
        "state": health.state,
        "message": health.message,
        "failures": None,
        **dict.fromkeys((*COUNTS, "queuedClaims"), 0),
        **pool_status,
    }


@warmpool.command()
@click.argument("pool", type=WARM_POOL)
@click.argument("instances", metavar="[INSTANCE]...", nargs=-1)
@click.option("--orphaned", is_flag=True, help="All orphaned instances of the pool's namespace.")
@click.option("--region", metavar="REGION", help="AWS region of the instances. Default: boto3's.")
@click.option("--yes", is_flag=True, help="Adopt the instances. Without it, nothing is changed.")
@ADOPTIONS.option
@cluster_options
def adopt(
    cluster: Cluster,
    pool: str,
    instances: tuple[str, ...],
    orphaned: bool,
    region: str | None,
    yes: bool,
    output: str,
) -> None:
    """Adopt EC2 instances that no pool manages: orphaned ones, or those that a Virtual Kubelet launched.

    An instance must have what the pool's template asks for, and must never have been used. The command tags it with
    your own AWS credentials; the controllers then check its health. Exits with 1 if an instance is refused.
    """
    if bool(instances) == orphaned:
        raise click.UsageError("name the instances, or give --orphaned")
    rows = cluster.run(lambda api: adopt_instances(api, cluster.namespace, pool, instances, region, write=yes))
    ADOPTIONS.show(output, rows, nothing="there are no orphaned instances", everywhere=False)
    if refused := sum(bool(row["problems"]) for row in rows):
        raise Failed(f"{count_noun(refused, 'instance')} refused")
    if rows and not yes and output in ("table", "wide"):
        echo("nothing was changed; give --yes to adopt", err=True)


def _ec2_client(region: str | None) -> Boto3EC2Client:
    """Raises `Failed` without boto3 or a region."""
    from controllers.warmpool.ec2.settings import EC2Settings
    from poolhouse.runtime.errors import Invalid

    try:
        from controllers.warmpool.ec2.client import Boto3EC2Client
    except ImportError as error:
        raise Failed(f"boto3 is not installed: {install_extra('cli,ec2')}") from error
    try:
        return Boto3EC2Client(EC2Settings(region=region or ""))
    except Invalid as error:
        raise Failed(f"{error}: give --region, or set AWS_DEFAULT_REGION") from error


async def _pool_of_instances(api: Api, namespace: str, name: str) -> WarmPool:
    """Raises `Failed` if the pool is not valid or has no EC2 instances."""
    from controllers.warmpool.warm_pool import InvalidWarmPool, parse_warm_pool
    from poolhouse.cli.resources import WARM_POOLS

    pool = parse_warm_pool(await api.get(WARM_POOLS, namespace, name))
    if isinstance(pool, InvalidWarmPool):
        raise Failed(f"warm pool {name} is not valid: {pool.problem}")
    if pool.spec.ec2 is None:
        raise Failed(f"warm pool {name} has VMs; only instances of EC2 can be adopted")
    return pool


async def adopt_instances(
    api: Api, namespace: str, name: str, instances: tuple[str, ...], region: str | None, *, write: bool
) -> list[Json]:
    """Checks each instance, and adopts those without a problem if `write`. Without `instances`, all orphaned ones."""
    from controllers.warmpool.ec2 import tags
    from controllers.warmpool.ec2.adoption import adoption
    from controllers.warmpool.ec2.poller import LISTED_STATES
    from poolhouse.api.kinds import meta
    from poolhouse.runtime.resource import NAMESPACES

    pool = await _pool_of_instances(api, namespace, name)
    uid = (await api.get(NAMESPACES, None, "kube-system"))["metadata"]["uid"]
    client = _ec2_client(region)
    orphans = {"tag-key": [meta.ORPHANED], f"tag:{tags.NAMESPACE}": [namespace]}
    filters: dict[str, Iterable[str]] = {"instance-id": instances} if instances else {**orphans}
    found = {
        each["InstanceId"]: each for each in await client.describe({**filters, "instance-state-name": LISTED_STATES})
    }
    desired = pool.spec.replicas if pool.spec.autoscaling is None else pool.status.desired_replicas or 0
    room = max(0, desired - pool.status.replicas)
    rows: list[Json] = []
    for instance_id in instances or found:
        if instance_id not in found:
            problems: tuple[str, ...] = ("is not an instance of this region and account",)
        elif not instances and not tags.from_aws(found[instance_id]).get(meta.ORPHANED):
            continue  # a pool has adopted it; the tag is empty
        else:
            decision = adoption(found[instance_id], pool, uid, datetime.now(UTC))
            problems = decision.problems
            if not problems and room == 0:
                problems = (
                    f"the pool has its {count_noun(desired, 'replica')} and would delete it; raise spec.replicas",
                )
            elif not problems:
                room -= 1
                if write:
                    await client.tag(instance_id, decision.tags)
        rows.append({"instance": instance_id, "problems": list(problems), "adopted": write and not problems})
    return rows


@warmpool.command()
@click.option("--fix", is_flag=True, help="Delete the VMs that belong to no claim and that no claim can get.")
@FINDINGS.option
@all_namespaces
@cluster_options
def doctor(cluster: Cluster, fix: bool, output: str) -> None:
    """Find VMs that have no owner, are locked or have two owners, and claims that contradict their VM.

    Exits with 1 if any problem is left.
    """

    async def check(api: Api) -> list[tuple[str, Finding, bool]]:
        found = await examine(api, cluster.scope)
        return [(namespace, each, fix and await _fix(api, each)) for namespace, each in found]

    found = cluster.run(check)
    rows = [
        {
            "namespace": namespace,
            "problem": each.problem,
            "name": each.name,
            "message": each.message,
            "fixable": each.delete is not None,
            "fixed": fixed,
        }
        for namespace, each, fixed in found
    ]
    FINDINGS.show(output, rows, nothing="no problems found", everywhere=cluster.everywhere)
    if left := sum(not fixed for _, _, fixed in found):
        raise Failed(f"{count_noun(left, 'problem')} left")


async def examine(
    api: Api, namespace: str | None, recheck_seconds: float = RECHECK_SECONDS
) -> list[tuple[str, Finding]]:
    """Checks twice, and returns the findings that both checks report, with their namespaces."""

    def identity(where: str, each: Finding) -> tuple[str, str, str]:
        return where, each.problem, each.name

    if not (before := {identity(*found) for found in await _findings(api, namespace)}):
        return []
    await asyncio.sleep(recheck_seconds)
    return [found for found in await _findings(api, namespace) if identity(*found) in before]


async def _findings(api: Api, namespace: str | None) -> list[tuple[str, Finding]]:
    from controllers.claim.doctor import findings
    from controllers.claim.snapshot import parse_claim
    from controllers.warmpool.warm_pool import parse_warm_pool
    from controllers.warmpool.warm_vm import parse_warm_vm
    from poolhouse.api.kinds import meta
    from poolhouse.cli.resources import CLAIMS, WARM_POOLS
    from poolhouse.runtime.resource import VMS

    # The VMs are listed first. The later list of claims therefore contains the claim of every listed VM.
    vm_documents, _ = await api.list(VMS, namespace, label_selector=meta.WARM_STATE)
    answers = await asyncio.gather(api.list(CLAIMS, namespace), api.list(WARM_POOLS, namespace))
    vms, claims = [*map(parse_warm_vm, vm_documents)], [*map(parse_claim, answers[0][0])]
    pools = [*map(parse_warm_pool, answers[1][0])]
    # The times in the objects are those of the API server, whose clock can differ from the local clock.
    found, now = [], api.now()
    for place in sorted({each.namespace for each in vms} | {each.namespace for each in claims}):
        vms_here = [each for each in vms if each.namespace == place]
        claims_here = [each for each in claims if each.namespace == place]
        pools_here = [each for each in pools if each.namespace == place]
        found += [(place, each) for each in findings(vms_here, claims_here, pools_here, now)]
    return found


async def _fix(api: Api, finding: Finding) -> bool:
    from poolhouse.runtime.errors import Conflict, NotFound
    from poolhouse.runtime.resource import VMS

    if (vm := finding.delete) is None:
        return False
    try:
        await api.delete(VMS, vm.namespace, vm.name, uid=vm.uid, resource_version=vm.resource_version)
    except NotFound:
        return True
    except Conflict:  # another client has changed the VM
        return False
    return True


@warmpool.command("import")
@click.argument("source", metavar="CONFIG", type=click.File("rb"))
@click.option("--to", type=click.Choice(["ec2", "vm"]), default="ec2", show_default=True, help="Backend of the pools.")
@click.option("-n", "--namespace", default="", help="Namespace in the manifests.")
@click.option("--name-prefix", default="warmpool", show_default=True, help="Names are PREFIX-1, PREFIX-2, ...")
@click.option(
    "--management-subnet", default="", metavar="SUBNET", help="For pools without Subnets, if CONFIG has none."
)
@click.option("--iam-instance-profile", default="", metavar="NAME", help="For pools without IamInstanceProfile.")
@output_option("yaml", "json")
def import_(
    source: Any,
    to: str,
    namespace: str,
    name_prefix: str,
    management_subnet: str,
    iam_instance_profile: str,
    output: str,
) -> None:
    """Convert the WarmPoolConfig in CONFIG to manifests of warm pools, and print them. Nothing is created.

    CONFIG is a config.json of the AWS Virtual Kubelet, a ConfigMap that contains one, a WarmPoolConfig alone, or - for
    stdin. All missing and contradictory values are reported at the end.
    """
    from poolhouse.cli.virtual_kubelet import ImportOptions, import_config

    options = ImportOptions(cast("Target", to), namespace, name_prefix, management_subnet, iam_instance_profile)
    found = import_config(_read_config(source.read(), getattr(source, "name", "standard input")), options)
    if not found.problems:
        if output == "json":
            print_json(as_list(found.manifests))
        else:
            print_manifests(output, found.manifests)
    for remark in found.remarks:
        echo(f"note: {remark}", err=True)
    if found.problems:
        raise Failed("\n".join(map(str, found.problems)))


def _read_config(content: bytes, name: str) -> Any:
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise Failed(f"{name}: invalid UTF-8: {error}") from None
    config = _parse(text, name)
    if isinstance(config, dict) and config.get("kind") == "ConfigMap":
        data = config.get("data")
        found = [each for each in (data if isinstance(data, dict) else {}).values() if "WarmPoolConfig" in str(each)]
        if len(found) != 1:
            raise Failed(f"{name}: the ConfigMap must have one entry with a WarmPoolConfig, not {len(found)}")
        config = _parse(str(found[0]).strip(), name)
    return {"WarmPoolConfig": config} if isinstance(config, list) else config


def _parse(text: str, name: str) -> Any:
    """Parses JSON, a field of a JSON object without its braces, or YAML."""
    if text.startswith('"'):
        text = f"{{{text.rstrip(',')}}}"
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        if text.startswith(("{", "[")):
            raise Failed(f"{name}: invalid JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise Failed(f"{name}: {error}") from None
    try:
        return load(text)
    except InvalidYAML as error:
        raise Failed(f"{name}: neither JSON nor YAML: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    counts = Counter(key for key, _ in pairs)
    if duplicates := sorted(key for key, count in counts.items() if count > 1):
        raise ValueError(f"duplicate fields in one object: {', '.join(duplicates)}")
    return dict(pairs)
