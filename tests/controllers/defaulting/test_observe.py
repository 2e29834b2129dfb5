"""VMs with the MAC address of another VM."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.defaulting.observe import MAC_INDEXES, VM, mac_conflicts, parse_vm
from poolhouse.runtime.store import Store
from tests.cost import instructions

Json = dict[str, Any]

MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"


def vm(name: str, *macs: str, namespace: str = "shop", **metadata: Any) -> VM:
    devices = {"interfaces": [{"name": f"nic-{n}", "macAddress": mac} for n, mac in enumerate(macs)]}
    content = {"template": {"spec": {"domain": {"devices": devices}}}}
    return parse_vm({"metadata": {"namespace": namespace, "name": name, **metadata}, "spec": content})


@pytest.mark.parametrize(
    ("others", "messages"),
    [
        pytest.param([], [], id="no other VM"),
        pytest.param([vm("db", OTHER)], [], id="different addresses"),
        pytest.param([vm("db")], [], id="a VM without an address"),
        pytest.param([vm("db", MAC)], [f"MAC address {MAC} is also that of VM db:"], id="the same address"),
        pytest.param([vm("db", MAC.upper().replace(":", "-"))], ["also that of VM db:"], id="another spelling"),
        pytest.param([vm("db", OTHER, MAC)], ["also that of VM db:"], id="any interface"),
        pytest.param(
            [vm("secret", MAC, namespace="bank")],
            ["also that of 1 VM of other namespaces:"],
            id="names of other namespaces are hidden",
        ),
        pytest.param(
            [*(vm(f"db-{n}", MAC) for n in range(5)), vm("a", MAC, namespace="x"), vm("b", MAC, namespace="y")],
            ["VM db-0, VM db-1, VM db-2, 2 more, 2 VMs of other namespaces:"],
            id="only the first names",
        ),
        pytest.param([vm("db", MAC, deletionTimestamp="2026-01-01T00:00:00Z")], [], id="a VM that is being deleted"),
    ],
)
def test_the_message_names_the_other_vms(others: list[VM], messages: list[str]) -> None:
    web = vm("web", MAC)
    store: Store[VM] = Store(MAC_INDEXES)
    for each in [web, *others]:
        store.put(each.key, each)
    found = mac_conflicts(store, web)
    assert len(found) == len(messages)
    assert all(words in sentence for words, sentence in zip(messages, found, strict=True))


@pytest.mark.parametrize("namespace", ["shop", "bank"])
def test_the_search_costs_the_same_with_many_vms(namespace: str) -> None:
    """A tenant could give all VMs the same addresses, and each event of a VM would stop the controllers."""

    def cost(count: int) -> int:
        store, web = Store[VM](MAC_INDEXES), vm("web", MAC)
        for each in [web, *(vm(f"db-{n}", MAC, namespace=namespace) for n in range(count))]:
            store.put(each.key, each)
        return instructions(lambda: mac_conflicts(store, web))

    assert cost(1000) < 1.05 * cost(10)
