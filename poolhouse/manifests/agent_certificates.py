"""Rights of the controllers to issue certificates to the agents in warm VMs."""

from poolhouse.api.kinds import meta
from poolhouse.manifests.rbac import PolicyRule

AUTHORITY_RULES = (
    PolicyRule(
        "",
        ("secrets",),
        ("get", "update"),
        "to sign certificates of agents in warm VMs",
        names=(meta.AGENT_CA_SECRET,),
    ),
    PolicyRule("", ("secrets",), ("create",), "RBAC cannot limit create by name"),
)
"""rules in Poolhouse's namespace"""

CERTIFICATE_RULES = (PolicyRule("", ("secrets",), ("create",), "certificates of agents in warm VMs"),)
"""rules in each namespace whose VMs get certificates"""
