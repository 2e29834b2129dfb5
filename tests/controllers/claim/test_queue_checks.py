"""The claims of a queue that are checked after changes of their pool, a few at a time."""

from __future__ import annotations

from controllers.claim.queue_checks import CLAIMS_AT_ONCE, QueueChecks
from controllers.claim.wait_queue import WaitQueue

POOL = ("ns", "pool-uid")
CLAIMS = [f"claim-{number:03}" for number in range(2 * CLAIMS_AT_ONCE + 1)]


class Checked:
    def __init__(self) -> None:
        self.queue, self.turns = WaitQueue(), list[list[str]]()
        for uid in CLAIMS:
            self.queue.join("user", uid, uid)
        self.checks = QueueChecks(lambda _: self.queue, lambda uids: self.turns.append(list(uids)))

    def order(self) -> list[str]:
        return [uid for turn in self.turns for uid in turn]

    async def until_idle(self) -> None:
        while await self.checks.reconcile(POOL) is not None:
            pass


async def test_a_change_enqueues_all_claims_a_few_at_a_time() -> None:
    checked = Checked()
    checked.checks.add(*POOL)
    await checked.until_idle()
    assert checked.turns == [CLAIMS[:CLAIMS_AT_ONCE], CLAIMS[CLAIMS_AT_ONCE : 2 * CLAIMS_AT_ONCE], CLAIMS[-1:]]


async def test_a_pool_that_changes_again_and_again_has_its_last_claim_checked() -> None:
    checked = Checked()
    for _ in range(3):
        checked.checks.add(*POOL)
        await checked.checks.reconcile(POOL)
    assert checked.order() == CLAIMS
    await checked.until_idle()
    assert checked.order() == CLAIMS + CLAIMS, "once more after the last change"


async def test_claims_that_have_left_the_queue_are_not_checked_again() -> None:
    checked = Checked()
    checked.checks.add(*POOL)
    await checked.until_idle()
    for uid in CLAIMS[1:]:
        checked.queue.leave(uid)
    checked.turns.clear()
    checked.checks.add(*POOL)
    await checked.until_idle()
    assert checked.turns == [CLAIMS[:1]]
