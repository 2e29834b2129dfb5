from __future__ import annotations

import pytest

from poolhouse.stack.engine.qemu.capabilities import REMEDY, parse_answer

GREETING = '{"QMP": {"version": {}}}\n{"return": {}}\n'
NO = '{"id": "asked", "error": {"class": "GenericError", "desc": "Postcopy is not supported"}}\n'
KERNEL = "postcopy_ram_supported_by_host: userfaultfd not available: "


@pytest.mark.parametrize(
    ("answers", "complaints", "told"),
    [
        pytest.param(GREETING + '{"return": {}, "id": "asked"}\n', "", None, id="supported"),
        pytest.param(GREETING + NO, KERNEL + "Operation not permitted\n", REMEDY, id="not permitted"),
        pytest.param(
            GREETING + NO, KERNEL + "Function not implemented\n", "not implemented", id="not implemented by the kernel"
        ),
        pytest.param(GREETING + NO, "", "Postcopy is not supported", id="no reason"),
        pytest.param(GREETING, "", "without an answer", id="QEMU ended"),
        pytest.param("not JSON", "", "without an answer", id="not JSON"),
    ],
)
def test_parse_answer_of_qemu(answers: str, complaints: str, told: str | None) -> None:
    found = parse_answer(answers, complaints)
    assert found is None if told is None else told in (found or "")
    assert found is None or found.startswith("post-copy is not possible here: ")
