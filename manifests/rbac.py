"""What each service may do, and nothing more. The defaulter may do nothing: it has no token.

No wildcards, and no Secrets but two of our own by name: whoever reads all Secrets is the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from apimachinery.unstructured import Json
from kinds import KINDS, meta
from kinds.kind import Kind
from manifests import webhooks

READ = ("get", "list", "watch")
FOLLOW = ("list", "watch")
WRITE = ("create", "update", "patch", "delete")


@dataclass(frozen=True)
class PolicyRule:
    """Verbs on resources of one group; `names` narrows them to some objects, `why` is for the reader."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()

    def rule(self) -> Json:
        found: Json = {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}
        return {**found, "resourceNames": list(self.names)} if self.names else found


def _kinds(kinds: Iterable[Kind]) -> tuple[PolicyRule, ...]:
    """What controllers do with kinds of ours: read the object, write its status, never its spec."""
    found = []
    for kind in kinds:
        found += [
            PolicyRule(kind.group, (kind.plural,), READ, "to see what is wanted"),
            PolicyRule(kind.group, (f"{kind.plural}/status",), ("patch",), "to say what is"),
            PolicyRule(
                kind.group, (f"{kind.plural}/finalizers",), ("update",), "to own objects that block its deletion"
            ),
        ]
    return tuple(found)


_EVENTS = PolicyRule("events.k8s.io", ("events",), ("create", "patch"), "to tell people what was done and why")
_LEASES = PolicyRule("coordination.k8s.io", ("leases",), ("get", "create", "update"), "to be the only one at work")

CLUSTER_RULES: Mapping[str, tuple[PolicyRule, ...]] = {
    "webhook": (
        PolicyRule(
            "authorization.k8s.io", ("subjectaccessreviews",), ("create",), "a template's author must be allowed VMs"
        ),
        PolicyRule(
            "kubevirt.io", ("virtualmachines", "virtualmachineinstances"), ("create",), "dry runs of a first VM"
        ),
        PolicyRule("kubevirt.io", ("virtualmachines",), ("list",), "to find a free name for the dry run"),
        *(
            PolicyRule(k.group, (k.plural,), ("list",), "to compare with what is there")
            for k in KINDS
            if k.listed_at_admission
        ),
        PolicyRule("", ("nodes",), FOLLOW, "a VM's machine type is one that nodes can run"),
    ),
    "controllers": (
        *_kinds(KINDS),
        PolicyRule("kubevirt.io", ("virtualmachines",), (*READ, *WRITE), "pools make, change and remove VMs"),
        PolicyRule(
            "kubevirt.io",
            ("virtualmachineinstances",),
            (*READ, *WRITE),
            "replica sets make and remove them; to restart, complete and stamp them",
        ),
        PolicyRule("subresources.kubevirt.io", ("virtualmachines/restart",), ("update",), "updates restart VMs"),
        PolicyRule(
            "subresources.kubevirt.io",
            ("virtualmachines/start", "virtualmachines/stop"),
            ("update",),
            "warm VMs wait stopped, and are started for a claim",
        ),
        PolicyRule(
            "subresources.kubevirt.io",
            ("virtualmachineinstances/pause", "virtualmachineinstances/unpause"),
            ("update",),
            "warm VMs wait paused, and are woken for a claim",
        ),
        *(
            PolicyRule(kind.group, (kind.plural,), ("patch",), "to set and remove their finalizer")
            for kind in KINDS
            if kind.has_finalizer
        ),
        PolicyRule("cdi.kubevirt.io", ("datavolumes",), ("get", "patch"), "disks that outlive their VM"),
        PolicyRule("", ("persistentvolumeclaims",), (*READ, "patch"), "disks that outlive their VM"),
        PolicyRule("", ("namespaces",), READ, "migration policies and webhooks select by namespace"),
        PolicyRule(
            "admissionregistration.k8s.io",
            ("mutatingwebhookconfigurations",),
            FOLLOW,
            "what was stored undecided is completed if the webhook should have seen it",
            names=(webhooks.DEFAULTING_CONFIGURATION,),
        ),
        PolicyRule("", ("nodes",), FOLLOW, "a VM's machine type is one that nodes can run"),
        PolicyRule(
            "migrations.kubevirt.io",
            ("migrationpolicies",),
            (*READ, "create", "update", "delete"),
            "KubeVirt's, which enforce ours",
        ),
        PolicyRule("kubevirt.io", ("kubevirts",), FOLLOW, "its configuration stands where a policy says nothing"),
        PolicyRule(
            "apiextensions.k8s.io",
            ("customresourcedefinitions",),
            ("get",),
            "to stand aside where KubeVirt has installed its own",
            names=tuple(kind.crd_name for kind in KINDS if kind.yields_to_kubevirt),
        ),
        PolicyRule("apps", ("controllerrevisions",), (*READ, "create", "delete"), "a pool's templates of the past"),
        _EVENTS,
    ),
    "engine": (
        PolicyRule(
            "kubevirt.io", ("virtualmachines", "virtualmachineinstances"), (*READ, *WRITE), "it is KubeVirt here"
        ),
        PolicyRule(
            "kubevirt.io",
            ("virtualmachines/status", "virtualmachineinstancemigrations/status"),
            ("get", "update", "patch"),
            "it is KubeVirt here",
        ),
        PolicyRule("kubevirt.io", ("virtualmachines/finalizers",), ("update",), "it is KubeVirt here"),
        PolicyRule("kubevirt.io", ("virtualmachineinstancemigrations",), (*READ, *WRITE), "it is KubeVirt here"),
        PolicyRule("migrations.kubevirt.io", ("migrationpolicies",), READ, "it is KubeVirt here"),
        PolicyRule("kubevirt.io", ("kubevirts",), READ, "its configuration applies where no policy says anything"),
        PolicyRule("cdi.kubevirt.io", ("datavolumes",), (*READ, *WRITE), "it is CDI here"),
        PolicyRule("cdi.kubevirt.io", ("datavolumes/status",), ("get", "update", "patch"), "it is CDI here"),
        PolicyRule("", ("persistentvolumeclaims", "persistentvolumes"), (*READ, *WRITE), "it is CDI here"),
        PolicyRule(
            "",
            ("persistentvolumeclaims/status", "persistentvolumes/status"),
            ("get", "update", "patch"),
            "CDI's claims",
        ),
        PolicyRule("", ("nodes",), (*READ, "create", "update", "patch", "delete"), "it is the kubelets here"),
        PolicyRule("", ("nodes/status",), ("get", "update", "patch"), "it is the kubelets here"),
        PolicyRule("", ("namespaces",), READ, "policies select by namespace"),
        PolicyRule(
            "authorization.k8s.io", ("subjectaccessreviews",), ("create",), "its subresources check their callers"
        ),
        _EVENTS,
    ),
}
"""cluster-wide, by service"""

NAMESPACE_RULES: Mapping[str, tuple[PolicyRule, ...]] = {
    "controllers": (_LEASES,),
    "engine": (PolicyRule("", ("configmaps",), READ, "simulated faults"), _LEASES),
}
"""in our own namespace only"""


def _registrations(verbs: tuple[str, ...], why: str) -> tuple[PolicyRule, ...]:
    """On our webhook configurations and nobody else's."""
    group = "admissionregistration.k8s.io"
    by_plural: dict[str, list[str]] = {}
    for plural, name in webhooks.configuration_names():
        by_plural.setdefault(plural, []).append(name)
    return tuple(PolicyRule(group, (plural,), verbs, why, names=tuple(names)) for plural, names in by_plural.items())


SERVING_CERTIFICATE_RULES = (
    PolicyRule("", ("secrets",), ("get",), "the certificate that it shows", names=(meta.SERVING_SECRET,)),
)
"""of every server, in our own namespace"""

CA_RULES = _registrations(("get", "patch"), "API servers are told whom to trust")
"""of who keeps our own authority, cluster-wide"""

CA_SECRET_RULES = (
    PolicyRule(
        "", ("secrets",), ("get", "update"), "authorities and certificate", names=(meta.CA_SECRET, meta.SERVING_SECRET)
    ),
    PolicyRule("", ("secrets",), ("create",), "what is not there yet has no name that a rule could give"),
)
"""of the same, in our own namespace"""

UNINSTALL_RULES = _registrations(("delete",), "nobody is asked once nobody answers")
"""of the hook before an uninstall, cluster-wide"""


def service_account_user(service: str, namespace: str = meta.NAMESPACE) -> str:
    """The user name that a service has as its ServiceAccount."""
    return f"system:serviceaccount:{namespace}:{_name(service)}"


def manifests(services: Iterable[str], namespace: str = meta.NAMESPACE) -> list[Json]:
    """ServiceAccounts, roles and bindings of these services. The namespace must exist."""
    found = []
    for service in services:
        found += _cluster(service, namespace) + _own(service, namespace)
    return found


def user_roles(kinds: Iterable[Kind] = KINDS) -> list[Json]:
    """What people may do with kinds of ours: added to Kubernetes' own roles view, edit and admin.

    A kind without a namespace is the cluster administrator's: editors of a namespace only read it.
    """
    found = []
    kinds = tuple(kinds)
    for role, targets in (("view", ("view",)), ("edit", ("edit", "admin"))):
        rules = []
        for kind in kinds:
            writes = role == "edit" and kind.namespaced
            resources = (kind.plural, *([f"{kind.plural}/scale"] if kind.scale and writes else ()))
            verbs = (*READ, *WRITE, "deletecollection") if writes else READ
            rules.append(PolicyRule(kind.group, resources, verbs, "").rule())
        labels = {f"rbac.authorization.k8s.io/aggregate-to-{target}": "true" for target in targets}
        found.append(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": f"poolhouse-{role}", "labels": {**_labels(), **labels}},
                "rules": rules,
            }
        )
    return found


def _cluster(service: str, namespace: str) -> list[Json]:
    name = _name(service)
    role = {"metadata": {"name": name, "labels": _labels(service)}, "rules": _rules(CLUSTER_RULES.get(service, ()))}
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace, "labels": _labels(service)},
            "automountServiceAccountToken": service in CLUSTER_RULES,
        },
        *_bound("Cluster", role, {}, service, namespace),
    ]


def _own(service: str, namespace: str) -> list[Json]:
    here = {"namespace": namespace}
    metadata = {"name": _name(service), "labels": _labels(service), **here}
    return _bound(
        "", {"metadata": metadata, "rules": _rules(NAMESPACE_RULES.get(service, ()))}, here, service, namespace
    )


def _bound(scope: str, role: Json, here: Json, service: str, namespace: str) -> list[Json]:
    if not role["rules"]:
        return []
    group, name = "rbac.authorization.k8s.io", _name(service)
    return [
        {"apiVersion": f"{group}/v1", "kind": f"{scope}Role", **role},
        {
            "apiVersion": f"{group}/v1",
            "kind": f"{scope}RoleBinding",
            "metadata": {"name": name, "labels": _labels(service), **here},
            "roleRef": {"apiGroup": group, "kind": f"{scope}Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]


def _rules(grants: Iterable[PolicyRule]) -> list[Json]:
    return [grant.rule() for grant in grants]


def _name(service: str) -> str:
    return f"{meta.POOLHOUSE}-{service}"


def _labels(component: str | None = None) -> Json:
    return {meta.PART_OF: meta.POOLHOUSE, **({meta.COMPONENT: component} if component else {})}
