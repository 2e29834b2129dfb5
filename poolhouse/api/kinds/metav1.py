"""Condition and LabelSelector of Kubernetes' `meta/v1`, which several kinds use."""

from collections.abc import Container, Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field

from poolhouse.api.kinds.model import ATOMIC_LIST, AtomicModel, Int64, Model, Time, Tuple, list_map


class Condition(Model):
    """A condition of the object."""

    type: Annotated[str, Field(max_length=316)]
    """Type of the condition."""
    status: Literal["True", "False", "Unknown"]
    """Status of the condition."""
    reason: Annotated[str, Field(max_length=1024)] = ""
    """Reason of the last transition, in CamelCase."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Message for users."""
    last_transition_time: Time | None = None
    """Time at which `status` last changed."""
    observed_generation: Annotated[Int64, Field(ge=0)] | None = None
    """Generation of the object that the condition describes."""


def with_transition_times(
    said: Iterable[Condition], before: Iterable[Condition], *, generation: int, now: str, announced: Container[str] = ()
) -> Iterator[Condition]:
    """The conditions with the times of their last transitions. An unchanged condition keeps its time, so that an
    unchanged status is not written again. Conditions of the `announced` types are omitted until they are first True.
    """
    known = {c.type: c for c in before}
    for c in said:
        old = known.get(c.type)
        if old is None and c.status == "False" and c.type in announced:
            continue
        since = old.last_transition_time if old and old.status == c.status else now
        yield c.model_copy(update={"last_transition_time": since, "observed_generation": generation})


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


class LabelSelector(AtomicModel):
    """Selects objects by labels. All requirements must be met. An empty selector matches everything."""

    match_labels: Annotated[dict[str, str], Field(max_length=256, default_factory=dict)]
    """Required labels and their values."""
    match_expressions: Annotated[
        Tuple[LabelSelectorRequirement], Field(max_length=64, json_schema_extra=ATOMIC_LIST)
    ] = ()
    """Further requirements."""
