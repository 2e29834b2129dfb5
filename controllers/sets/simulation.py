"""Simulates a controller: applies the actions of a plan only to the snapshot, until a plan has no actions.

An HTTP endpoint returns the simulated actions for a document. The simulation uses the controller's stores, so the
caller must be allowed to list their objects.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from controllers.shared.invalid_spec import InvalidSpec
from controllers.shared.planner import Planner, PlanTooExpensive
from defaulter.contract import excessive_sizes
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds.checks.metadata import is_label
from poolhouse.api.kinds.kind import Kind
from poolhouse.runtime.access_review import caller_may
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Forbidden, Unauthorized
from poolhouse.runtime.resource import SELF_SUBJECT_REVIEWS, Resource
from poolhouse.service.json_api import problem_body

STEP = timedelta(minutes=10)
"""Simulated time between two plans, long enough for all successful actions."""
MAX_ACTIONS = 20_000
"""Limit of a simulation: an update and a restart of each VM of the largest pool, with the default replica limit.
Without a limit, the simulation of a pool of a thousand million VMs would take days."""

S = TypeVar("S")


class Plan(Protocol):
    @property
    def actions(self) -> Sequence[Any]: ...


P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Simulation(Generic[P]):
    steps: tuple[P, ...]
    """Consecutive plans with actions."""
    last: P | None
    """The first plan without actions, or None if a limit ended the simulation."""

    @property
    def complete(self) -> bool:
        return self.last is not None


def simulate(
    snapshot: S,
    now: datetime,
    plan: Callable[[S, datetime], P],
    after: Callable[[S, Sequence[Any]], S],
    max_steps: int,
    max_actions: int | None = None,
) -> Simulation[P]:
    """Simulates consecutive plans, until the next would be beyond a limit. `after` returns the snapshot after actions.
    The default of `max_actions` is `MAX_ACTIONS`."""
    most = MAX_ACTIONS if max_actions is None else max_actions
    steps: list[P] = []
    actions = 0
    for number in range(max_steps):
        decided = plan(snapshot, now + number * STEP)
        if not decided.actions:
            return Simulation(tuple(steps), decided)
        steps.append(decided)
        actions += len(decided.actions)
        if actions >= most:
            break
        snapshot = after(snapshot, decided.actions)
    return Simulation(tuple(steps), None)


def rows(steps: Iterable[Plan]) -> Iterator[Json]:
    """The actions on VMs, with `step`, `action`, `vm` and `reason`. A pause or an analysis has no VM."""
    for number, step in enumerate(steps, start=1):
        for action in step.actions:
            if action.concerns_vm:
                yield {"step": number, "action": action.verb, "vm": action.name or None, "reason": action.reason}


def plan_of_answer(rows: Iterable[Json]) -> list[Json]:
    """The rows without their steps, as responses over HTTP have them."""
    return [{key: row[key] for key in ("action", "vm", "reason")} for row in rows]


Answer = tuple[int, Json]
UNKNOWN_TOKEN = "the API server does not know this token"

MAX_ACTIONS_OF_ANSWER = 1000
"""limit for a response over HTTP, for which a user waits"""


@dataclass
class PlanEndpoint:
    api: Api
    resource: Resource
    """The resource that the caller must be allowed to list."""
    kind: Kind
    """The kind of the document."""
    planner: Planner
    answer: Callable[[Any, datetime], Json]
    """Computes the response from a hypothetical snapshot."""
    observe: Callable[[Json], Any | InvalidSpec[Any]] | None = None
    """Returns the hypothetical snapshot for a document. None while this replica has no stores."""
    complete: Callable[[Any], Awaitable[Any]] | None = None
    """Adds to the snapshot what the stores do not have."""

    async def __call__(self, document: Json, token: str) -> Answer:
        # Only a caller with the right has the document checked, because a check takes as long as the document is large.
        given = typed(str, document, "metadata", "namespace") or ""
        namespace = given if is_label(given) else ""
        caller = self.api.with_token(lambda: token)
        denied = await authorize_list(caller, self.resource, namespace or "default")
        if denied and (namespace or denied[0] != 403):
            return denied
        of = f"plan of {self.kind.plural}", (namespace, str(at(document, "metadata", "name")))
        try:
            document, problems = await self.planner.run(of, self._checked, document)
            if problems:
                return 422, {"problems": [{"path": each.path, "message": each.message} for each in problems]}
            if not namespace and (denied := await authorize_list(caller, self.resource, namespace)):
                return denied
            if self.observe is None:
                return 503, problem_body(f"this replica does not follow {self.kind.plural} now")
            snapshot = self.observe(document)
            if isinstance(snapshot, InvalidSpec):
                return 422, problem_body(snapshot.problem, "spec")
            if self.complete is not None:
                snapshot = await self.complete(snapshot)
            return 200, await self.planner.run(of, self.answer, snapshot, self.api.now())
        except PlanTooExpensive as error:
            return 503, problem_body(f"the plan {error}")
        finally:
            self.planner.forget(of)

    def _checked(self, document: Json) -> tuple[Json, list[Problem]]:
        """The document in the form of the newest version, and its problems."""
        if excessive := list(excessive_sizes(document)):
            return document, excessive
        document = self.kind.normalize(document)
        problems = list(self.kind.problems(document))
        if not problems and not at(document, "metadata", "name"):
            problems = [Problem("metadata.name", "is missing; an object without a name has no plan")]
        return document, problems


async def authenticate(api: Api, token: str) -> str | Answer:
    """The tenant of a token: a user, or all ServiceAccounts of a namespace. Otherwise the answer to a token that the
    API server does not know."""
    review = {"apiVersion": SELF_SUBJECT_REVIEWS.api_version, "kind": SELF_SUBJECT_REVIEWS.kind}
    try:
        caller = api.with_token(lambda: token)
        answer = await caller.request("POST", SELF_SUBJECT_REVIEWS.path(), body=review)
    except (Unauthorized, Forbidden) as error:
        return error.status or 403, problem_body(UNKNOWN_TOKEN)
    except ApiError as error:
        return 503, problem_body(f"the API server did not say whose token this is: {error.message}")
    return tenant_of(str(at(answer, "status", "userInfo", "username") or ""))


def tenant_of(username: str) -> str:
    """Whoever may create one ServiceAccount may create more, so those of a namespace share."""
    return username.rpartition(":")[0] if username.startswith("system:serviceaccount:") else username


async def authorize_list(caller: Api, resource: Resource, namespace: str) -> Answer | None:
    """Checks whether the caller may list these objects. Returns the response of a refusal, or None."""
    try:
        allowed = await caller_may(caller, "list", resource, namespace)
    except (Unauthorized, Forbidden) as error:
        return error.status or 403, problem_body(UNKNOWN_TOKEN)
    except ApiError as error:
        return 503, problem_body(f"the access review for {resource.plural} failed: {error.message}")
    return None if allowed else (403, problem_body(f"you may not list {resource.plural}"))
