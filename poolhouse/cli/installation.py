"""Checks how Poolhouse is installed, for `poolhouse doctor`: certificates, versions, APIs, webhooks of others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from poolhouse.api.apimachinery.counting import count_noun, join_first
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds import DISABLED_KINDS, KINDS
from poolhouse.api.kinds.documentation import BACKUP, CERTIFICATES, EMERGENCY, ERRORS, INSTALL
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings, choose
from poolhouse.api.kubevirt.versions import NEWEST, OLDEST, Release, dotted, parse_release
from poolhouse.cli.service_health import Check, Facts, Seen, cannot, is_ours, restart_stack, restore_trust, webhook
from poolhouse.runtime.errors import ApiError, WebhookFailed

OLDEST_KUBERNETES: Release = (1, 31)
VIRTUAL_MACHINES = ("kubevirt.io", "virtualmachines")


@dataclass(frozen=True)
class Installation:
    """What `poolhouse doctor` asks too. Most of it needs rights of an administrator."""

    version: str
    """of this command"""
    kubernetes: Seen[Json]
    kubevirts: Seen[Sequence[Json]]
    deployments: Seen[Sequence[Json]]
    configurations: Seen[Sequence[Json]]
    """all webhook configurations, with their kinds"""
    served: Mapping[str, Seen[Collection[str]]]
    """the resources of API versions, such as `kubevirt.io/v1`; none of a version that is not served"""
    validities: Mapping[str, tuple[datetime, datetime] | None]
    """when the CA bundle of each of Poolhouse's webhooks is valid; None for a missing or damaged one"""
    orphans: Seen[Sequence[Json]] = ()
    """the VMs whose owner is of a kind of Poolhouse that is not served"""


def judge_installation(facts: Facts, installation: Installation) -> list[Check]:
    return [check(facts, installation) for check in INSTALLATION_CHECKS]


def certificates(facts: Facts, installation: Installation) -> Check:
    if "x509" in webhook(facts).message:
        message = "the API server does not trust the webhook's certificate"
        return Check("certificates", "failed", message, restore_trust(facts), ERRORS)
    if isinstance(installation.configurations, ApiError):
        hidden = cannot("list webhook configurations, which show when certificates end", installation.configurations)
        if webhook(facts).verdict == "ok":
            return Check("certificates", "ok", f"the API server trusts the webhook's certificate; {hidden}")
        return Check("certificates", "unknown", hidden)
    bundles = installation.validities
    if not bundles:
        return Check("certificates", "unknown", "there is no webhook configuration of Poolhouse with a certificate")
    damaged = [name for name, validity in bundles.items() if validity is None]
    past = [name for name, validity in bundles.items() if validity and not validity[0] <= facts.now < validity[1]]
    for names, what in ((damaged, "no usable CA bundle"), (past, "a CA bundle that is not valid now")):
        if names:
            message = f"webhooks have {what}: {join_first(names)}"
            return Check("certificates", "failed", message, restore_trust(facts), CERTIFICATES)
    end = min(validity[1] for validity in bundles.values() if validity)
    message = f"the CA bundles of {count_noun(len(bundles), 'webhook')} are valid until {format_time(end)}"
    return Check("certificates", "ok", message)


def versions(facts: Facts, installation: Installation) -> Check:
    found = [*_kubernetes(installation), *_kubevirt(installation), *_poolhouse(installation)]
    wrong = [message for bad, message in found if bad]
    if wrong:
        return Check("versions", "warning", "; ".join(wrong), "use releases that work together", INSTALL)
    return Check("versions", "ok", "; ".join(message for _, message in found))


def _kubernetes(installation: Installation) -> Iterator[tuple[bool, str]]:
    """Whether a version is wrong, and what it is."""
    text = str(at(installation.kubernetes, "gitVersion") or "")
    release = parse_release(text)
    if release is None:
        yield False, "the version of Kubernetes could not be seen"
    else:
        old = release < OLDEST_KUBERNETES
        problem = f" is older than {dotted(OLDEST_KUBERNETES)}, which Poolhouse needs" if old else ""
        yield old, f"Kubernetes {text}{problem}"


def _kubevirt(installation: Installation) -> Iterator[tuple[bool, str]]:
    found = None if isinstance(installation.kubevirts, ApiError) else choose(installation.kubevirts)
    settings = ClusterSettings.of(found or {})
    text = ", ".join(settings.versions)
    if settings.release is None:
        yield False, f"KubeVirt {text}" if text else "the version of KubeVirt could not be seen"
    else:
        tried = OLDEST <= settings.release <= NEWEST
        problem = "" if tried else f" is not one of the supported releases {dotted(OLDEST)} to {dotted(NEWEST)}"
        yield not tried, f"KubeVirt {text}{problem}"


def _poolhouse(installation: Installation) -> Iterator[tuple[bool, str]]:
    own = f"this command is Poolhouse {installation.version}"
    if isinstance(installation.deployments, ApiError):
        yield False, f"{own}; {cannot('see the versions of the services', installation.deployments)}"
        return
    label = "app.kubernetes.io/version"
    found = sorted({v for each in installation.deployments if (v := at(each, "metadata", "labels", label))})
    others = [each for each in found if each != installation.version]
    yield bool(others), own + (f", and the services are {', '.join(others)}" if others else "")


def apis(facts: Facts, installation: Installation) -> Check:
    unread = {name: found for name, found in installation.served.items() if isinstance(found, ApiError)}
    if unread:
        name, error = min(unread.items())
        return Check("apis", "failed", f"the API server does not serve {name}: {error.message}", page=ERRORS)
    missing = [text for text in REQUIRED if not _serves(installation, *text)]
    if missing:
        absent = [f"{plural} of {version}" for version, plural in missing]
        return Check("apis", "failed", f"the cluster does not serve {join_first(absent)}", "install KubeVirt", INSTALL)
    left_out_kinds = _left_out(facts, installation.deployments)
    own = unserved_kinds(installation.served)
    if lost := [each for each in own if each.plural not in (left_out_kinds or ())]:
        return _lost_kinds(facts, installation.orphans, lost, known=left_out_kinds is not None)
    left_out = [f"{name} ({use})" for name, use in OPTIONAL.items() if not installation.served.get(name)]
    missing_kinds = f"left out of this installation: {join_first([each.plural for each in own])}" if own else ""
    unserved = f"not served: {', '.join(left_out)}" if left_out else ""
    served = "the API server serves KubeVirt's and Poolhouse's kinds"
    return Check("apis", "ok", "; ".join(filter(None, (served, missing_kinds, unserved))))


def unserved_kinds(served: Mapping[str, Seen[Collection[str]]]) -> list[Kind]:
    """The kinds of Poolhouse that the API server is known not to serve."""
    versions = ((kind, served.get(kind.api_version, ())) for kind in KINDS)
    return [kind for kind, found in versions if not isinstance(found, ApiError) and kind.plural not in found]


def _left_out(facts: Facts, deployments: Seen[Sequence[Json]]) -> frozenset[str] | None:
    """The plurals of kinds that the installation does without on purpose; None if this cannot be seen."""
    if isinstance(deployments, ApiError) or not (deployments or facts.stack):
        return None
    containers = (c for each in deployments for _, c in entries(each, "spec", "template", "spec", "containers"))
    settings = (each for container in containers for _, each in entries(container, "env"))
    values = (str(each.get("value") or "") for each in settings if each.get("name") == DISABLED_KINDS)
    return frozenset(name.strip() for value in values for name in value.split(","))


def _lost_kinds(facts: Facts, orphans: Seen[Sequence[Json]], lost: Sequence[Kind], *, known: bool) -> Check:
    crds = join_first([each.crd_name for each in lost])
    these = "this CRD is" if len(lost) == 1 else "these CRDs are"
    if not known:
        message = f"{these} missing: {crds}. You may not see whether the installation does without on purpose"
        return Check("apis", "warning", message, page=INSTALL)
    message = (
        f"{these} missing: {crds}. If somebody has deleted a CRD, all its objects are gone, and Kubernetes deletes the"
        f" VMs and disks that they owned, apart from retained disks; {_remains(orphans)}"
    )
    again = restart_stack(facts.stack) if facts.stack else "install the CRDs again with `helm upgrade`"
    left = () if isinstance(orphans, ApiError) else [each for each in orphans if not _is_deleting(each)]
    first = (
        "first remove the ownerReferences of the VMs that you want to keep, which Kubernetes deletes at the latest when"
        " the CRDs are back; then "
        if left
        else ""
    )
    then = "apply your manifests again, and take VMs back with `poolhouse attach --all --to POOL`"
    return Check("apis", "failed", message, f"{first}{again}; {then}", BACKUP)


def _remains(orphans: Seen[Sequence[Json]]) -> str:
    if isinstance(orphans, ApiError):
        return f"whether VMs remain cannot be seen: {orphans.message}"
    if not orphans:
        return "no such VM remains"
    deleting = sum(map(_is_deleting, orphans))
    return f"{count_noun(len(orphans), 'such VM', 'remains', 'remain')}, being deleted: {deleting}"


def _is_deleting(document: Json) -> bool:
    return at(document, "metadata", "deletionTimestamp") is not None


def _serves(installation: Installation, version: str, plural: str) -> bool:
    found = installation.served.get(version, ())
    return not isinstance(found, ApiError) and plural in found


REQUIRED = (
    ("kubevirt.io/v1", "virtualmachines"),
    ("kubevirt.io/v1", "virtualmachineinstances"),
    ("subresources.kubevirt.io/v1", "virtualmachines/restart"),
)
OPTIONAL = {
    "cdi.kubevirt.io/v1beta1": "disks from dataVolumeTemplates",
    "snapshot.kubevirt.io/v1beta1": "snapshots before updates",
    "migrations.kubevirt.io/v1alpha1": "enforcement of migration policies",
}
API_VERSIONS = tuple(
    dict.fromkeys((*(version for version, _ in REQUIRED), *(kind.api_version for kind in KINDS), *OPTIONAL))
)


def other_webhooks(facts: Facts, installation: Installation) -> Check:
    for answer in (facts.claim, facts.vm):
        if isinstance(answer, WebhookFailed) and not is_ours(answer.webhook):
            message = f"{answer.webhook} gives the API server no answer: {answer.cause}"
            remedy = "repair the component of this webhook, or let its configuration leave KubeVirt's objects out"
            return Check("other-webhooks", "failed", message, remedy, EMERGENCY)
    if isinstance(installation.configurations, ApiError):
        return Check("other-webhooks", "unknown", cannot("list webhook configurations", installation.configurations))
    found = sorted(set(asked_too(installation.configurations)))
    if not found:
        return Check("other-webhooks", "ok", "no webhook of another component is asked about VMs or Poolhouse's kinds")
    count = count_noun(len(found), "webhook")
    message = f"{count} of other components may refuse VMs or our objects: {join_first(found)}"
    if any(isinstance(answer, ApiError) for answer in (facts.claim, facts.vm)):
        return Check("other-webhooks", "unknown", f"{message}; whether they do could not be tried")
    return Check("other-webhooks", "ok", f"{message}; both dry runs passed")


def asked_too(configurations: Iterable[Json]) -> Iterator[str]:
    """Names of the webhooks of other components than KubeVirt that the API server asks about VMs or our kinds, and
    without whose answer it refuses them."""
    resources = [VIRTUAL_MACHINES, *((kind.group, kind.plural) for kind in KINDS)]
    for configuration in configurations:
        for _, each in entries(configuration, "webhooks"):
            name = str(each.get("name"))
            foreign = not is_ours(name) and not name.endswith("kubevirt.io") and each.get("failurePolicy") != "Ignore"
            if foreign and any(_selects(rule, *which) for _, rule in entries(each, "rules") for which in resources):
                yield name


def _selects(rule: Json, group: str, plural: str) -> bool:
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    return not {"*", group}.isdisjoint(groups) and not {"*", "*/*", plural}.isdisjoint(resources)


INSTALLATION_CHECKS: tuple[Callable[[Facts, Installation], Check], ...] = (certificates, versions, apis, other_webhooks)
