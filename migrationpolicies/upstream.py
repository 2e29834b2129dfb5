"""KubeVirt's own migration policies, which enforce ours: what each of ours becomes there, and who could outrank it.

KubeVirt orders its policies by the number of labels, then by those on the VMI, then by name. Ours ask for exactly one,
our stamp on the VMI. Whoever made a policy of KubeVirt's with more labels, or with one and a name that comes first, may
therefore decide against us, and all that we can do about it is to say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apimachinery.unstructured import Json, at
from kinds import meta
from migrationpolicies.effective_settings import CLUSTER_WIDE, DEFAULTS
from migrationpolicies.precedence import ANY, Labels, RankedPolicy

API_VERSION = "migrations.kubevirt.io/v1alpha1"


@dataclass(frozen=True)
class UpstreamPolicy:
    """A policy of KubeVirt's. Its values are exact: "" is the empty one."""

    name: str
    instance: tuple[tuple[str, str], ...] = ()
    namespace: tuple[tuple[str, str], ...] = ()
    selects: bool = True
    """False without any selectors: it matches nothing"""
    owner: str = ""
    """UID of its controller; empty for none"""

    @classmethod
    def of(cls, document: Any) -> UpstreamPolicy:
        selectors = at(document, "spec", "selectors")
        owners = at(document, "metadata", "ownerReferences") or ()
        return cls(
            name=str(at(document, "metadata", "name")),
            instance=_pairs(at(selectors, "virtualMachineInstanceSelector")),
            namespace=_pairs(at(selectors, "namespaceSelector")),
            selects=isinstance(selectors, dict),
            owner=next((str(each.get("uid")) for each in owners if each.get("controller")), ""),
        )

    @property
    def rank(self) -> tuple[int, int, str]:
        """The lowest of those that match is obeyed."""
        return -len(self.instance) - len(self.namespace), -len(self.instance), self.name

    def matches(self, instance: Labels, namespace: Labels) -> bool:
        return (
            self.selects
            and all(instance.get(key) == value for key, value in self.instance)
            and all(namespace.get(key) == value for key, value in self.namespace)
        )

    def outranks(self, name: str) -> bool:
        """Whether KubeVirt prefers it to the one that enforces our policy of this name, where both match."""
        return self.rank < (-1, -1, name)

    def threatens(self, policy: RankedPolicy) -> bool:
        """Whether there could be a VMI of this policy's that KubeVirt migrates by the other one."""
        stamped = {**dict(policy.selectors.instance), meta.MIGRATION_POLICY: policy.name}
        return (
            self.selects
            and self.outranks(policy.name)
            and _possible(self.instance, stamped)
            and _possible(self.namespace, dict(policy.selectors.namespace))
        )


def upstream_spec(policy: str, settings: Mapping[str, Any]) -> Json:
    """The spec that makes KubeVirt obey our policy of this name, whose own spec is `settings`."""
    kept = {name: settings[name] for name in DEFAULTS if name not in CLUSTER_WIDE and settings.get(name) is not None}
    return {**kept, "selectors": {"virtualMachineInstanceSelector": {meta.MIGRATION_POLICY: policy}}}


def _possible(wanted: tuple[tuple[str, str], ...], there: Labels) -> bool:
    """Whether something that has these labels ("" is any value) can have the wanted ones too."""
    return all(there.get(key, ANY) in (ANY, value) for key, value in wanted)


def _pairs(selector: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(selector.items())) if isinstance(selector, dict) else ()
