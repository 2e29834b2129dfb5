"""What becomes of the defaulter's answer."""

from __future__ import annotations

from typing import Any, cast

import pytest

from apimachinery.unstructured import at, replaced
from controllers.defaulting.apply import Apply, without_note
from defaulter.contract import Problem
from kinds.meta import UNDEFAULTED
from kinds.vm_documents import with_firmware_uuid
from runtime.api import Api
from runtime.events import EventRecorder
from tests.webhook.builders import disk, vm
from tests.webhook.fake_defaulter import FakeDefaulter, filled

Json = dict[str, Any]

EMPTY = vm(disk("root"), annotations={UNDEFAULTED: "DefaulterUnavailable"})
DECIDED = filled(EMPTY, "s")
FIRMWARE = ("spec", "template", "spec", "domain", "firmware")
NAMELESS = replaced(DECIDED, {"serial": at(DECIDED, *FIRMWARE, "serial")}, *FIRMWARE)


class Heard:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def emit(self, regarding: Json, type: str, reason: str, note: str, *, action: str) -> None:
        self.reasons.append(reason)


def refusing() -> FakeDefaulter:
    defaulter = FakeDefaulter()
    defaulter.refuses = lambda document: [Problem(path="spec", message="no")]
    return defaulter


@pytest.mark.parametrize(
    ("defaulter", "stored", "asked", "written", "said"),
    [
        pytest.param(FakeDefaulter(), EMPTY, EMPTY, without_note(DECIDED), [], id="what was empty is filled"),
        pytest.param(
            FakeDefaulter(),
            NAMELESS,
            with_firmware_uuid(NAMELESS),
            without_note(with_firmware_uuid(NAMELESS)),
            [],
            id="a UUID alone too",
        ),
        pytest.param(
            FakeDefaulter(), DECIDED, DECIDED, None, ["HardwareUndecided"], id="nothing is left to be decided"
        ),
        pytest.param(refusing(), EMPTY, EMPTY, None, ["HardwareUndecided"], id="it is refused"),
    ],
)
async def test_what_is_to_be_written(
    defaulter: FakeDefaulter, stored: Json, asked: Json, written: Json | None, said: list[str]
) -> None:
    heard = Heard()
    apply = Apply(cast(Api, None), defaulter, cast(EventRecorder, heard), seed="s")
    assert await apply.ask(stored, asked) == written
    assert heard.reasons == said
