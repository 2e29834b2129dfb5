from __future__ import annotations

import pytest

from poolhouse.stack.engine.qemu.guest_agent import BOOKWORM, TRIXIE, Release, find_release
from poolhouse.stack.engine.qemu.guest_packages import GuestImageUnavailable


@pytest.mark.parametrize(("codename", "release"), [("bookworm", BOOKWORM), ("trixie", TRIXIE)])
def test_the_packages_are_those_of_the_machines_release(codename: str, release: Release) -> None:
    assert find_release(codename) == release
    assert f"python{release.python}-minimal" in release.packages


@pytest.mark.parametrize("codename", ["noble", ""])
def test_another_system_is_told_what_to_do(codename: str) -> None:
    with pytest.raises(GuestImageUnavailable, match="start without it, or use --engine simulated"):
        find_release(codename)
