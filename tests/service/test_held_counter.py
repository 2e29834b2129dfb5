"""What keys hold at the moment."""

from __future__ import annotations

import pytest

from poolhouse.service.held_counter import HeldCounter


def test_a_key_that_holds_nothing_takes_no_memory() -> None:
    held = HeldCounter[str]()
    with held.one_more("jane"), held.one_more("jane"), held.one_more("joe"):
        assert held == {"jane": 2, "joe": 1}
    assert not held.keys()


def test_a_failure_releases_what_it_held() -> None:
    held = HeldCounter[str]()
    with pytest.raises(TimeoutError), held.one_more("jane"):
        raise TimeoutError
    assert not held.keys()
