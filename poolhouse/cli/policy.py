"""Implements `poolhouse policy`, which explains migration policies and simulates changes of policies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, value_text
from poolhouse.cli.cluster import Cluster, cluster_options
from poolhouse.cli.command_group import CommandGroup
from poolhouse.cli.completion import complete_names
from poolhouse.cli.manifests import Manifest, read_manifests, require_kind
from poolhouse.cli.output import Failed, Listing, echo, field, is_structured, output_option, print_structured
from poolhouse.cli.parameters import parse_name, qualified_name

if TYPE_CHECKING:
    from datetime import datetime

    from poolhouse.api.migrationpolicies.explanation import WinnerChange
    from poolhouse.api.migrationpolicies.precedence import RankedPolicy
    from poolhouse.runtime.api import Api


PAGE = 500
NOT_FOUND = 404
IMPACT = Listing(
    (
        field("NAMESPACE", "namespace"),
        field("VMI", "name"),
        field("POLICY", "before"),
        field("NEW POLICY", "after"),
    ),
    name=lambda row: qualified_name("VirtualMachineInstance", row["name"]),
)
SOURCES = {"policy": "policy", "kubevirt": "KubeVirt's configuration", "default": "built-in default"}


@click.group(cls=CommandGroup)
def policy() -> None:
    """Explain which migration policy a VM uses, and simulate changes. Nothing is changed."""


@policy.command("explain")
@click.argument(
    "vm", shell_complete=complete_names("virtualmachineinstances", vmi="virtualmachineinstances", vm="virtualmachines")
)
@click.option(
    "--with-label", "labels", multiple=True, metavar="KEY=VALUE", help="Assume this label on the VMI; KEY- removes one."
)
@click.option("--with-policy", "sources", multiple=True, type=click.File("rb"), help="Assume the policies of a file.")
@click.option("--all", "others", is_flag=True, help="Explain also why each other policy does not match.")
@output_option("text", "name")
@cluster_options
def explain(
    cluster: Cluster, vm: str, labels: tuple[str, ...], sources: tuple[Any, ...], others: bool, output: str
) -> None:
    """Print the winning policy of VM (NAME, vmi/NAME or vm/NAME), the other matches, and the effective settings.

    Policies of --with-policy are assumed to be applied with `kubectl apply`. Without the right to list policies in the
    whole cluster, you see the policy that the label of the VMI names.
    """
    from poolhouse.runtime.errors import Forbidden
    from webhook.explain import PolicyExplainer, parse_question
    from webhook.models import QueryError

    kind, name = parse_name(vm, "VirtualMachineInstance", "VirtualMachine")
    asked = {"namespace": cluster.namespace, "name": name, "withLabels": dict(map(_label, labels))}
    manifests = _policies(sources)

    async def answered(api: Api) -> Json:
        explainer = PolicyExplainer(api)
        checked = parse_question({**asked, "withPolicies": await _applied(api, manifests)})
        try:
            return await explainer.explain(checked)
        except Forbidden as error:
            return await explainer.explain_by_label(checked, error)

    try:
        parse_question(asked)  # which refuses invalid names and labels before a cluster is looked for
        answer = cluster.run(answered)
    except QueryError as error:
        if error.status == NOT_FOUND:
            paths = {each.path for each in error.problems}
            raise Failed(_not_found(kind, name, cluster.namespace, paths)) from None
        raise Failed("\n".join(map(str, error.problems))) from None
    if is_structured(output):
        print_structured(output, answer)
        return
    if output == "name":
        if answer["policy"]:
            echo(qualified_name("MigrationPolicy", answer["policy"]))
        return
    for line in _lines(answer, others):
        echo(line)


@policy.command("impact")
@click.option("-f", "--filename", "sources", multiple=True, type=click.File("rb"), help="New or changed policies.")
@click.option(
    "--without",
    "gone",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_names("migrationpolicies"),
    help="Assume that this policy is deleted.",
)
@IMPACT.option
@cluster_options
def impact(cluster: Cluster, sources: tuple[Any, ...], gone: tuple[str, ...], output: str) -> None:
    """List the VMIs of all namespaces that would get another policy.

    With -f, the policies are assumed to be applied with `kubectl apply`: fields that the file does not have keep their
    values, unless an earlier `kubectl apply` has set them."""
    if not sources and not gone:
        raise click.UsageError("give -f FILE, or --without NAME")
    manifests = _policies(sources)

    async def simulated(api: Api) -> tuple[int, list[WinnerChange], list[str]]:
        return await impact_of(api, await _applied(api, manifests), gone)

    total, changes, warnings = cluster.run(simulated)
    for warning in () if is_structured(output) else warnings:
        echo(f"warning: {warning}", err=True)
    rows = [asdict(change) for change in changes]
    summary = f"{len(changes) or 'none'} of {count_noun(total, 'VMI')} would get another policy"
    IMPACT.show(output, rows, nothing=summary, whole={"vmis": total, "changes": rows, "warnings": warnings})
    if changes and output == "text":
        echo(summary, err=True)


async def impact_of(
    api: Api, documents: list[Json], gone: tuple[str, ...]
) -> tuple[int, list[WinnerChange], list[str]]:
    """How many VMIs there are, which of them would get another policy, and warnings. Raises `Failed` for a conflict.
    `documents` are whole policies, as the API server would store them."""
    from poolhouse.api.migrationpolicies.conflicts import conflicts
    from poolhouse.api.migrationpolicies.explanation import impact
    from poolhouse.api.migrationpolicies.precedence import is_active, ranked_policy
    from poolhouse.runtime.resource import NAMESPACES, VMIS
    from webhook.explain import PolicyExplainer

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
    vmis = [
        (each["metadata"]["namespace"], each["metadata"]["name"], each["metadata"].get("labels") or {})
        async for page, _ in api.pages(VMIS, page=PAGE)
        for each in page
        if is_active(each)
    ]
    namespace_labels = {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in namespaces}
    warnings = [warning for document in documents for warning in _warnings(document, there, after.kubevirt, api.now())]
    return len(vmis), impact(vmis, namespace_labels, before, after), warnings


def _warnings(document: Json, others: Iterable[RankedPolicy], kubevirt: Json, now: datetime) -> Iterator[str]:
    from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
    from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
    from poolhouse.api.migrationpolicies.conflicts import overlaps
    from poolhouse.api.migrationpolicies.precedence import ranked_policy
    from poolhouse.api.migrationpolicies.present_effect import without_effect

    yield from MIGRATION_POLICY.warnings(document)
    yield from overlaps(ranked_policy(document), others)
    yield from without_effect(document, ClusterSettings.of(kubevirt), now)


def _policies(sources: Iterable[Any]) -> list[Manifest]:
    """Returns the policies of all files. Raises `Failed` for objects that are no policies or have no valid name."""
    from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
    from poolhouse.api.migrationpolicies.conflicts import missing_name

    found = require_kind(
        [each for source in sources for each in read_manifests(source)],
        MIGRATION_POLICY.api_version,
        MIGRATION_POLICY.kind,
    )
    policies = [replace(each, document=MIGRATION_POLICY.normalize(each.document)) for each in found]
    # Other fields are checked with those of the stored policy, because the file may have only some of them.
    _refuse(
        (each, problem)
        for each in policies
        for problem in (*missing_name(each.document), *MIGRATION_POLICY.problems(each.document))
        if problem.path.partition(".")[0] == "metadata"
    )
    return policies


async def _applied(api: Api, manifests: Iterable[Manifest]) -> list[Json]:
    """Returns the policies as the API server would store them after `kubectl apply`. Raises `Failed` with all
    problems."""
    from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
    from poolhouse.cli.apply import read_change

    changes = [(each, await read_change(api, MIGRATION_POLICY, each.document)) for each in manifests]
    _refuse((manifest, problem) for manifest, change in changes for problem in change.problems())
    return [change.merged for _, change in changes]


def _refuse(problems: Iterable[tuple[Manifest, Problem]]) -> None:
    found = [f"{manifest.place}: {_named(manifest.document)}: {problem}" for manifest, problem in problems]
    if found:
        raise Failed("\n".join(found))


def _not_found(kind: str, name: str, namespace: str, paths: Collection[str]) -> str:
    """Returns kubectl's message for an object that does not exist, with the namespace."""
    if "namespace" in paths:
        return f'namespaces "{namespace}" not found'
    return f'{kind.lower()}s.kubevirt.io "{name}" not found in namespace {namespace}'


def _label(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if equals:
        return key, value
    if key.endswith("-"):
        return key[:-1], None
    raise click.UsageError(f"--with-label {text}: give KEY=VALUE, or KEY- to remove a label")


def _named(document: Json) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else None
    return str(name) if name else "a policy without a name"


def _lines(answer: Json, others: bool) -> Iterator[str]:
    hypothetical = answer["supposed"] or answer["halted"]
    obeys = "would use" if hypothetical else "uses"
    whom = (answer["policy"] or "no policy") + (", if it ran" if answer["halted"] else "")
    yield f"{answer['namespace']}/{answer['name']} {obeys} {whom}: {answer['reason']}"
    for place, each in enumerate(answer["candidates"], 1):
        yield f"  {place}. {each['name']}: {_matched(each['labels'])}"
        if place > 1:
            yield f"     {each['reason']}"
    for each in answer["others"] if others else ():
        yield f"  -  {each['name']}: {each['reason']}"
    width = max(map(len, answer["settings"]), default=0)
    for name, setting in answer["settings"].items():
        yield f"  {name:<{width}}  {_format(setting['value']):<8}  {_source(setting)}"
    for note in answer["notes"]:
        yield f"note: {note}"
    if not hypothetical and answer["stamped"] != answer["policy"]:
        yield f"note: its label is not up to date: it names {answer['stamped'] or 'no policy'}"


def _matched(labels: Json) -> str:
    """The labels by which a policy selects the VMI."""
    matched = [f"{key}={value or '(empty)'}" for key, value in labels["virtualMachineInstance"].items()]
    return ", ".join([*matched, *(f"namespace {key}={value}" for key, value in labels["namespace"].items())])


def _source(setting: Json) -> str:
    """Where the value of a setting comes from."""
    if setting["value"] is None:
        return "ignored by this cluster"
    return f"policy {setting['from']}" if setting["source"] == "policy" else SOURCES[setting["source"]]


def _format(value: Any) -> str:
    return "-" if value is None else value_text(value)
