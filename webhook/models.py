"""Requests and responses of the endpoints for users and programs. The OpenAPI document is generated from them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json


class Body(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class ErrorResponse(Body):
    """The request failed. Each problem says what was found and what to do."""

    allowed: Literal[False] = False
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()
    object: None = None


class ReviewedKind(Body):
    group: str | None = None
    version: str | None = None
    kind: str = Field(min_length=1)


class ReviewRequest(Body):
    """What the API server asks about one object. Other fields are not read."""

    uid: str = Field(min_length=1, description="The answer repeats it.")
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    kind: ReviewedKind
    namespace: str | None = None
    name: str | None = None
    sub_resource: str | None = None
    object: Json | None = Field(default=None, description="Required for CREATE and UPDATE.")
    old_object: Json | None = None
    user_info: Json | None = None
    dry_run: Any = None


class AdmissionReview(Body):
    """The question of an API server."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: ReviewRequest


class ReviewResponse(Body):
    uid: str
    allowed: bool
    patch_type: Literal["JSONPatch"] = Field(default="JSONPatch", description="Set if `patch` is.")
    patch: str = Field(default="", description="The changes of the object, in base64.")
    status: Json = Field(default_factory=dict, description="Why the object is denied, as a Status with causes.")
    warnings: list[str] = []


class AnsweredReview(Body):
    """The answer to an API server."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    response: ReviewResponse


class QueryError(Exception):
    """An error whose response has a status other than 200, and problems."""

    def __init__(self, status: int, *problems: Problem, retry_after_seconds: float | None = None) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.status, self.problems, self.retry_after_seconds = status, problems, retry_after_seconds


class PlanStep(Body):
    """One step of a controller towards the spec."""

    action: str = Field(description="What the controller would do, for example `Create`.")
    vm: str | None = Field(description="Name of the VM or VMI. Null for a pause or an analysis of an update.")
    reason: str


class PlanResponse(Body):
    """What a controller would do with an object."""

    plan: list[PlanStep]
    complete: bool = Field(default=True, description="False if the plan has more steps than are listed.")
    blocked: str | None = Field(default=None, description="Why the plan cannot go on after its last step.")
    refused: str | None = Field(default=None, description="Why the controller does nothing with the object.")


class DryRunResponse(Body):
    """What admission decides about the object. Nothing is stored."""

    allowed: bool
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    object: Json | None = Field(default=None, description="The object as the API server would store it.")
    plan: list[PlanStep] | None = Field(
        default=None, description="What the controller would do then; for pools and replica sets only."
    )


class ExplainRequest(Body):
    """A VMI or VM that exists, with labels and policies to assume."""

    # The published names only, so that each request is valid by the OpenAPI document.
    model_config = ConfigDict(extra="forbid", populate_by_name=False)

    api_version: str | None = None
    kind: Literal["ExplainRequest"] | None = None
    namespace: str | None = Field(default=None, description="Empty: `default`.")
    name: str
    with_labels: dict[str, str | None] | None = Field(
        default=None, description="Labels of the VMI to assume; null removes a label."
    )
    with_policies: list[Json] | None = Field(
        default=None,
        max_length=200,
        description="Migration policies to assume: new ones, or changed ones in place of those with the same name.",
    )


class Candidate(Body):
    """A policy that matches the VMI, in order of precedence."""

    name: str
    winner: bool
    matching_labels: int
    keys: list[str] = Field(description="Keys of the selectors' labels.")
    labels: dict[str, dict[str, str]] = Field(description="Labels that match: those of the VMI and of its namespace.")
    reason: str


class OtherPolicy(Body):
    """A policy that does not match the VMI."""

    name: str
    reason: str


class Setting(Body):
    """A setting of migrations that is in effect."""

    value: Any
    source: Literal["policy", "kubevirt", "default"] = Field(description="What sets the value.")
    policy: str = Field(default="", alias="from", description="Name of the policy, if the policy sets it.")
    unheeded: Any = Field(default=None, description="The policy's value, if KubeVirt cannot apply it per policy.")


class ExplainResponse(Body):
    """The migration policy that applies to a VMI, and the reasons."""

    namespace: str
    name: str
    policy: str | None = Field(description="The policy that the VMI obeys.")
    reason: str
    candidates: list[Candidate]
    others: list[OtherPolicy]
    settings: dict[str, Setting]
    notes: list[str] = Field(description="What prevents KubeVirt from obeying the policy, and what could not be read.")
    stamped: str | None = Field(description="The policy in the VMI's label `poolhouse.dev/migration-policy`.")
    halted: bool = Field(description="The VM does not run; the answer is about its next VMI.")
    supposed: bool = Field(description="The answer is about assumed labels or policies.")
