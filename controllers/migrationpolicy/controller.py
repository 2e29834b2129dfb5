"""Joins the parts: what changed, whose business it is, and when it is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from apimachinery.unstructured import Json
from controllers.migrationpolicy.apply import Apply
from controllers.migrationpolicy.board import Board, Touched
from controllers.migrationpolicy.contest import Contest
from controllers.migrationpolicy.metrics import PolicyMetrics
from controllers.migrationpolicy.observe import Stores, observe
from controllers.migrationpolicy.plan import Action, Repair, plan, stamp
from controllers.migrationpolicy.state import Instance, Namespace, Policy, State
from controllers.migrationpolicy.status import status, turned
from controllers.migrationpolicy.unstamped import Unstamped
from runtime.controller import Controller
from runtime.errors import ApiError, Forbidden, Invalid, NotFound
from runtime.metrics import Metrics
from runtime.resource import Key

GATHER_SECONDS = 0.3
"""Changes within this time are counted at once: a pool that starts a thousand VMs is one change to its policy."""
STATUS_SECONDS = 1.0
"""A policy's counts are written at most so often."""
KNOWN_SECONDS = 0.5
"""until KubeVirt's side is looked for again"""


class PolicyController:
    def __init__(
        self,
        stores: Stores,
        apply: Apply,
        measures: PolicyMetrics,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        metrics: Metrics,
    ) -> None:
        self.board: Board | None = None
        """None while nothing is to be decided: another replica leads, or not everything has been seen yet"""
        self.policies: Controller[str] = Controller("policy", self.reconcile, metrics=metrics)
        self.stamps: Controller[Key] = Controller("policy-stamp", self.reconcile_stamp, workers=8, metrics=metrics)
        self._stores = stores
        self._apply = apply
        self._measures = measures
        self._clock = clock
        self._now = now
        self._written: dict[str, float] = {}
        self._contest = Contest()
        self._unstamped = Unstamped()

    async def work(self) -> None:
        """Works for ever, from the stores as they are now."""
        self._open()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.policies.run(), name="policy")
                group.create_task(self.stamps.run(), name="policy-stamp")
                group.create_task(self._stores.upstream.run(), name="policy-upstream")
                group.create_task(self._stores.kubevirts.run(), name="policy-kubevirt")
        finally:
            self.board = None
            self._unstamped.clear()
            self._measures.clear()

    def _open(self) -> None:
        self.board = Board()
        self.board.load(
            (entered for each in self._stores.policies if (entered := each.entered)),
            {each.name: each.labels for each in self._stores.namespaces},
            ((each.key, each.labels) for each in self._stores.instances if each.live),
        )
        for each in self._stores.instances:
            self._check_stamp(each)
        self.everything()

    # One policy

    async def reconcile(self, name: str) -> float | None:
        if self.board is None:
            return None
        if not self._stores.known:
            return KNOWN_SECONDS
        state = observe(self._stores, self.board, name)
        if state is None:
            self._forget(name)
            return None
        action, pause = plan(state), 0.0
        if isinstance(action, Repair):
            pause = self._contest.pause(name, state.policy.generation, self._clock())
        problem = None if pause else await self._act(state.policy, action)
        refusal = problem.message if problem else ""
        said = replace(state, contested=pause > 0, refusal=refusal, unstamped=self._unstamped.of(name))
        wait = await self._say(said)
        if problem is not None:
            raise problem
        return min((each for each in (pause, wait) if each), default=None)

    async def _act(self, policy: Policy, action: Action | None) -> ApiError | None:
        """What was refused for a reason that people have to know; anything else that fails is tried again."""
        if action is None:
            return None
        try:
            await self._apply(policy, action)
        except (Invalid, Forbidden, NotFound) as error:
            return error
        if isinstance(action, Repair):
            self._measures.repairs.inc()
        return None

    async def _say(self, state: State) -> float | None:
        policy = state.policy
        fresh = status(state, self._now())
        self._measures.policy(policy.name, fresh)
        if fresh == policy.status or policy.deleting:
            return None
        left = self._written.get(policy.name, float("-inf")) + STATUS_SECONDS - self._clock()
        if left > 0:
            return left
        await self._apply.write_status(policy, fresh)
        self._written[policy.name] = self._clock()
        for condition in turned(policy.status, fresh):
            self._announce(policy, condition)
        return None

    def _announce(self, policy: Policy, condition: Json) -> None:
        if condition["status"] == "False":
            if condition["reason"] != "NotActive":  # which Active has said better
                self._apply.say(policy, "Warning", condition["reason"], condition["message"])
        elif condition["type"] == "Enforced" and policy.status:  # of a new policy it is no news
            self._apply.say(policy, "Normal", "Enforced", condition["message"])

    def _forget(self, name: str) -> None:
        self._written.pop(name, None)
        self._contest.forget(name)
        self._measures.gone(name)

    # One instance

    async def reconcile_stamp(self, key: Key) -> float | None:
        if self.board is None:
            return None
        found = self._stores.instances.get(key)
        if found is not None and self.board.decided(key) and (action := stamp(found, self.board.winner(key))):
            try:
                await self._apply.stamp(found, action)
            except (Forbidden, Invalid) as error:
                if self._left(found):
                    return None
                self._count(self._unstamped.refused(key, action.policy, error.message))
                raise
            self._measures.stamps.inc()
        self._count(self._unstamped.over(key))
        return None

    def _left(self, before: Instance) -> bool:
        """Whether it has ended, or another one has its name by now, whose UID cannot be changed; that has had an event
        of its own."""
        seen = self._stores.instances.get(before.key)
        return seen is None or seen.uid != before.uid or not seen.live

    def _check_stamp(self, found: Instance) -> None:
        assert self.board is not None
        if self.board.decided(found.key) and stamp(found, self.board.winner(found.key)):
            self.stamps.enqueue(found.key)

    # What changed, and whose business it is

    def policy_changed(self, old: Policy | None, new: Policy | None) -> None:
        if self.board is None:
            return
        for name in {each.name for each in (old, new) if each is not None}:
            self._touched(self.board.policy(name, new.entered if new is not None else None))
            self.policies.enqueue(name)

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        if self.board is None:
            return
        for name in {each.name for each in (old, new) if each is not None}:
            self._touched(self.board.namespace(name, new.labels if new is not None else None))

    def instance_changed(self, old: Instance | None, new: Instance | None) -> None:
        if self.board is None:
            return
        for key in {each.key for each in (old, new) if each is not None}:
            self._touched(self.board.instance(key, new.labels if new is not None and new.live else None))
        if new is not None:
            self._check_stamp(new)
        if old is not None and (new is None or not new.live or new.uid != old.uid):
            self._count(self._unstamped.over(old.key))

    def everything(self) -> None:
        if self.board is not None:
            self._count(each.name for each in self._stores.policies)

    def _touched(self, touched: Touched) -> None:
        for key in touched.instances:
            found = self._stores.instances.get(key)
            if found is not None:
                self._check_stamp(found)
        self._count(touched.policies)

    def _count(self, names: Iterable[str]) -> None:
        for name in names:
            self.policies.enqueue(name, GATHER_SECONDS)
