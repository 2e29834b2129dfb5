from __future__ import annotations

import pytest

from defaulter.settings import Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POOLHOUSE_ARCHITECTURE", "x86_64"),
        ("POOLHOUSE_MACS", "random"),
        ("POOLHOUSE_HARDWARE_RECORD", "yes"),
        ("POOLHOUSE_DEADLINE_SECONDS", "-1"),
        ("POOLHOUSE_MACHINES", "q35"),
    ],
)
def test_an_invalid_setting_is_rejected_by_its_name(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f'{name}: Invalid value: "{value}": must be'):
        Settings.read({name: value})
