"""Update strategies and scale-in strategies of a pool: which VMs are updated or deleted, and in what order."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.metav1 import (
    LabelSelector,
    count_requirements,
    count_values,
    requirements_in_cel,
    values_in_cel,
)
from poolhouse.api.kinds.model import Count, IntOrPercent, Model, Rule, Tuple, at_most_one_of, expected, has
from poolhouse.api.kinds.pool_analysis import Analysis, AnalysisStep

BasePolicy = Literal["Oldest", "Newest", "Random"]
ReplacePolicy = Literal["Never", "Recreate"]
LiveUpdate = Literal["Prefer", "Require", "Never"]
StatePreservation = Literal["Disabled", "Offline", "Online"]

_ONLINE = Rule(
    cel="!has(self.statePreservation) || self.statePreservation != 'Online'",
    message="Online is not possible: KubeVirt cannot keep a VM's memory in a PersistentVolumeClaim; use Offline to keep"
    " its disks",
    holds=lambda value: value.get("statePreservation") != "Online",
    field=".statePreservation",
)


class EmptyObject(Model):
    """An empty object. The strategy has no parameters."""


class OrderedPolicy(Model):
    """Selects VMs that come before those of later policies."""

    model_config = ConfigDict(json_schema_extra=expected('a selector, "- labelSelector: {matchLabels: {KEY: VALUE}}"'))
    hints: ClassVar[Mapping[str, str]] = {
        "matchLabels": "put it inside labelSelector",
        "matchExpressions": "put it inside labelSelector",
        "nodeSelector": "VMs can be selected by labelSelector only",
        "nodeSelectorRequirementMatcher": "VMs can be selected by labelSelector only",
    }

    label_selector: LabelSelector
    """Selects VMs by their labels."""


MAX_REQUIREMENTS = 128
MAX_VALUES = 512
"""Limits of all ordered policies together. 10,000 VMs are then compared with all selectors within 2 seconds. With 32
policies of 64 expressions of 256 values it would take 109 seconds."""


def _selectors(value: Json) -> Iterator[Json]:
    for policy in value.get("orderedPolicies") or ():
        yield policy.get("labelSelector") or {}


def _sum_of_policies(count: str) -> str:
    """The CEL expression of the sum of a number of each selector, `p.labelSelector`."""
    return f"!has(self.orderedPolicies) || self.orderedPolicies.map(p, {count}).sum()"


class SelectionPolicy(Model):
    """Order of the VMs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"{_sum_of_policies(requirements_in_cel('p.labelSelector'))} <= {MAX_REQUIREMENTS}",
            message=f"must have at most {MAX_REQUIREMENTS} labels and expressions in all selectors together, because"
            " the controller compares each VM with all of them",
            holds=lambda value: sum(map(count_requirements, _selectors(value))) <= MAX_REQUIREMENTS,
            field=".orderedPolicies",
        ),
        Rule(
            cel=f"{_sum_of_policies(values_in_cel('p.labelSelector'))} <= {MAX_VALUES}",
            message=f"must have at most {MAX_VALUES} values in all selectors together, because the controller compares"
            " each VM with all of them",
            holds=lambda value: sum(map(count_values, _selectors(value))) <= MAX_VALUES,
            field=".orderedPolicies",
        ),
    )
    hints: ClassVar[Mapping[str, str]] = {"sortPolicy": "basePolicy", "selectors": "orderedPolicies"}

    ordered_policies: Annotated[
        Tuple[OrderedPolicy], Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """Selectors by priority: the VMs of the first selector come first. VMs that no selector matches come last, so that
    every VM can be chosen. At most 32, with 128 labels and expressions and 512 values in all, because the controller
    compares each VM with all of them."""
    base_policy: BasePolicy = "Random"
    """Order of VMs with the same priority: Oldest first, Newest first, or Random. Random prefers VMs whose loss
    disrupts least."""


class ScaleInOpportunistic(Model):
    """Scale-in of halted VMs only. Running VMs are not stopped."""

    rules: ClassVar[tuple[Rule, ...]] = (_ONLINE,)

    state_preservation: StatePreservation = "Disabled"
    """What happens to the disks of a deleted VM. Disabled: they are deleted. Offline: they are kept, and the VM of the
    same name gets them back when the pool scales out. Online: not supported."""


class ScaleInProactive(Model):
    """Scale-in that shuts down running VMs."""

    rules: ClassVar[tuple[Rule, ...]] = (_ONLINE,)

    selection_policy: SelectionPolicy = SelectionPolicy()
    """Order in which VMs are deleted."""
    state_preservation: StatePreservation = "Disabled"
    """What happens to the disks of a deleted VM. Disabled: they are deleted. Offline: they are kept, and the VM of the
    same name gets them back when the pool scales out. Online: not supported."""


class ScaleInStrategy(Model):
    """How the pool deletes VMs when it has more than `replicas`. At most one strategy can be given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        at_most_one_of("unmanaged", "opportunistic", "proactive", noun="scale-in strategy"),
    )

    unmanaged: EmptyObject | None = None
    """The pool deletes no VM. Users delete VMs and decide about their disks."""
    opportunistic: ScaleInOpportunistic | None = None
    """Only halted VMs are deleted."""
    proactive: ScaleInProactive | None = None
    """Running VMs are shut down and deleted. The default."""

    @property
    def chosen(self) -> EmptyObject | ScaleInOpportunistic | ScaleInProactive:
        return self.unmanaged or self.opportunistic or self.proactive or ScaleInProactive()

    @property
    def retains_disks(self) -> bool:
        """Whether scale-in keeps the disks of the VMs that it deletes."""
        strategy = self.chosen
        return not isinstance(strategy, EmptyObject) and strategy.state_preservation == "Offline"


class PauseStep(Model):
    """A pause of an update."""

    duration_seconds: Annotated[Count, Field(ge=1)] | None = None
    """Seconds after which the update continues. Without a duration it waits until a user promotes it with
    `poolhouse rollout promote`."""


_STEP_FIELDS = ("setReplicas", "pause", "analysis")


class UpdateStep(Model):
    """A step of an update: `setReplicas`, `pause` or `analysis`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"{' + '.join(f'(has(self.{field}) ? 1 : 0)' for field in _STEP_FIELDS)} == 1",
            message="give exactly one of setReplicas, pause and analysis, such as `- setReplicas: 10%`",
            holds=lambda value: sum(has(value, field) for field in _STEP_FIELDS) == 1,
        ),
    )
    hints: ClassVar[Mapping[str, str]] = {"setWeight": "setReplicas", "duration": "put durationSeconds inside pause"}

    set_replicas: IntOrPercent | None = None
    """Number of VMs that get the new template, or a percentage of `replicas`, rounded up. The step ends when that many
    VMs have the template and are available."""
    pause: PauseStep | None = None
    """Stops the update for a time, or until a user promotes it."""
    analysis: AnalysisStep | None = None
    """`{}`: stops the update until all checks of the analysis are successful."""


class Rollback(Model):
    """Gives the VMs their former template again if an update fails: at `progressDeadlineSeconds`, or when too many VMs
    fail."""

    failure_threshold: Annotated[Count, Field(ge=1)] | None = None
    """Number of VMs with the new template that fail to start, or whose VMI fails, at which the update is rolled back.
    Without it, only the deadline counts."""


_LAST_STEPS = (UpdateStep(set_replicas="100%"), UpdateStep(analysis=AnalysisStep()))


def _steps(value: Json) -> list[Json]:
    return [step for step in value.get("steps") or () if isinstance(step, dict)]


class UpdateProactive(Model):
    """Update that restarts running VMs."""

    hints: ClassVar[Mapping[str, str]] = {"replacementMethod": "replacePolicy", "maxUnavailable": "spec.maxUnavailable"}
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.analysis) || !has(self.steps) || self.steps.all(step, !has(step.analysis))",
            message="is missing, but a step has an analysis: give the checks, or remove the step",
            holds=lambda value: has(value, "analysis") or not any(has(step, "analysis") for step in _steps(value)),
            field=".analysis",
        ),
    )

    selection_policy: SelectionPolicy = SelectionPolicy()
    """Order in which VMs are updated."""
    partition: IntOrPercent | None = None
    """Number of VMs that keep the old template, or a percentage of `replicas`, rounded up. VMs that the selection
    policy puts last keep it. Defaults to none."""
    steps: Annotated[
        Tuple[UpdateStep], Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """Steps of the update, in order. After the last step all VMs get the template. A new pool skips the steps. At most
    32, because each plan of an update looks at all of them."""
    rollback: Rollback | None = None
    """Rolls back an update that fails. Defaults to never: a failed update stops. `{}`: at the deadline."""
    snapshot_before_update: bool = False
    """Take a VirtualMachineSnapshot of each VM before the update changes its guest. A VM whose snapshot is not ready is
    not updated. `poolhouse rollout undo --restore-snapshots` restores the snapshots."""
    replace_policy: ReplacePolicy = "Never"
    """What an update does with disks whose entry in dataVolumeTemplates has changed, for example to another image,
    size or storage class. Never: the VM keeps its disks, and the condition DisksOutdated names it. Recreate: the VM
    gets new disks under other names, within `maxUnavailable`. It restarts when they are ready, and its old disks are
    retained."""
    live_update: LiveUpdate = "Prefer"
    """What an update does with a change that KubeVirt can apply to a running VM: of CPU sockets, memory, NICs,
    hotpluggable disks, `nodeSelector`, `affinity`, `tolerations` and the instance type. Prefer: KubeVirt applies it,
    and a VM restarts within `maxUnavailable` if KubeVirt cannot, or has not after `progressDeadlineSeconds`. Require:
    an update restarts no VM, and a VM that would need a restart waits with the reason until somebody halts it. Never:
    VMs restart."""
    max_surge: IntOrPercent | None = None
    """Number of VMs above `replicas`, or a percentage of `replicas`, rounded up, that the pool may have during an
    update. With it, a VM that would need a restart or new disks is replaced: the pool creates a VM with the new
    template and deletes an old one, with its disks, when the new one is ready. Defaults to none: VMs are updated in
    place."""
    track_data_sources: bool = False
    """Whether a new image counts as a change of the template, if `sourceRef` of an entry in dataVolumeTemplates names a
    DataSource. The update strategy then applies as to any other change."""
    analysis: Analysis | None = None
    """Rolls back an update if a check of the new template fails. Defaults to no checks."""

    @property
    def all_steps(self) -> tuple[UpdateStep, ...]:
        """The steps. An update with an analysis ends with two more: all VMs, and an analysis of all of them."""
        return (*self.steps, *_LAST_STEPS) if self.analysis is not None else self.steps


_DEFAULT_UPDATE = UpdateProactive()


class UpdateStrategy(Model):
    """How VMs get a new template. At most one strategy can be given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        at_most_one_of("unmanaged", "opportunistic", "proactive", noun="update strategy"),
    )

    unmanaged: EmptyObject | None = None
    """The pool updates no VM. Users update VMs."""
    opportunistic: EmptyObject | None = None
    """Halted VMs are updated, and VMs with `domain.rebootPolicy: Terminate`, whose guests get the template when they
    reboot. KubeVirt applies earlier what it can change in a running VM."""
    proactive: UpdateProactive | None = None
    """VMs are updated and restarted, at most `maxUnavailable` at a time. The default."""

    @property
    def chosen(self) -> EmptyObject | UpdateProactive:
        return self.unmanaged or self.opportunistic or self.proactive or _DEFAULT_UPDATE
