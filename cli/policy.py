"""`poolhouse policy`: which migration policy a VM obeys and why, and what a change of policies would do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from cli.cluster import Cluster, cluster_options
from cli.manifests import Manifest, read_manifests, require_kind
from cli.output import Failed, count_noun, is_structured, output_option, print_structured
from cli.resource_names import complete_names, parse_name, qualified_name
from cli.table import Listing, field

if TYPE_CHECKING:
    from migrationpolicies.explanation import WinnerChange
    from runtime.api import Api

Json = dict[str, Any]

PAGE = 500
NOT_FOUND = 404
IMPACT = Listing(
    (field("NAMESPACE", "namespace"), field("VMI", "name"), field("OBEYS", "before"), field("WOULD OBEY", "after")),
    name=lambda row: qualified_name("VirtualMachineInstance", row["name"]),
)
SOURCES = {"policy": "policy", "kubevirt": "KubeVirt's configuration", "default": "built-in default"}


@click.group()
def policy() -> None:
    """Ask which migration policy a VM obeys, and what a change would do. Nothing is changed by asking."""


@policy.command("explain")
@click.argument(
    "vm", shell_complete=complete_names("virtualmachineinstances", vmi="virtualmachineinstances", vm="virtualmachines")
)
@click.option(
    "--with-label", "labels", multiple=True, metavar="KEY=VALUE", help="Suppose this label of the VMI; KEY- without it."
)
@click.option("--with-policy", "sources", multiple=True, type=click.File("rb"), help="Suppose the policies of a file.")
@click.option("--all", "others", is_flag=True, help="Say of every policy that does not match, why.")
@output_option("text", "name")
@cluster_options
def explain(
    cluster: Cluster, vm: str, labels: tuple[str, ...], sources: tuple[Any, ...], others: bool, output: str
) -> None:
    """Say which policy VM (vmi/NAME, vm/NAME or NAME) obeys, who came after it and why, and each setting that holds."""
    from webhook.explain import PolicyExplainer, parse_question
    from webhook.models import QueryError

    kind, name = parse_name(vm, "VirtualMachineInstance", "VirtualMachine")
    asked = {
        "namespace": cluster.namespace,
        "name": name,
        "withLabels": dict(map(_label, labels)),
        "withPolicies": [each.document for each in _policies(sources)],
    }
    try:
        checked = parse_question(asked)
        told = cluster.run(lambda api: PolicyExplainer(api).explain(checked))
    except QueryError as wrong:
        if wrong.status == NOT_FOUND:
            paths = {each.path for each in wrong.problems}
            raise Failed(_not_found(kind, name, cluster.namespace, paths)) from None
        raise Failed("\n".join(map(str, wrong.problems))) from None
    if is_structured(output):
        print_structured(output, told)
        return
    if output == "name":
        if told["policy"]:
            click.echo(qualified_name("MigrationPolicy", told["policy"]))
        return
    for line in _explained(told, others):
        click.echo(line)


@policy.command("impact")
@click.option("-f", "--filename", "sources", multiple=True, type=click.File("rb"), help="Policies, new or changed.")
@click.option(
    "--without",
    "gone",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_names("migrationpolicies"),
    help="Suppose that this policy were deleted.",
)
@IMPACT.option
@cluster_options
def impact(cluster: Cluster, sources: tuple[Any, ...], gone: tuple[str, ...], output: str) -> None:
    """Say which VMIs, in all namespaces, would obey another policy than now."""
    if not sources and not gone:
        raise click.UsageError("give -f FILE, or --without NAME")
    documents = [each.document for each in _policies(sources)]
    total, hands, warnings = cluster.run(lambda api: _impact(api, documents, gone))
    for warning in () if is_structured(output) else warnings:
        click.echo(f"warning: {warning}", err=True)
    rows = [asdict(hand) for hand in hands]
    said = f"{len(hands) or 'none'} of {count_noun(total, 'VMI')} would change hands"
    IMPACT.show(output, rows, nothing=said, whole={"vmis": total, "changes": rows, "warnings": warnings})
    if hands and output == "text":
        click.echo(said, err=True)


async def _impact(api: Api, documents: list[Json], gone: tuple[str, ...]) -> tuple[int, list[WinnerChange], list[str]]:
    from kinds.migrationpolicy import MIGRATION_POLICY
    from migrationpolicies.conflicts import conflicts, overlaps
    from migrationpolicies.explanation import impact
    from migrationpolicies.precedence import is_active, ranked_policy
    from runtime.resource import VMIS
    from webhook.explain import NAMESPACES, PolicyExplainer

    before = await PolicyExplainer(api).cluster_state()
    after = before.with_policies(documents).without_policies(*gone)
    unknown = set(gone) - {each["metadata"]["name"] for each in before.policies}
    if unknown:
        raise Failed(f"there is no policy {', '.join(sorted(unknown))}")
    there = [ranked_policy(each) for each in after.policies]
    refused = [str(each) for document in documents for each in conflicts(ranked_policy(document), there)]
    if refused:
        raise Failed("\n".join(refused))
    namespaces, _ = await api.list(NAMESPACES)
    instances = [
        (each["metadata"]["namespace"], each["metadata"]["name"], each["metadata"].get("labels") or {})
        async for page, _ in api.pages(VMIS, page=PAGE)
        for each in page
        if is_active(each)
    ]
    around = {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in namespaces}
    warnings = [warning for document in documents for warning in MIGRATION_POLICY.warnings(document)]
    warnings += [warning for document in documents for warning in overlaps(ranked_policy(document), there)]
    return len(instances), impact(instances, around, before, after), warnings


def _policies(sources: Iterable[Any]) -> list[Manifest]:
    """Of all files. Raises `Failed` with all that is wrong."""
    from kinds.migrationpolicy import MIGRATION_POLICY
    from migrationpolicies.conflicts import missing_name

    found = require_kind(
        [each for source in sources for each in read_manifests(source)],
        MIGRATION_POLICY.api_version,
        MIGRATION_POLICY.kind,
    )
    policies = [replace(each, document=MIGRATION_POLICY.normalize(each.document)) for each in found]
    problems = [
        f"{each.place}: {_named(each.document)}: {problem}"
        for each in policies
        for problem in (*missing_name(each.document), *MIGRATION_POLICY.problems(each.document))
    ]
    if problems:
        raise Failed("\n".join(problems))
    return policies


def _not_found(kind: str, name: str, namespace: str, paths: Collection[str]) -> str:
    """As kubectl says it, of what was asked for."""
    if "namespace" in paths:
        return f'namespaces "{namespace}" not found'
    return f'{kind.lower()}s.kubevirt.io "{name}" not found'


def _label(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if equals:
        return key, value
    if key.endswith("-"):
        return key[:-1], None
    raise click.UsageError(f"--with-label {text}: give KEY=VALUE, or KEY- for a label less")


def _named(document: Json) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else None
    return str(name) if name else "a policy without a name"


def _explained(told: Json, others: bool) -> Iterator[str]:
    imagined = told["supposed"] or told["halted"]
    obeys = "would obey" if imagined else "obeys"
    whom = (told["policy"] or "no policy") + (", if it ran" if told["halted"] else "")
    yield f"{told['namespace']}/{told['name']} {obeys} {whom}: {told['reason']}"
    for place, each in enumerate(told["candidates"], 1):
        matched = [f"{key}={value or '(empty)'}" for key, value in each["labels"]["virtualMachineInstance"].items()]
        matched += [f"namespace {key}={value}" for key, value in each["labels"]["namespace"].items()]
        yield f"  {place}. {each['name']}: {', '.join(matched)}"
        if place > 1:
            yield f"     {each['reason']}"
    for each in told["others"] if others else ():
        yield f"  -  {each['name']}: {each['reason']}"
    width = max(map(len, told["settings"]))
    for name, setting in told["settings"].items():
        source = f"policy {setting['from']}" if setting["source"] == "policy" else SOURCES[setting["source"]]
        yield f"  {name:<{width}}  {_said(setting['value']):<8}  {source}"
    for note in told["notes"]:
        yield f"note: {note}"
    if not imagined and told["stamped"] != told["policy"]:
        yield f"note: it is not stamped so yet: its label says {told['stamped'] or 'nothing'}"


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
