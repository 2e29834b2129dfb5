"""Condition and LabelSelector of Kubernetes' `meta/v1`, which several kinds use."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.model import ATOMIC_LIST, AtomicModel, Int64, Model, Rule, Time, Tuple, list_map

MAX_MESSAGE = 32_768
"""of a condition, by the schema of metav1.Condition"""


class Condition(Model):
    """A condition of the object."""

    type: Annotated[str, Field(max_length=316)]
    """Type of the condition."""
    status: Literal["True", "False", "Unknown"]
    """Status of the condition."""
    reason: Annotated[str, Field(max_length=1024)] = ""
    """Reason of the last transition, in CamelCase."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE)] = ""
    """Message for users."""
    last_transition_time: Time | None = None
    """Time at which `status` last changed."""
    observed_generation: Annotated[Int64, Field(ge=0)] | None = None
    """Generation of the object that the condition describes."""


NOT_OBSERVED = -1
"""The `observedGeneration` of an object that no controller has seen. The CRDs have it as the default, because kstatus
calls an object without any status Current."""


class StatusModel(Model):
    """The status of a kind."""

    observed_generation: Annotated[Int64, Field(ge=NOT_OBSERVED)] | None = None
    """Generation of the spec that this status describes. -1 for an object that the controller has not seen."""


Conditions = Annotated[Tuple[Condition], Field(json_schema_extra=list_map("type"))]


class LabelSelectorRequirement(Model):
    """A requirement on one label."""

    key: str
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """In and NotIn compare the label's value with `values`. Exists and DoesNotExist check only the key."""
    values: Annotated[Tuple[str], Field(max_length=256, json_schema_extra=ATOMIC_LIST)] = ()
    """Values for In and NotIn. Must be empty for the other operators."""


MAX_REQUIREMENTS = 64
MAX_VALUES = 256


def count_requirements(selector: Json) -> int:
    """Requirements of a valid selector: labels and expressions."""
    return len(selector.get("matchLabels") or {}) + len(selector.get("matchExpressions") or ())


def count_values(selector: Json) -> int:
    """Values of all expressions of a valid selector."""
    return sum(len(each.get("values") or ()) for each in selector.get("matchExpressions") or ())


def requirements_in_cel(selector: str) -> str:
    """The CEL expression of `count_requirements`."""
    labels, expressions = f"{selector}.matchLabels", f"{selector}.matchExpressions"
    return f"(has({labels}) ? size({labels}) : 0) + (has({expressions}) ? size({expressions}) : 0)"


def values_in_cel(selector: str) -> str:
    """The CEL expression of `count_values`."""
    expressions = f"{selector}.matchExpressions"
    return f"(has({expressions}) ? {expressions}.map(e, has(e.values) ? size(e.values) : 0).sum() : 0)"


class LabelSelector(AtomicModel):
    """Selects objects by labels. All requirements must be met. An empty selector matches everything. It has at most 64
    requirements with 256 values, because controllers compare each VM with all of them."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"{requirements_in_cel('self')} <= {MAX_REQUIREMENTS}",
            message=f"must have at most {MAX_REQUIREMENTS} labels and expressions together, because controllers compare"
            " each VM with all of them",
            holds=lambda value: count_requirements(value) <= MAX_REQUIREMENTS,
        ),
        Rule(
            cel=f"{values_in_cel('self')} <= {MAX_VALUES}",
            message=f"must have at most {MAX_VALUES} values in all expressions together, because controllers compare"
            " each VM with all of them",
            holds=lambda value: count_values(value) <= MAX_VALUES,
        ),
    )

    match_labels: Annotated[dict[str, str], Field(max_length=256, default_factory=dict)]
    """Required labels and their values."""
    match_expressions: Annotated[
        Tuple[LabelSelectorRequirement], Field(max_length=64, json_schema_extra=ATOMIC_LIST)
    ] = ()
    """Further requirements."""
