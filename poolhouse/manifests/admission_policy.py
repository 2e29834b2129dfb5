"""The ValidatingAdmissionPolicies. They protect labels and disks, limit the services, and warn of autoscalers.

Only Poolhouse's ServiceAccounts may write the labels.

These labels record the state of a warm VM, its pool, its claim and its migration policy. A user who could write them
could take over another user's VM or escape a policy. The API server evaluates the policy itself, so the policy
applies even while the webhook is unavailable.

KubeVirt's controllers write on behalf of users: they restore and clone VMs from documents that users may edit, and
create VMs and VMIs from templates of users. They may copy the labels from a VM to its VMI, and introduce them nowhere.

The controllers take held VMs out of their Services by a label of the launcher pods. RBAC cannot limit a patch to one
label, so a policy does. The webhook tries templates as dry runs, to which RBAC cannot limit a create either.
"""

from collections.abc import Iterable

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS, meta
from poolhouse.api.kinds.documentation import AUTOSCALERS
from poolhouse.api.kubevirt import launcher
from poolhouse.manifests.virtual_node import NODE_LEASES

POLICY_NAME = "poolhouse-labels"
PODS_POLICY_NAME = "poolhouse-pods"
DISKS_POLICY_NAME = "poolhouse-disks"
DISK_MARKS_POLICY_NAME = "poolhouse-disk-marks"
DRY_RUNS_POLICY_NAME = "poolhouse-dry-runs"
AUTOSCALERS_POLICY_NAME = "poolhouse-autoscalers"
DOMAINS_POLICY_NAME = "poolhouse-domains"
VIRTUAL_NODE_POLICY_NAME = "poolhouse-virtual-node"
_RESOURCES = ("virtualmachines", "virtualmachineinstances")


def documents(
    *, webhook: str = "", controllers: str = "", copiers: Iterable[str] = (), virtual_node: str = ""
) -> list[Json]:
    """All policies, each before its binding, with the user names of the services. Without user names they are those of
    the chart, which adds them. `virtual_node` is the name of the virtual node, if there is one."""
    return [
        *policies([user for user in (webhook, controllers) if user], copiers),
        *pod_policies(controllers),
        *disk_policies(controllers),
        *disk_mark_policies(),
        *dry_run_policies(webhook),
        *autoscaler_policies(),
        *domain_policies(controllers),
        *(virtual_node_policies(controllers, virtual_node) if virtual_node else ()),
    ]


def policies(writers: Iterable[str], copiers: Iterable[str] = ()) -> list[Json]:
    """The policy and its binding, with user names of the form `system:serviceaccount:NAMESPACE:NAME`. The `writers` may
    write the labels, the `copiers` only those of VMIs that a VM owns."""
    policy = {
        **_named("ValidatingAdmissionPolicy", POLICY_NAME),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": _matches("kubevirt.io", ["CREATE", "UPDATE"], _RESOURCES),
            "matchConditions": [
                {"name": "others", "expression": f"!({_is_one_of(writers)})"},
                {"name": "introduces", "expression": f"!({_IS_VMI_OF_A_VM} && {_is_one_of(copiers)})"},
            ],
            "validations": [_validation(path, label) for path in _PATHS for label in meta.PROTECTED_LABELS],
        },
    }
    return [policy, _binding(POLICY_NAME)]


def pod_policies(controllers: str) -> list[Json]:
    """The policy and its binding. With it, the user of the controllers may change one label of launcher pods only."""
    policy = {
        **_named("ValidatingAdmissionPolicy", PODS_POLICY_NAME),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": _matches("", ["UPDATE"], ["pods"]),
            "matchConditions": [{"name": "controllers", "expression": f"request.userInfo.username == {controllers!r}"}],
            "validations": [
                {
                    "expression": _POD_IS_UNCHANGED,
                    "message": f"the controllers change only the label {meta.IN_SERVICE} of a pod",
                    "reason": "Forbidden",
                },
                {
                    "expression": f"oldObject.?metadata.?labels[?'{meta.KUBEVIRT_CREATED_BY}'].hasValue()",
                    "message": "the controllers change only pods of VMIs",
                    "reason": "Forbidden",
                },
            ],
        },
    }
    return [policy, _binding(PODS_POLICY_NAME)]


def disk_policies(controllers: str) -> list[Json]:
    """The policy and its binding. With it, the user of the controllers deletes retained disks only."""
    retained = {
        "expression": f"oldObject.?metadata.?labels[?'{meta.KEPT_BY}'].hasValue()",
        "message": "the controllers delete only retained disks",
        "reason": "Forbidden",
    }
    policy = {
        **_named("ValidatingAdmissionPolicy", DISKS_POLICY_NAME),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": _match_disks(["DELETE"]),
            "matchConditions": [{"name": "controllers", "expression": f"request.userInfo.username == {controllers!r}"}],
            "validations": [retained],
        },
    }
    return [policy, _binding(DISKS_POLICY_NAME)]


def disk_mark_policies() -> list[Json]:
    """The policy and its binding. With it, only a user who may delete a disk gives it the marks with which the
    controllers delete it. So a right to change disks is not a right to delete them."""
    group = "authorizer.group(request.resource.group).resource(request.resource.resource)"
    may_delete = f"{group}.namespace(request.namespace).name(request.name).check('delete').allowed()"

    def validation(field: str, key: str) -> Json:
        read = f".?metadata.?{field}[?'{key}']"
        before = f"(oldObject == null ? optional.none() : oldObject{read})"
        return {
            "expression": f"!object{read}.hasValue() || {before} == object{read} || {may_delete}",
            "message": f"metadata.{field}[{key}] lets pools delete the disk; you may not delete it",
            "reason": "Forbidden",
        }

    policy = {
        **_named("ValidatingAdmissionPolicy", DISK_MARKS_POLICY_NAME),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": _match_disks(["CREATE", "UPDATE"]),
            "validations": [validation("labels", meta.KEPT_BY), validation("annotations", meta.RETAINED_AT)],
        },
    }
    return [policy, _binding(DISK_MARKS_POLICY_NAME)]


def _match_disks(operations: Iterable[str]) -> Json:
    disks = (("", "persistentvolumeclaims"), ("cdi.kubevirt.io", "datavolumes"))
    return {"resourceRules": [_matches(group, operations, [each])["resourceRules"][0] for group, each in disks]}


def dry_run_policies(webhook: str) -> list[Json]:
    """The policy and its binding. With it, the user of the webhook creates VMs and VMIs in dry runs only."""
    policy = {
        **_named("ValidatingAdmissionPolicy", DRY_RUNS_POLICY_NAME),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": _matches("kubevirt.io", ["CREATE"], _RESOURCES),
            "matchConditions": [{"name": "webhook", "expression": f"request.userInfo.username == {webhook!r}"}],
            "validations": [
                {
                    "expression": "has(request.dryRun) && request.dryRun",
                    "message": "the webhook creates VMs in dry runs only",
                    "reason": "Forbidden",
                }
            ],
        },
    }
    return [policy, _binding(DRY_RUNS_POLICY_NAME)]


def domain_policies(controllers: str) -> list[Json]:
    """The policy and its binding. With it, the user of the controllers runs one command in launcher Pods only, which
    prints a domain."""

    def validation(expression: str, message: str) -> Json:
        return {"expression": expression, "message": message, "reason": "Forbidden"}

    word = "object.command"
    command = (
        f"{word}.size() == 5 && {word}[0] == 'virsh' && {word}[1] == '-c' && {word}[3] == 'dumpxml'"
        f" && {word}[2] in [{', '.join(map(repr, launcher.ADDRESSES))}]"
    )
    policy = {
        **_named("ValidatingAdmissionPolicy", DOMAINS_POLICY_NAME),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": _matches("", ["CONNECT"], ["pods/exec"]),
            "matchConditions": [{"name": "controllers", "expression": f"request.userInfo.username == {controllers!r}"}],
            "validations": [
                validation(
                    f"request.name.startsWith('{launcher.LAUNCHER_PREFIX}')"
                    f" && object.container == '{launcher.COMPUTE}' && !object.?stdin.orValue(false)",
                    "the controllers read the domain in launcher Pods only",
                ),
                validation(command, "the controllers run no command but virsh dumpxml"),
            ],
        },
    }
    return [policy, _binding(DOMAINS_POLICY_NAME)]


def virtual_node_policies(controllers: str, node: str) -> list[Json]:
    """The policy and its binding. With it, the user of the controllers writes the status of Pods of the virtual node
    only, deletes no other Pods, and writes no other Node and no Lease of another one."""

    def validation(resource: str, holds: str, message: str) -> Json:
        expression = f"request.resource.resource != '{resource}' || {holds}"
        return {"expression": expression, "message": message, "reason": "Forbidden"}

    rules = (
        ("", ["UPDATE"], ["pods/status"]),
        ("", ["DELETE"], ["pods"]),
        ("", ["CREATE", "UPDATE"], ["nodes", "nodes/status"]),
        ("coordination.k8s.io", ["CREATE", "UPDATE"], ["leases"]),
    )
    policy = {
        **_named("ValidatingAdmissionPolicy", VIRTUAL_NODE_POLICY_NAME),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [_matches(*rule)["resourceRules"][0] for rule in rules]},
            "matchConditions": [{"name": "controllers", "expression": f"request.userInfo.username == {controllers!r}"}],
            "validations": [
                validation(
                    "pods",
                    f"oldObject.?spec.?nodeName.orValue('') == {node!r}",
                    f"the controllers change and delete only Pods of node {node}",
                ),
                validation(
                    "nodes", f"object.metadata.name == {node!r}", f"the controllers create and change only node {node}"
                ),
                validation(
                    "leases",
                    f"request.namespace != '{NODE_LEASES}' || object.metadata.name == {node!r}",
                    f"the controllers keep only the Lease of node {node}",
                ),
            ],
        },
    }
    return [policy, _binding(VIRTUAL_NODE_POLICY_NAME)]


def autoscaler_policies() -> list[Json]:
    """The policy and its binding. They warn of a HorizontalPodAutoscaler that scales one of our kinds by the CPU or
    memory of Pods, and never refuse one."""
    groups = ", ".join(repr(group) for group in dict.fromkeys(kind.group for kind in _SCALED))
    kinds = ", ".join(repr(kind.kind) for kind in _SCALED)
    target = "object.spec.scaleTargetRef"
    ours = f"{target}.kind in [{kinds}] && {target}.?apiVersion.orValue('').split('/')[0] in [{groups}]"
    policy = {
        **_named("ValidatingAdmissionPolicy", AUTOSCALERS_POLICY_NAME),
        "spec": {
            "failurePolicy": "Ignore",
            # The API server converts those of v1, which have no metrics.
            "matchConstraints": _matches("autoscaling", ["CREATE", "UPDATE"], ["horizontalpodautoscalers"], "v2"),
            "matchConditions": [{"name": "ours", "expression": ours}],
            "validations": [
                {
                    "expression": "!object.spec.?metrics.orValue([]).exists(each, each.type in "
                    "['Resource', 'ContainerResource'])",
                    "message": "spec.metrics: Resource metrics count virt-launcher Pods, and a VM that is being created"
                    " has none; use an External or Object metric with target type AverageValue"
                    f"; see {AUTOSCALERS}",
                }
            ],
        },
    }
    return [policy, _binding(AUTOSCALERS_POLICY_NAME, "Warn")]


_SCALED = tuple(kind for kind in KINDS if kind.scale)
_METADATA = ("annotations", "finalizers", "ownerReferences")
_POD_IS_UNCHANGED = " && ".join(
    (
        "object.spec == oldObject.spec",
        *(f"object.?metadata.?{field} == oldObject.?metadata.?{field}" for field in _METADATA),
        *(
            f"{one}.?metadata.?labels.orValue({{}}).all(name, name == '{meta.IN_SERVICE}'"
            f" || {one}.?metadata.?labels[?name] == {other}.?metadata.?labels[?name])"
            for one, other in (("object", "oldObject"), ("oldObject", "object"))
        ),
    )
)


_IS_VMI_OF_A_VM = (
    "request.resource.resource == 'virtualmachineinstances'"
    " && object.?metadata.?ownerReferences.orValue([])"
    ".exists(owner, owner.kind == 'VirtualMachine' && owner.?controller.orValue(false))"
)


def _is_one_of(users: Iterable[str]) -> str:
    return f"request.userInfo.username in [{', '.join(map(repr, users))}]"


_PATHS = (("metadata",), ("spec", "template", "metadata"))


def _validation(path: tuple[str, ...], label: str) -> Json:
    where = ".".join((*path, "labels"))
    read = "".join(f".?{part}" for part in path) + f".?labels[?'{label}']"
    return {
        # A label that is absent before and after counts as unchanged, even if the object has no labels.
        "expression": f"(oldObject == null ? optional.none() : oldObject{read}) == object{read}",
        "message": f"{where}[{label}] is written by Poolhouse only, to identify this VM; leave the label as it was",
        "reason": "Forbidden",
    }


def _matches(group: str, operations: Iterable[str], resources: Iterable[str], version: str = "*") -> Json:
    rule = {"apiGroups": [group], "apiVersions": [version], "operations": [*operations], "resources": [*resources]}
    return {"resourceRules": [rule]}


def _binding(policy: str, action: str = "Deny") -> Json:
    return {
        **_named("ValidatingAdmissionPolicyBinding", policy),
        "spec": {"policyName": policy, "validationActions": [action]},
    }


def _named(kind: str, name: str) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {meta.PART_OF: meta.POOLHOUSE}},
    }
