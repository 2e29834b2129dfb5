from __future__ import annotations

import json

from poolhouse.api.apimachinery.reasons import Reason


class _Reasons(Reason):
    SUCCESSFUL_CREATE = "SuccessfulCreate", "The controller created a VM."


def test_a_reason_is_its_text_and_carries_its_documentation() -> None:
    assert f"{_Reasons.SUCCESSFUL_CREATE}" == "SuccessfulCreate"
    assert json.dumps({"reason": _Reasons.SUCCESSFUL_CREATE}) == '{"reason": "SuccessfulCreate"}'
    assert _Reasons.SUCCESSFUL_CREATE.doc == "The controller created a VM."
    assert _Reasons("SuccessfulCreate") is _Reasons.SUCCESSFUL_CREATE
