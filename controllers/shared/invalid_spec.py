"""Objects with an invalid spec, which another release stored or which bypassed admission.

A controller does nothing for such an object. The status of the object reports the problem.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import ValidationError

from controllers.shared.vmi import ObjectView
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.model import Model

S = TypeVar("S", bound=Model)


@dataclass(frozen=True)
class InvalidSpec(ObjectView, Generic[S]):
    """The view of an object with an invalid spec."""

    generation: int
    status: S
    problem: str
    """The path of the field, and its problem."""
    created_at: str = ""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    resource_version: str = ""


def describe(error: ValidationError) -> str:
    """All problems of a spec, with their paths."""
    return "; ".join(f"spec.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())


def parse_status(model: type[S], document: Json) -> S:
    """The object's status. An invalid status counts as empty, because only the controller writes the status."""
    try:
        return model.model_validate(document.get("status") or {})
    except ValidationError:
        return model()
