from __future__ import annotations

import socket

import pytest

from poolhouse.stack.ports import COUNT, FIRST, PortReservations, choose_ports
from tests.ports import free_port


def test_recorded_ports_are_used_again() -> None:
    assert choose_ports(["a", "b"], "/x", {"a": 20001, "b": 20002}, lambda port: True) == {"a": 20001, "b": 20002}


def test_only_a_port_that_is_in_use_is_replaced() -> None:
    chosen = choose_ports(["a", "b"], "/x", {"a": 20001, "b": 20002}, lambda port: port != 20001)
    assert chosen["a"] != 20001
    assert chosen["b"] == 20002


def test_ports_are_unique() -> None:
    chosen = choose_ports([str(n) for n in range(50)], "/x", {"0": 20001, "1": 20001}, lambda port: True)
    assert len(set(chosen.values())) == 50


def test_stacks_choose_different_ports() -> None:
    one, other = (choose_ports(["apiserver", "webhook"], stack, {}, lambda port: True) for stack in ("/one", "/other"))
    assert not set(one.values()) & set(other.values())


@pytest.mark.parametrize("stack", ["", "/x", "/x" * 200])
def test_ports_are_below_the_ephemeral_range(stack: str) -> None:
    assert all(FIRST <= port < FIRST + COUNT for port in choose_ports(["a"], stack, {}, lambda port: True).values())


def test_a_reserved_port_is_not_free() -> None:
    assert not PortReservations().take(free_port())


def test_a_port_in_use_is_not_reserved() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not PortReservations().take(server.getsockname()[1])
