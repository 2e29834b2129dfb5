"""The rights of the controllers for the virtual node: its Node, its Lease, and its Pods.

RBAC limits them to names where it can. `admission_policy.virtual_node_policies` limits the rest to Pods of the node.
"""

from poolhouse.manifests.rbac import PolicyRule

NODE_LEASES = "kube-node-lease"
"""Kubernetes' namespace of the Leases of nodes"""
CHART_NODE = "VIRTUAL_NODE"
"""stands for the name of the node in the files of the chart, which has it as a value"""


def rules(node: str) -> tuple[PolicyRule, ...]:
    """Cluster-wide rules of the controllers for the virtual node. An admission policy limits them to its Pods, because
    RBAC cannot."""
    return (
        PolicyRule("", ("pods",), ("get", "watch", "delete"), "to run the node's Pods, and to remove deleted ones"),
        PolicyRule("", ("pods/status",), ("patch",), "to write the status of the node's Pods"),
        PolicyRule(
            "poolhouse.dev", ("virtualmachineclaims",), ("create", "patch"), "to take VMs for Pods and release them"
        ),
        PolicyRule("", ("nodes",), ("create",), "RBAC cannot limit create by name"),
        PolicyRule("", ("nodes",), ("get", "patch"), "to keep the Node", names=(node,)),
        PolicyRule("", ("nodes/status",), ("patch",), "to keep the status of the Node", names=(node,)),
        PolicyRule("authentication.k8s.io", ("tokenreviews",), ("create",), "to know who calls the kubelet endpoint"),
    )


AUTHENTICATION_NAMESPACE = "kube-system"
AUTHENTICATION_RULES = (
    PolicyRule(
        "",
        ("configmaps",),
        ("get",),
        "to read the authority of the client certificates of API servers",
        names=("extension-apiserver-authentication",),
    ),
)
"""rules of the controllers in `AUTHENTICATION_NAMESPACE`"""


def lease_rules(*nodes: str) -> tuple[PolicyRule, ...]:
    """Rules in `NODE_LEASES` of a service that keeps Nodes."""
    group, leases = "coordination.k8s.io", ("leases",)
    return (
        PolicyRule(group, leases, ("create",), "RBAC cannot limit create by name"),
        PolicyRule(group, leases, ("get", "update"), "to renew the Leases of its Nodes", names=nodes),
    )
