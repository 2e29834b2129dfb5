"""Generates the RBAC of services and users. The defaulter has no rights and no token.

No rule has wildcards. Rules of the chart name the Secrets to read: a reader of all Secrets can take over the cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS, meta
from poolhouse.api.kinds.kind import Kind
from poolhouse.manifests import webhooks

READ = ("get", "list", "watch")
FOLLOW = ("list", "watch")
WRITE = ("create", "update", "patch", "delete")


@dataclass(frozen=True)
class PolicyRule:
    """Verbs on resources of one group. `names` limits the rule to some objects; `why` documents the rule."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()

    def rule(self) -> Json:
        found: Json = {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}
        return {**found, "resourceNames": list(self.names)} if self.names else found


def _kind_rules(kinds: Iterable[Kind]) -> tuple[PolicyRule, ...]:
    """Rules of the controllers, which read objects and write their status, but never their spec."""
    found = []
    for kind in kinds:
        found += [
            PolicyRule(kind.group, (kind.plural,), READ, "to read the spec"),
            PolicyRule(kind.group, (f"{kind.plural}/status",), ("patch",), "to write the status"),
            PolicyRule(
                kind.group, (f"{kind.plural}/finalizers",), ("update",), "to own objects with blockOwnerDeletion"
            ),
        ]
    return tuple(found)


_EVENTS = PolicyRule("events.k8s.io", ("events",), ("create", "patch"), "to record events")
_LEASES = PolicyRule("coordination.k8s.io", ("leases",), ("get", "create", "update"), "leader election")

_STATUS = ("get", "update", "patch")
_AS_KUBEVIRT = "the engine acts as KubeVirt"
_AS_CDI = "the engine acts as CDI"
_AS_KUBELET = "the engine acts as the kubelets"

_INSTANCETYPE_RULES = (
    PolicyRule(
        "instancetype.kubevirt.io",
        (
            "virtualmachineinstancetypes",
            "virtualmachineclusterinstancetypes",
            "virtualmachinepreferences",
            "virtualmachineclusterpreferences",
        ),
        ("get",),
        "to choose the hardware of a VM with an instance type or a preference",
    ),
    PolicyRule(
        "apps",
        ("controllerrevisions",),
        ("get",),
        "to read the instance type or preference that KubeVirt keeps for a VM",
    ),
)

CLUSTER_RULES: Mapping[str, tuple[PolicyRule, ...]] = {
    "webhook": (
        PolicyRule("authorization.k8s.io", ("subjectaccessreviews",), ("create",), "to ask what authors may do"),
        PolicyRule(
            "kubevirt.io", ("virtualmachines", "virtualmachineinstances"), ("create",), "to try a template in a dry run"
        ),
        PolicyRule("kubevirt.io", ("virtualmachines",), ("list",), "to warn of disks that VMs already use"),
        PolicyRule("", ("namespaces",), ("get",), "to read the replica limit of a namespace"),
        PolicyRule("", ("resourcequotas",), ("list",), "to warn of replicas for which a quota is too small"),
        PolicyRule(
            "kubevirt.io",
            ("virtualmachineinstances",),
            ("get",),
            "to find free addresses for devices added to running VMs",
        ),
        *(
            PolicyRule(k.group, (k.plural,), ("list",), "to find conflicts with existing objects")
            for k in KINDS
            if k.listed_at_admission
        ),
        *(PolicyRule(k.group, (k.plural,), ("get",), "to warn of a Scale's replicas") for k in KINDS if k.scale),
        PolicyRule(
            "", ("nodes",), FOLLOW, "to choose machine types that the nodes support, and warn of too many replicas"
        ),
        *_INSTANCETYPE_RULES,
        PolicyRule("kubevirt.io", ("kubevirts",), FOLLOW, "to read the defaults of the cluster and KubeVirt's version"),
    ),
    "controllers": (
        *_kind_rules(KINDS),
        PolicyRule("kubevirt.io", ("virtualmachines",), (*READ, *WRITE), "pools create, update and delete VMs"),
        PolicyRule(
            "kubevirt.io",
            ("virtualmachineinstances",),
            (*READ, *WRITE),
            "replica sets create and delete VMIs; restarts, defaulting and labels of migration policies",
        ),
        PolicyRule("subresources.kubevirt.io", ("virtualmachines/restart",), ("update",), "to restart updated VMs"),
        PolicyRule(
            "subresources.kubevirt.io",
            ("virtualmachines/start", "virtualmachines/stop"),
            ("update",),
            "to stop warm VMs and start them for a claim",
        ),
        PolicyRule(
            "subresources.kubevirt.io",
            ("virtualmachineinstances/pause", "virtualmachineinstances/unpause"),
            ("update",),
            "to pause warm VMs and resume them for a claim",
        ),
        *(
            PolicyRule(kind.group, (kind.plural,), ("patch",), "to set and remove their finalizer")
            for kind in KINDS
            if kind.has_finalizer
        ),
        *(
            PolicyRule(kind.group, (kind.plural,), ("delete",), "to delete finished claims after their time")
            for kind in KINDS
            if kind.deleted_by_controllers
        ),
        PolicyRule(
            "cdi.kubevirt.io",
            ("datavolumes",),
            (*READ, "patch", "delete"),
            "to retain disks and delete retained ones, and to restart VMs when their new disks are ready",
        ),
        PolicyRule("cdi.kubevirt.io", ("datasources",), FOLLOW, "to follow images, and to delete no disk of an image"),
        PolicyRule("authorization.k8s.io", ("subjectaccessreviews",), ("create",), "to ask what authors may get"),
        PolicyRule(
            "snapshot.kubevirt.io",
            ("virtualmachinesnapshots", "virtualmachinerestores"),
            (*FOLLOW, "create", "delete"),
            "to take snapshots of VMs before updates, and to restore them",
        ),
        PolicyRule(
            "", ("persistentvolumeclaims",), (*READ, "patch", "delete"), "to retain disks, and to delete retained ones"
        ),
        PolicyRule(
            "",
            ("pods",),
            ("list", "patch"),
            "to take held VMs out of Services by a label of launcher pods, to delete no disk that a pod mounts, and to"
            " connect to no address that only a guest claims to have",
        ),
        PolicyRule("policy", ("poddisruptionbudgets",), (*FOLLOW, "create", "patch", "delete"), "to limit evictions"),
        PolicyRule("", ("namespaces",), READ, "labels by which policies and webhooks select; replica limits"),
        PolicyRule(
            "admissionregistration.k8s.io",
            ("mutatingwebhookconfigurations",),
            FOLLOW,
            "to default VMs that the webhook missed",
            names=(webhooks.DEFAULTING_CONFIGURATION,),
        ),
        PolicyRule("", ("nodes",), FOLLOW, "to know zones, outages, machine types, and whether VMs can migrate"),
        *_INSTANCETYPE_RULES,
        PolicyRule(
            "migrations.kubevirt.io",
            ("migrationpolicies",),
            (*READ, "create", "update", "delete"),
            "KubeVirt's policies, which enforce ours",
        ),
        PolicyRule("kubevirt.io", ("kubevirts",), FOLLOW, "to read KubeVirt's version, defaults and behaviour"),
        PolicyRule(
            "apiextensions.k8s.io",
            ("customresourcedefinitions",),
            ("get",),
            "to detect a CRD that KubeVirt has installed",
            names=tuple(kind.crd_name for kind in KINDS if kind.yields_to_kubevirt),
        ),
        PolicyRule(
            "apps", ("controllerrevisions",), (*READ, "create", "patch", "delete"), "revisions of a pool's template"
        ),
        _EVENTS,
    ),
    "engine": (
        PolicyRule(
            "kubevirt.io",
            ("virtualmachines", "virtualmachineinstances", "virtualmachineinstancemigrations"),
            (*READ, *WRITE),
            _AS_KUBEVIRT,
        ),
        PolicyRule(
            "kubevirt.io", ("virtualmachines/status", "virtualmachineinstancemigrations/status"), _STATUS, _AS_KUBEVIRT
        ),
        PolicyRule("kubevirt.io", ("virtualmachines/finalizers",), ("update",), _AS_KUBEVIRT),
        PolicyRule("kubevirt.io", ("kubevirts",), (*READ, "create"), _AS_KUBEVIRT),
        PolicyRule("kubevirt.io", ("kubevirts/status",), ("patch",), _AS_KUBEVIRT),
        PolicyRule("migrations.kubevirt.io", ("migrationpolicies",), READ, _AS_KUBEVIRT),
        PolicyRule(
            "snapshot.kubevirt.io",
            ("virtualmachinesnapshots", "virtualmachinesnapshotcontents", "virtualmachinerestores"),
            (*READ, "create", "patch", "delete"),
            _AS_KUBEVIRT,
        ),
        PolicyRule(
            "snapshot.kubevirt.io",
            (
                "virtualmachinesnapshots/status",
                "virtualmachinesnapshotcontents/status",
                "virtualmachinerestores/status",
            ),
            ("patch",),
            _AS_KUBEVIRT,
        ),
        *_INSTANCETYPE_RULES,
        PolicyRule("apps", ("controllerrevisions",), ("create",), _AS_KUBEVIRT),
        PolicyRule("cdi.kubevirt.io", ("datavolumes",), (*READ, *WRITE), _AS_CDI),
        PolicyRule("cdi.kubevirt.io", ("datavolumes/source",), ("create",), _AS_KUBEVIRT),
        PolicyRule("cdi.kubevirt.io", ("datasources",), ("get",), _AS_CDI),
        PolicyRule("cdi.kubevirt.io", ("datavolumes/status",), ("get", "update", "patch"), _AS_CDI),
        PolicyRule("", ("persistentvolumeclaims", "persistentvolumes"), (*READ, *WRITE), _AS_CDI),
        PolicyRule("", ("persistentvolumeclaims/status", "persistentvolumes/status"), _STATUS, _AS_CDI),
        PolicyRule("", ("nodes", "pods"), (*READ, *WRITE), _AS_KUBELET),
        PolicyRule("", ("secrets",), ("get",), _AS_KUBELET),
        PolicyRule("", ("nodes/status", "pods/status"), ("get", "update", "patch"), _AS_KUBELET),
        PolicyRule("", ("namespaces",), READ, "labels by which migration policies select"),
        PolicyRule(
            "authorization.k8s.io", ("subjectaccessreviews",), ("create",), "to authorize requests for VM subresources"
        ),
        _EVENTS,
    ),
}
"""cluster-wide rules by service"""

NAMESPACE_RULES: Mapping[str, tuple[PolicyRule, ...]] = {
    "controllers": (_LEASES,),
    "engine": (PolicyRule("", ("configmaps",), READ, "simulated faults"), _LEASES),
}
"""rules in Poolhouse's namespace, by service"""


def _webhook_configuration_rules(verbs: tuple[str, ...], why: str) -> tuple[PolicyRule, ...]:
    """Rules for Poolhouse's webhook configurations, by name."""
    group = "admissionregistration.k8s.io"
    by_plural: dict[str, list[str]] = {}
    for plural, name in webhooks.configuration_names():
        by_plural.setdefault(plural, []).append(name)
    return tuple(PolicyRule(group, (plural,), verbs, why, names=tuple(names)) for plural, names in by_plural.items())


ANALYSIS_JOB_RULES = (
    PolicyRule("batch", ("cronjobs",), ("get",), "to read the spec of a Job from a CronJob that allows it"),
    PolicyRule("batch", ("jobs",), ("get", "create"), "Jobs of the analyses of pool updates"),
)
"""cluster-wide rules of the controllers, if the operator allows Jobs of analyses"""

SERVING_CERTIFICATE_RULES = (
    PolicyRule("", ("secrets",), FOLLOW, "to read its serving certificate", names=(meta.SERVING_SECRET,)),
)
"""rules of every server, in Poolhouse's namespace"""

CA_RULES = _webhook_configuration_rules((*READ, "patch"), "to write the CA bundle into the webhook configurations")
"""cluster-wide rules of the certificate controller"""

CA_SECRET_RULES = (
    PolicyRule(
        "",
        ("secrets",),
        (*READ, "update"),
        "to renew the CA and the serving certificate",
        names=(meta.CA_SECRET, meta.SERVING_SECRET),
    ),
    PolicyRule("", ("secrets",), ("create",), "RBAC cannot limit create by name"),
)
"""rules of the certificate controller, in Poolhouse's namespace"""

UNINSTALL_RULES = _webhook_configuration_rules(("delete",), "to remove the webhooks before the webhook stops")
"""cluster-wide rules of the pre-uninstall hook"""

LEADER_RULES = (
    PolicyRule(
        "coordination.k8s.io", ("leases",), ("get",), "to see whether the controllers work", names=(meta.CONTROLLERS,)
    ),
)
"""rules of every user, in Poolhouse's namespace"""


def service_account_user(service: str) -> str:
    """The user name of a service's ServiceAccount in Poolhouse's namespace."""
    return f"system:serviceaccount:{meta.NAMESPACE}:{account_name(service)}"


def manifests(
    services: Iterable[str],
    namespace: str = meta.NAMESPACE,
    *,
    controllers: tuple[PolicyRule, ...] = (),
    own: tuple[PolicyRule, ...] = (),
) -> list[Json]:
    """ServiceAccounts, roles and bindings of the services. `controllers` are the controllers' cluster-wide rules for
    features that are off by default, and `own` those in the namespace, which must exist."""
    found = []
    for service in services:
        more, here = (controllers, own) if service == "controllers" else ((), ())
        found += _cluster_role(service, namespace, (*CLUSTER_RULES.get(service, ()), *more))
        found += namespace_role(service, (*NAMESPACE_RULES.get(service, ()), *here), namespace, namespace)
    return found


def user_roles() -> list[Json]:
    """ClusterRoles that Kubernetes aggregates into the roles view, edit and admin. They allow editors of a namespace
    only to read a cluster-scoped kind."""
    found = []
    for role, targets in (("view", ("view",)), ("edit", ("edit", "admin"))):
        rules = []
        for kind in KINDS:
            writes = role == "edit" and kind.namespaced
            resources = (kind.plural, *([f"{kind.plural}/scale"] if kind.scale and writes else ()))
            verbs = (*READ, *WRITE, "deletecollection") if writes else READ
            rules.append(PolicyRule(kind.group, resources, verbs, "").rule())
        if role == "view":  # `why` reads what Kubernetes' own role allows in the older group only
            rules.append(PolicyRule("events.k8s.io", ("events",), READ, "").rule())
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


def health_role() -> list[Json]:
    """A role by which every user sees whether the controllers work: an outage concerns all of them."""
    namespace = meta.NAMESPACE
    metadata = {"name": account_name("health"), "namespace": namespace, "labels": _labels()}
    role = {"metadata": metadata, "rules": rules_of(LEADER_RULES)}
    found = _role_and_binding("", role, {"namespace": namespace}, "health", namespace)
    group = {"kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io"}
    return [found[0], {**found[1], "subjects": [group]}]


def _cluster_role(service: str, namespace: str, rules: Iterable[PolicyRule]) -> list[Json]:
    name = account_name(service)
    role = {"metadata": {"name": name, "labels": _labels(service)}, "rules": rules_of(rules)}
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace, "labels": _labels(service)},
            "automountServiceAccountToken": service in CLUSTER_RULES,
        },
        *_role_and_binding("Cluster", role, {}, service, namespace),
    ]


def namespace_role(
    service: str, rules: Iterable[PolicyRule], namespace: str, account_namespace: str = meta.NAMESPACE
) -> list[Json]:
    """The role of a service in a namespace, and its binding."""
    metadata = {"name": account_name(service), "labels": _labels(service), "namespace": namespace}
    document = {"metadata": metadata, "rules": rules_of(rules)}
    return _role_and_binding("", document, {"namespace": namespace}, service, account_namespace)


def _role_and_binding(scope: str, role: Json, here: Json, service: str, namespace: str) -> list[Json]:
    if not role["rules"]:
        return []
    group, name = "rbac.authorization.k8s.io", account_name(service)
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


def rules_of(grants: Iterable[PolicyRule]) -> list[Json]:
    return [grant.rule() for grant in grants]


def account_name(service: str) -> str:
    return f"{meta.POOLHOUSE}-{service}"


def _labels(component: str | None = None) -> Json:
    return {meta.PART_OF: meta.POOLHOUSE, **({meta.COMPONENT: component} if component else {})}
