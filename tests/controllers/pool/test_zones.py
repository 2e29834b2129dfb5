"""Failure domains: which VMs leave first, and which ones are updated together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.plan import plan
from controllers.pool.pools import parse_pool
from controllers.pool.rules.scale_in_candidates import candidates
from controllers.pool.selection import random_rank
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.stores import Stores
from controllers.pool.zones import ZoneGuard
from controllers.shared.sources import parse_node
from controllers.shared.vm import VM, LifecycleHold, parse_vm
from controllers.shared.vmi import parse_vmi
from tests.controllers.pool.builders import NOW, a_pool, ago, document, snapshot, vm, vmi

Json = dict[str, Any]
OLDEST: Json = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}}
NEWEST: Json = {"proactive": {"selectionPolicy": {"basePolicy": "Newest"}}}


def aged(ordinal: int, **given: Any) -> VM:
    return vm(ordinal, **{"created_at": f"2026-01-{ordinal:02}", **given})


def old(ordinal: int, **given: Any) -> VM:
    return aged(ordinal, revision="r0", **given)


def begun(ordinal: int, **given: Any) -> VM:
    return aged(ordinal, vmi=vmi(f"web-{ordinal}", revision="r0"), **given)


def pool(zones: str, *vms: VM, replicas: int | None = None, limit: int = 2, **given: Any) -> PoolSnapshot:
    """Each letter of `zones` is the zone of a VM, `-` an unknown one."""
    spec = {"scaleInStrategy": OLDEST, "updateStrategy": OLDEST, "maxUnavailable": limit, **given}
    known = {each.name: zone for each, zone in zip(vms, zones, strict=True) if zone != "-"}
    return snapshot(a_pool(len(vms) if replicas is None else replicas, **spec), *vms, zones=known)


def alike(*given: Json) -> list[VM]:
    """Running VMs in the order of chance, so that the policy Random ranks them alike, in this order."""
    found = sorted(map(vm, range(1, len(given) + 1)), key=random_rank)
    return [replace(each, **facts) for each, facts in zip(found, given, strict=True)]


def at_random(zones: str, *given: Json, first: tuple[str, ...] = ()) -> PoolSnapshot:
    """A pool with the policy Random, which first takes VMs with the labels `first`."""
    ordered = [{"labelSelector": {"matchLabels": {"tier": each}}} for each in first]
    strategy = {"proactive": {"selectionPolicy": {"orderedPolicies": ordered}}}
    return pool(zones, *alike(*(given or [{}] * len(zones))), scaleInStrategy=strategy)


HALTED: Json = {"should_run": False, "vmi_exists": False, "vmi": None, "ready": False}


def tier(name: str) -> Json:
    return {"labels": {"tier": name}}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(at_random("abbb"), [2, 3, 1, 4], id="from the fullest zone, then in turn"),
        pytest.param(at_random("abcabc"), [1, 2, 3, 4, 5, 6], id="in balanced zones chance decides"),
        pytest.param(at_random("aaaa"), [1, 2, 3, 4], id="one zone has nothing to balance"),
        pytest.param(at_random("----"), [1, 2, 3, 4], id="without labels of nodes chance decides"),
        pytest.param(
            at_random("abb", {}, {"scale_in": "Protect"}, {"scale_in": "Protect"}),
            [1],
            id="a protected VM counts in its zone, but stays",
        ),
        pytest.param(
            at_random("abbb", {"scale_in": "First"}, {}, {}, {}), [1, 2, 3, 4], id="First comes before the zones"
        ),
        pytest.param(
            at_random("bbba", {}, {}, {}, {"hold": LifecycleHold("Terminating", ago(0), "run")}),
            [4, 1, 2, 3],
            id="a VM that is held before its deletion comes before the zones",
        ),
        pytest.param(at_random("-bba"), [1, 2, 3, 4], id="a VM without a zone keeps the first place"),
        pytest.param(at_random("bba-"), [1, 2, 3, 4], id="a VM without a zone keeps the last place"),
        pytest.param(
            at_random("abbb", {"ready": False}, {}, {}, {}),
            [1, 2, 3, 4],
            id="Random ranks a VM that is missed less before the zones",
            marks=pytest.mark.sentence("1.48"),
        ),
        pytest.param(
            at_random("abbb", tier("idle"), {}, {}, {}, first=("idle",)),
            [1, 2, 3, 4],
            id="an ordered policy comes before the zones",
            marks=pytest.mark.sentence("1.46", "1.49"),
        ),
        pytest.param(
            at_random("bbba", {}, {}, tier("late"), tier("early"), first=("early", "late")),
            [4, 3, 1, 2],
            id="ordered policies keep their order in all zones",
            marks=pytest.mark.sentence("1.46", "1.49"),
        ),
        pytest.param(
            at_random("bbabba", {}, {}, *[tier("idle")] * 4, first=("idle",)),
            [4, 5, 3, 6, 1, 2],
            id="zones are balanced among the VMs of one ordered policy",
        ),
        pytest.param(
            pool("abbb", *map(aged, (1, 2, 3, 4))),
            [1, 2, 3, 4],
            id="the policy Oldest overrides the order of zones",
            marks=pytest.mark.sentence("1.46"),
        ),
        pytest.param(
            pool("bbba", *map(aged, (1, 2, 3, 4)), scaleInStrategy=NEWEST),
            [4, 3, 2, 1],
            id="Newest leaves zones no choice",
            marks=pytest.mark.sentence("1.46"),
        ),
        pytest.param(
            pool("abbb", *map(vm, (1, 2, 3, 4))),
            [1, 2, 3, 4],
            id="of one second, the lowest ordinal is the oldest",
        ),
        pytest.param(
            pool("abbb", *alike(*[HALTED] * 4), scaleInStrategy={"opportunistic": {}}),
            [2, 3, 1, 4],
            id="halted VMs are alike to an opportunistic scale-in",
        ),
    ],
)
def test_in_which_order_scale_in_takes_vms(observed: PoolSnapshot, expected: list[int]) -> None:
    assert [observed.active.index(each) + 1 for each in candidates(observed)] == expected


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            pool("abab", *map(old, (1, 2, 3, 4))), ["web-1", "web-3"], id="two of one zone, though the policy mixes"
        ),
        pytest.param(pool("aaaa", *map(old, (1, 2, 3, 4))), ["web-1", "web-2"], id="with one zone, the policy"),
        pytest.param(pool("abcd", *map(old, (1, 2, 3, 4))), ["web-1"], id="a zone with one VM goes alone"),
        pytest.param(
            pool("abab", aged(1, ready=False), *map(old, (2, 3, 4))), ["web-3"], id="the others of a zone that is down"
        ),
        pytest.param(pool("ab", aged(1, ready=False), old(2)), [], id="the next zone waits until the last is up"),
        pytest.param(pool("ab", aged(1), old(2)), ["web-2"], id="the next zone is updated when the last is up"),
        pytest.param(pool("ab", begun(1), begun(2)), ["web-1"], id="VMs that only lack a restart go zone by zone too"),
        pytest.param(
            pool("ab", begun(1, hold=LifecycleHold("Restarting", ago(0), "run-web-1")), old(2)),
            ["web-1"],
            id="a held VM is down",
        ),
        pytest.param(
            pool("ab", aged(1, ready=False), old(2, ready=False)), ["web-2"], id="a VM that is down anyway goes"
        ),
        pytest.param(
            pool("-bbc", aged(1, ready=False, vmi=None), *map(old, (2, 3, 4))),
            [],
            id="a VM that starts has no known zone yet",
        ),
        pytest.param(
            pool("-bbb", aged(1, ready=False, vmi=None), *map(old, (2, 3, 4))),
            ["web-2"],
            id="a VM that starts does not delay VMs of one zone",
        ),
        pytest.param(
            pool("ab", aged(1), old(2, vmi=None, vmi_exists=False)), ["web-2"], id="a VM that does not run is updated"
        ),
        pytest.param(
            pool("ab", aged(1, ready=False), aged(2, revision="light")),
            ["web-2"],
            id="a change without a restart stops nothing",
        ),
    ],
)
def test_which_vms_are_updated_together(observed: PoolSnapshot, expected: list[str]) -> None:
    assert [each.name for each in plan(observed, NOW).actions] == expected


def test_a_vm_that_waits_names_the_zones() -> None:
    (wait,) = plan(pool("ab", aged(1, ready=False), old(2)), NOW).waits
    assert wait.reason == "VMs in zone a are not available, and it is in zone b"
    several = pool("bac", aged(1, ready=False), aged(2, ready=False), old(3), limit=3)
    (wait,) = plan(several, NOW).waits
    assert wait.reason == "VMs in zone a, b are not available, and it is in zone c"
    (wait,) = plan(pool("-bc", aged(1, ready=False, vmi=None), aged(2), old(3)), NOW).waits
    assert wait.reason == "the zone of web-1 is not known yet, and it is not available"


def test_lifetimes_end_zone_by_zone() -> None:
    aging = [vm(n, vmi=vmi(f"web-{n}", revision="r1", created_at=ago(9 * 86_400 - n))) for n in (1, 2, 3)]
    observed = pool("aba", *aging, limit=3, maxLifetimeSeconds=7 * 86_400)
    restarted = [each.name for each in plan(observed, NOW).actions]
    assert restarted in (["web-1", "web-3"], ["web-3", "web-1"], ["web-2"])


def test_ten_thousand_vms_are_ordered_by_zones_in_one_pass() -> None:
    many = [vm(n) for n in range(1, 10_001)]
    found = candidates(pool("abcd" * 2_500, *many, scaleInStrategy={}))
    assert len({each.name for each in found}) == 10_000
    counts = [sum(observed.ordinal % 4 == zone for observed in found[:5_000]) for zone in range(4)]
    assert counts == [1_250] * 4
    assert candidates(pool("abcd" * 2_500, *many)) == many, "each VM has a rank of its own"
    assert ZoneGuard.of(pool("ab", *map(aged, (1, 2)))).down == frozenset()


def node(name: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": labels}}


def test_the_zone_of_a_vm_is_that_of_its_last_node() -> None:
    key = "topology.kubernetes.io/zone"
    stores = Stores()
    for each in (node("n1", **{key: "a", "rack": "r7"}), node("n2", **{key: "b"}), node("n3")):
        stores.cluster.nodes.put(("", each["metadata"]["name"]), parse_node(each))
    run = {"metadata": {"namespace": "default", "name": "web-1", "uid": "run"}, "status": {"nodeName": "n1"}}
    machine = parse_vm({"metadata": {"namespace": "default", "name": "web-1", "uid": "u"}})
    placed = vm(1, vmi=parse_vmi(run))
    web = a_pool(1)
    assert stores.cluster.zones(web, [machine]) == {}
    assert stores.cluster.zones(web, [placed]) == {"web-1": "a"}
    assert stores.cluster.zones(web, [machine]) == {"web-1": "a"}, "a VM that restarts has no node"
    by_rack = parse_pool(document(1, failureDomains={"topologyKey": "rack"}))
    assert stores.cluster.zones(by_rack, [placed]) == {"web-1": "r7"}
    assert stores.cluster.zones(a_pool(1, failureDomains={"topologyKey": ""}), [placed]) == {}
    stores.forget(machine.key)
    assert stores.cluster.zones(web, [machine]) == {}


def test_a_view_of_a_node_has_no_labels_about_its_cpu() -> None:
    found = parse_node(node("n1", **{"cpu-feature.node.kubevirt.io/avx": "true", "rack": "r7"}))
    assert found.labels == {"rack": "r7"}
