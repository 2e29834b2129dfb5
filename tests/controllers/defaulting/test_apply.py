"""What is written after each answer of the defaulter."""

from __future__ import annotations

from typing import Any, cast

import pytest

from apimachinery.unstructured import at, replaced
from controllers.defaulting.apply import DefaultingWriter, without_annotation
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


class FakeRecorder:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def emit(self, regarding: Json, type: str, reason: str, note: str, *, action: str) -> None:
        self.reasons.append(reason)


def refusing() -> FakeDefaulter:
    defaulter = FakeDefaulter()
    defaulter.refuses = lambda document: [Problem(path="spec", message="no")]
    return defaulter


@pytest.mark.parametrize(
    ("defaulter", "stored", "asked", "written", "reasons"),
    [
        pytest.param(FakeDefaulter(), EMPTY, EMPTY, without_annotation(DECIDED), [], id="empty fields are filled"),
        pytest.param(
            FakeDefaulter(),
            NAMELESS,
            with_firmware_uuid(NAMELESS),
            without_annotation(with_firmware_uuid(NAMELESS)),
            [],
            id="only the UUID is missing",
        ),
        pytest.param(FakeDefaulter(), DECIDED, DECIDED, None, ["HardwareUndecided"], id="the answer changes nothing"),
        pytest.param(refusing(), EMPTY, EMPTY, None, ["HardwareUndecided"], id="the defaulter refuses the VM"),
    ],
)
async def test_the_answer_decides_what_is_written(
    defaulter: FakeDefaulter, stored: Json, asked: Json, written: Json | None, reasons: list[str]
) -> None:
    recorder = FakeRecorder()
    writer = DefaultingWriter(cast(Api, None), defaulter, cast(EventRecorder, recorder), seed="s")
    assert await writer.fill(stored, asked) == written
    assert recorder.reasons == reasons
