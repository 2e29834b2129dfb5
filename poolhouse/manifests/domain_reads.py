"""Rights of the controllers to read the domains of running VMs."""

from poolhouse.manifests.rbac import PolicyRule

RULES = (
    # A websocket needs `get`, and from Kubernetes 1.35 on `create` too.
    PolicyRule("", ("pods/exec",), ("get", "create"), "to read the PCI addresses of running VMs"),
)
"""rules cluster-wide or in some namespaces; the admission policy `poolhouse-domains` limits them to one command"""
