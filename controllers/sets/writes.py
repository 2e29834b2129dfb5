"""Carries out the actions of a plan, by a table of writes: for each type of action, the function that sends it.

The order of the table is the order of the writes.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from controllers.sets.actions import Action
from controllers.sets.write_batches import Outcome, WriteBatches, is_passing
from controllers.shared.creation import DefaultingCreator
from defaulter.contract import InvalidDocument
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.batch_writer import MAX_BATCH_SIZE
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.events import ObjectMeta

O = TypeVar("O", bound=ObjectMeta)  # noqa: E741
A = TypeVar("A", bound=Action)
W = TypeVar("W", bound="Writing[Any]")


@dataclass(frozen=True)
class Writing(Generic[O]):
    """The writes of one plan."""

    api: Api
    batches: WriteBatches[O]
    creator: DefaultingCreator
    owner: O
    """the set"""
    burst: int
    """the number of VMs or VMIs that are changed at once"""


Send = Callable[[W, Sequence[Any]], Awaitable[Outcome]]
"""Makes the requests of all actions of one type in a plan."""


def each(call: Callable[[W, A], Awaitable[None]], *, quiet: bool = False, in_bursts: bool = False) -> Send[W]:
    """Makes the requests of the actions one by one, in batches. `quiet` omits events of success, and `in_bursts` makes
    no more requests at once than the set's burst."""

    async def send(to: W, actions: Sequence[A]) -> Outcome:
        most = to.burst if in_bursts else MAX_BATCH_SIZE
        return await to.batches.send(to.owner, actions, partial(call, to), max_in_flight=most, quiet=quiet)

    return send


async def carry_out(
    writes: Mapping[type[Any], Send[W]],
    to: W,
    actions: Iterable[Any],
    needs: Mapping[type[Any], type[Any]] = MappingProxyType({}),
) -> dict[type[Any], Outcome]:
    """Returns the outcome of each type in the table. `needs` has types that are not done if some writes of another type
    were not done. Raises KeyError, before the first write, for a type that the table does not have."""
    planned: dict[type[Any], list[Any]] = {kind: [] for kind in writes}
    for action in actions:
        planned[type(action)].append(action)
    outcomes: dict[type[Any], Outcome] = {}
    for kind, send in writes.items():
        if kind in needs and outcomes[needs[kind]].retry:
            outcomes[kind] = to.batches.skip(to.owner, planned[kind])
        else:
            outcomes[kind] = await send(to, planned[kind])
    return outcomes


async def create(
    to: Writing[Any],
    actions: Sequence[A],
    documents: Sequence[Json],
    before: Callable[[A, Json], Awaitable[None]] | None = None,
) -> Outcome:
    """Creates the objects of one namespace, with the hardware that the defaulter gives them all at once. `before` is
    called before each request, and prevents it by raising an error."""
    try:
        completed = await to.creator(documents)
    except (InvalidDocument, ApiError) as error:
        end = to.batches.skip if is_passing(error) else to.batches.refuse
        return end(to.owner, actions, error)
    by_action = dict(zip(actions, completed, strict=True))

    async def call(action: A) -> None:
        if before is not None:
            await before(action, by_action[action])
        await to.creator.create(by_action[action])

    return await to.batches.send(to.owner, actions, call, max_in_flight=to.burst)
