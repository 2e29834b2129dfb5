"""Asks the API server again whether the author of a reference may still get what it names.

Admission has asked when the reference was written, and recorded the author. The controllers ask before they use what a
reference resolves to from now on. While the answer is no, or there is none, the last state holds.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from controllers.shared.conditions import condition, find_condition
from poolhouse.api.kinds.meta import REFERENCE_AUTHORS
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.reference_authors import TAKE_OVER, Author, name_reference
from poolhouse.runtime.access_review import user_may
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import Key, Resource

REFERENCES_REFUSED = "ReferencesRefused"
"""the type of the condition"""
ANSWER_SECONDS = 120.0
"""How long the controller uses an answer of the API server, or the fact that none came. If the author
gets a right back, the controller notices it after this time."""
DEADLINE_SECONDS = 5.0
MAX_ANSWERS = 2000
"""Limit of the answers in memory. An author has up to 32 KiB of groups."""

WITHOUT_IMAGE = "and it had no image before, so its VMs name the DataSource, about which CDI decides"
"""of a disk that is new, or has another name now"""


@dataclass(frozen=True)
class Question:
    author: Author
    resource: Resource
    namespace: str
    name: str


@dataclass(frozen=True)
class Answer:
    refusal: str
    """why the reference is not used, or an empty text"""
    known: bool
    """whether the API server has answered"""
    asked_at: float = 0.0


NOT_ASKED = Answer("the right of its author is not known yet", known=False)


def questions(authors: Mapping[str, Author], resource: Resource, changed: Mapping[str, Key]) -> dict[str, Question]:
    """What to ask about the objects that references name, by the names of the references. Admission
    has not seen a reference without a record of its author, and no right is asked for."""
    return {
        each: Question(author, resource, *key)
        for each, key in changed.items()
        if (author := authors.get(name_reference(resource.kind, *key))) is not None
    }


class ReferenceRights:
    def __init__(self, api: Api, max_answers: int = MAX_ANSWERS) -> None:
        self._api, self._max_answers = api, max_answers
        self._answers: OrderedDict[Question, Answer] = OrderedDict()
        """the latest answers last"""

    async def ask(self, questions: Iterable[Question]) -> None:
        """Asks those of the questions that have no recent answer. Raises nothing: `refusals` says what has failed."""
        now = self._api.monotonic()
        due = [each for each in dict.fromkeys(questions) if not self._is_recent(each, now)]
        for each, answer in zip(due, await asyncio.gather(*map(self._answer, due)), strict=True):
            self._answers[each] = replace(answer, asked_at=now)
            self._answers.move_to_end(each)
        while len(self._answers) > self._max_answers:
            self._answers.popitem(last=False)

    def refusals(self, questions: Mapping[str, Question], kept: Container[str]) -> dict[str, str]:
        """Why references are not used, as far as the answers are known. Without an answer, those are used that have no
        last state to keep: admission has asked about them, and a later answer would change all VMs again."""
        found = {each: self._answers.get(question, NOT_ASKED) for each, question in questions.items()}
        return {
            each: answer.refusal if each in kept else f"{answer.refusal}, {WITHOUT_IMAGE}"
            for each, answer in found.items()
            if answer.refusal and (answer.known or each in kept)
        }

    def _is_recent(self, question: Question, now: float) -> bool:
        known = self._answers.get(question)
        return known is not None and now - known.asked_at < ANSWER_SECONDS

    async def _answer(self, question: Question) -> Answer:
        who, what = question.author.username, f"{question.resource.kind} {question.namespace}/{question.name}"
        user, resource = question.author.user, question.resource
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                allowed = await user_may(self._api, user, "get", resource, question.namespace, question.name)
        except (ApiError, TimeoutError) as error:
            why = str(error) or f"no answer within {DEADLINE_SECONDS:.0f} s"
            return Answer(f"cannot determine whether {who} may still get {what}: {why}", known=False)
        refusal = "" if allowed else f"{who}, who wrote the reference, may no longer get {what}"
        return Answer(refusal, known=True)


def last_refusals(conditions: Iterable[Condition], asked: Iterable[str]) -> dict[str, str]:
    """What the condition says about the references. Commands read it, because their users may not ask about others."""
    found = find_condition(conditions, REFERENCES_REFUSED, "True")
    return dict.fromkeys(asked, found.message) if found is not None else {}


def references_refused(found: Mapping[str, str], plural: str, name: str, reasons: tuple[str, str]) -> Condition:
    """The condition of an object of this kind, with one of the two reasons."""
    refused, allowed = reasons
    if not found:
        return condition(REFERENCES_REFUSED, False, allowed)
    said = "; ".join(f"disk {disk}: {why}" for disk, why in sorted(found.items()))
    take = f"kubectl annotate {plural} {name} {REFERENCE_AUTHORS}={TAKE_OVER} --overwrite"
    advice = f"Give the author the right, or become the author with a right of your own: {take}"
    return condition(REFERENCES_REFUSED, True, refused, f"{said}. Disks keep the image that they had. {advice}")
