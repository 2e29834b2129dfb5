"""What becomes of the actions of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from controllers.sets.write_batches import Failure, Outcome, WriteBatches, merge_outcomes, retry_unless_done
from controllers.sets.writes import Writing, carry_out, create, each
from poolhouse.runtime.batch_writer import ExpectedEvents
from poolhouse.runtime.controller import RetryWithBackoff
from poolhouse.runtime.errors import ApiError, Conflict, Forbidden, Invalid, NotServed, Throttled, Unreachable
from poolhouse.runtime.expectations import Expectations
from tests.controllers.replicaset.builders import a_set


@dataclass(frozen=True)
class Save:
    name: str
    verb = "Save"

    def expected_events(self) -> ExpectedEvents:
        return ExpectedEvents()


@dataclass(frozen=True)
class Create:
    name: str
    verb = "Create"

    def expected_events(self) -> ExpectedEvents:
        return ExpectedEvents(creates=(self.name,))


@dataclass
class Server:
    """Creates objects, and answers with errors to dry runs and to some names."""

    errors: dict[str, Exception] = field(default_factory=dict)
    dry_run: Exception | None = None
    done: list[str] = field(default_factory=list)

    async def __call__(self, documents: list[str]) -> list[str]:
        if self.dry_run is not None:
            raise self.dry_run
        return documents

    async def create(self, name: str) -> None:
        if name in self.errors:
            raise self.errors[name]
        self.done.append(name)

    # Events

    def succeeded(self, owner: Any, action: Any) -> None:
        self.done.append(f"event of {action.name}")

    def failed(self, owner: Any, action: Any, error: Exception) -> Failure:
        return Failure("FailedCreate", str(error))


def writing(server: Server) -> Writing[Any]:
    batches: WriteBatches[Any] = WriteBatches(server, Expectations(), lambda: 0.0)
    return Writing(server, batches, server, a_set(3), 250)


async def _save(to: Writing[Any], action: Save) -> None:
    await to.creator.create(action.name)


async def _create(to: Writing[Any], actions: Any) -> Outcome:
    return await create(to, actions, [action.name for action in actions])


WRITES: dict[type[Any], Any] = {Save: each(_save, quiet=True), Create: _create}
PLAN = (Create("b"), Create("a"), Save("s"))


async def test_writes_have_the_order_of_the_table() -> None:
    server = Server()
    outcomes = await carry_out(WRITES, writing(server), PLAN)
    assert server.done == ["s", "b", "a", "event of b", "event of a"]
    assert [outcome.done for outcome in outcomes.values()] == [(Save("s"),), (Create("b"), Create("a"))]


async def test_an_action_without_a_write_is_refused_before_the_first_write() -> None:
    server = Server()
    with pytest.raises(KeyError):
        await carry_out({Save: WRITES[Save]}, writing(server), PLAN)
    assert server.done == []


async def test_what_needs_a_failed_write_is_not_sent() -> None:
    server = Server(errors={"s": Invalid("no")})
    to = writing(server)
    to.batches.expect(to.owner, PLAN)
    outcomes = await carry_out(WRITES, to, PLAN, {Create: Save})
    assert server.done == []
    assert outcomes[Create] == Outcome(retry=True, not_done=(Create("b"), Create("a")))
    assert to.batches.expectations.satisfied("u-web", 0.0), "nothing waits for events of unsent writes"


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        pytest.param(
            Invalid("no such disk"), Failure("FailedCreate", "no such disk"), id="the API server refuses the object"
        ),
        pytest.param(
            NotServed("no VMs"), Failure("FailedCreate", "no VMs"), id="the CRD was deleted while the pool existed"
        ),
        pytest.param(Throttled("later"), None, id="the API server limits requests"),
        pytest.param(Unreachable("away"), None, id="no answer"),
    ],
)
async def test_a_failed_dry_run_creates_nothing(error: ApiError, failure: Failure | None) -> None:
    server = Server(dry_run=error)
    to = writing(server)
    to.batches.expect(to.owner, PLAN[:2])
    outcome = (await carry_out(WRITES, to, PLAN))[Create]
    assert (outcome.failure, outcome.retry, outcome.not_done) == (failure, True, PLAN[:2])
    assert outcome.error == (None if isinstance(error, Invalid) else error), "it decides when to try again"
    assert server.done == ["s"]
    assert to.batches.expectations.satisfied("u-web", 0.0)


FAILED = Failure("FailedCreate", "no such disk")


@pytest.mark.parametrize(
    ("outcomes", "reported", "raised", "message"),
    [
        ([Outcome(done=(Save("s"),))], None, None, ""),
        ([Outcome(FAILED, retry=True, error=Forbidden("x"))], None, RetryWithBackoff, "no such disk"),
        ([Outcome(retry=True)], FAILED, RetryWithBackoff, "no such disk"),
        ([Outcome(retry=True)], None, RetryWithBackoff, "the cluster has changed meanwhile"),
        ([Outcome(retry=True, error=TimeoutError())], None, RetryWithBackoff, "no answer in time"),
        ([Outcome(FAILED, retry=True), Outcome(retry=True, error=Throttled("later"))], None, Throttled, "later"),
    ],
)
def test_how_a_reconcile_ends(
    outcomes: list[Outcome], reported: Failure | None, raised: type[Exception] | None, message: str
) -> None:
    if raised is None:
        retry_unless_done(merge_outcomes(outcomes), reported)
        return
    with pytest.raises(raised, match=message) as retry:
        retry_unless_done(merge_outcomes(outcomes), reported)
    assert raised is Throttled or retry.value.__cause__ is merge_outcomes(outcomes).error


@pytest.mark.parametrize(
    ("error", "found"),
    [
        pytest.param(Conflict("changed"), None, id="a conflict is no error of the server"),
        pytest.param(Forbidden("no"), Forbidden, id="a refusal is one"),
    ],
)
async def test_an_outcome_has_the_first_error_of_the_server(error: Exception, found: type[Exception] | None) -> None:
    outcome = (await carry_out(WRITES, writing(Server(errors={"a": error})), [Create("a")]))[Create]
    assert (type(outcome.error) if outcome.error else None) is found
