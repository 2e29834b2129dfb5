"""How VMs are chosen: which are updated, which leave, and in what order."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from kinds.metav1 import LabelSelector
from kinds.model import Model, Rule, Tuple, at_most_one_of, expected

BasePolicy = Literal["Oldest", "Newest", "Random"]
StatePreservation = Literal["Disabled", "Offline", "Online"]

_ONLINE = Rule(
    cel="!has(self.statePreservation) || self.statePreservation != 'Online'",
    message="Online is not possible: KubeVirt cannot keep a VM's memory in a PersistentVolumeClaim; use Offline to keep"
    " its disks",
    holds=lambda value: value.get("statePreservation") != "Online",
    field=".statePreservation",
)


class EmptyObject(Model):
    """An empty object: choosing it is all there is to say."""


class OrderedPolicy(Model):
    """Selects the VMs that come before all others that no earlier policy selects."""

    model_config = ConfigDict(
        json_schema_extra={
            **expected('a selector, "- labelSelector: {matchLabels: {KEY: VALUE}}"'),
            "x-hints": {
                "matchLabels": "put it inside labelSelector",
                "matchExpressions": "put it inside labelSelector",
                "nodeSelector": "VMs can be selected by labelSelector only",
                "nodeSelectorRequirementMatcher": "VMs can be selected by labelSelector only",
            },
        }
    )

    label_selector: LabelSelector
    """Selects VMs by their labels."""


class SelectionPolicy(Model):
    """Which VMs come first."""

    model_config = ConfigDict(
        json_schema_extra={"x-hints": {"sortPolicy": "basePolicy", "selectors": "orderedPolicies"}}
    )

    ordered_policies: Annotated[
        Tuple[OrderedPolicy], Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """Selectors in the order of their priority: VMs that the first one selects come first. VMs that none selects come
    last, so the list never keeps a VM from being chosen."""
    base_policy: BasePolicy = "Random"
    """The order among VMs that the ordered policies leave equal: Oldest first, Newest first, or Random, which takes
    those VMs first whose loss disrupts least."""


class ScaleInOpportunistic(Model):
    """Scale-in of halted VMs only. Running VMs are never stopped for it."""

    rules: ClassVar[tuple[Rule, ...]] = (_ONLINE,)

    state_preservation: StatePreservation = "Disabled"
    """What happens to the disks of a VM that leaves. Disabled deletes them; Offline keeps them and gives them back
    to the VM of the same name when the pool grows again; Online is not possible yet and refused."""


class ScaleInProactive(Model):
    """Scale-in that shuts running VMs down."""

    rules: ClassVar[tuple[Rule, ...]] = (_ONLINE,)

    selection_policy: SelectionPolicy = SelectionPolicy()
    """Which VMs leave first."""
    state_preservation: StatePreservation = "Disabled"
    """What happens to the disks of a VM that leaves. Disabled deletes them; Offline keeps them and gives them back
    to the VM of the same name when the pool grows again; Online is not possible yet and refused."""


class ScaleInStrategy(Model):
    """How VMs leave the pool when it has more than `replicas`. Exactly one of the three."""

    rules: ClassVar[tuple[Rule, ...]] = (
        at_most_one_of("unmanaged", "opportunistic", "proactive", noun="scale-in strategy"),
    )

    unmanaged: EmptyObject | None = None
    """The pool never deletes a VM; people delete VMs, and decide about their disks, themselves."""
    opportunistic: ScaleInOpportunistic | None = None
    """Only halted VMs leave."""
    proactive: ScaleInProactive | None = None
    """VMs are shut down and leave. The default."""

    @property
    def chosen(self) -> EmptyObject | ScaleInOpportunistic | ScaleInProactive:
        return self.unmanaged or self.opportunistic or self.proactive or ScaleInProactive()


class UpdateProactive(Model):
    """Update that restarts running VMs."""

    selection_policy: SelectionPolicy = SelectionPolicy()
    """Which VMs are updated first."""


class UpdateStrategy(Model):
    """How VMs get a new template. Exactly one of the three."""

    rules: ClassVar[tuple[Rule, ...]] = (
        at_most_one_of("unmanaged", "opportunistic", "proactive", noun="update strategy"),
    )

    unmanaged: EmptyObject | None = None
    """A VM is never touched after its creation; people update VMs themselves."""
    opportunistic: EmptyObject | None = None
    """Only halted VMs are updated."""
    proactive: UpdateProactive | None = None
    """VMs are updated and restarted, at most `maxUnavailable` at a time. The default."""

    @property
    def chosen(self) -> EmptyObject | UpdateProactive:
        return self.unmanaged or self.opportunistic or self.proactive or UpdateProactive()
