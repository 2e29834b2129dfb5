"""Acts on an object that the controllers change at the same time."""

from __future__ import annotations

import pytest

from poolhouse.cli import conflicts as guard
from poolhouse.runtime.errors import Conflict


@pytest.mark.parametrize(("conflicts", "succeeds"), [(0, True), (2, True), (guard.CONFLICTS, True), (99, False)])
async def test_an_act_is_repeated_after_conflicts(
    monkeypatch: pytest.MonkeyPatch, conflicts: int, succeeds: bool
) -> None:
    monkeypatch.setattr(guard, "CONFLICT_SECONDS", 0.0)
    calls = 0

    @guard.again_if_changed
    async def act() -> str:
        nonlocal calls
        calls += 1
        if calls <= conflicts:
            raise Conflict("the object has been modified")
        return "done"

    if succeeds:
        assert await act() == "done"
        assert calls == conflicts + 1
    else:
        with pytest.raises(Conflict):
            await act()
        assert calls == guard.CONFLICTS + 1
