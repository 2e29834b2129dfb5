"""The rule that asks again about new images that the author of a reference may not get."""

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.reasons import PoolReason
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.reference_rights import ANSWER_SECONDS, references_refused
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.pool import POOL


def _seconds_until_answer(snapshot: PoolSnapshot, now: datetime) -> float | None:
    return ANSWER_SECONDS if snapshot.refused_references else None


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    reasons = PoolReason.AUTHOR_MAY_NOT_GET, PoolReason.AUTHORS_MAY_GET
    yield references_refused(snapshot.refused_references, POOL.crd_name, snapshot.pool.name, reasons)


REFERENCES = Rule(again=(_seconds_until_answer,), conditions=_conditions)
