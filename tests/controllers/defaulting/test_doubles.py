"""VMs that have the MAC address of another."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.defaulting.doubles import by_mac, doubles
from controllers.defaulting.observe import Machine, machine
from runtime.store import Store

Json = dict[str, Any]

MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"


def vm(name: str, *macs: str, namespace: str = "shop", **metadata: Any) -> Machine:
    devices = {"interfaces": [{"name": f"nic-{n}", "macAddress": mac} for n, mac in enumerate(macs)]}
    content = {"template": {"spec": {"domain": {"devices": devices}}}}
    return machine({"metadata": {"namespace": namespace, "name": name, **metadata}, "spec": content})


@pytest.mark.parametrize(
    ("others", "said"),
    [
        pytest.param([], [], id="nobody else is there"),
        pytest.param([vm("db", OTHER)], [], id="each has its own"),
        pytest.param([vm("db")], [], id="one that has none yet"),
        pytest.param([vm("db", MAC)], [f"MAC address {MAC} is also that of VM db:"], id="two have one"),
        pytest.param([vm("db", MAC.upper().replace(":", "-"))], ["also that of VM db:"], id="however it is spelled"),
        pytest.param([vm("db", OTHER, MAC)], ["also that of VM db:"], id="in any of its interfaces"),
        pytest.param(
            [vm("secret", MAC, namespace="bank")],
            ["also that of a VM of another namespace:"],
            id="other namespaces' names are theirs",
        ),
        pytest.param(
            [*(vm(f"db-{n}", MAC) for n in range(5)), vm("a", MAC, namespace="x"), vm("b", MAC, namespace="y")],
            ["VM db-0, VM db-1, VM db-2, 2 more, 2 VMs of other namespaces:"],
            id="not all of many are named",
        ),
        pytest.param([vm("db", MAC, deletionTimestamp="2026-01-01T00:00:00Z")], [], id="one that leaves gives it up"),
    ],
)
def test_who_has_anothers_address_is_told_whose(others: list[Machine], said: list[str]) -> None:
    web = vm("web", MAC)
    store: Store[Machine] = Store({"mac": by_mac})
    for each in [web, *others]:
        store.put(each.key, each)
    found = doubles(store, web)
    assert len(found) == len(said)
    assert all(words in sentence for words, sentence in zip(said, found, strict=True))
