"""What the pages show, from values, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.merge_patch import LAST_APPLIED
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.resource_types import POOLS
from poolhouse.api.migrationpolicies.precedence import RankedPolicy, Selectors
from poolhouse.cli.apply import Change
from poolhouse.cli.demand import percentile
from poolhouse.cli.output import Failed
from poolhouse.cli.svg import Series, step_chart
from poolhouse.console import change, fleet_page, hardware_page, policies_page, warm_page
from poolhouse.console.app import connection_values
from poolhouse.console.cluster_state import Sample
from poolhouse.console.overview import summary, table
from poolhouse.console.pool_page import grouped, with_current
from poolhouse.runtime.errors import ApiError, Forbidden, NotFound, Throttled, Unauthorized, Unavailable, Unreachable
from tests.builders import manifest as build_manifest
from tests.controllers.pool.builders import snapshot

Json = dict[str, Any]


def row(name: str, state: str, short: str = "vpool", message: str = "") -> Json:
    return {"name": name, "state": state, "short": short, "namespace": "shop", "message": message}


ROWS = [row("a", "Healthy"), row("b", "Degraded", message="disk full"), row("c", "Progressing", "vmwp")]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        pytest.param({}, "bca", id="what is wrong comes first"),
        pytest.param({"state": "Healthy"}, "a", id="a state"),
        pytest.param({"kind": "vmwp"}, "c", id="a kind"),
        pytest.param({"q": "FULL disk"}, "b", id="words of the message"),
        pytest.param({"q": "vpool/a"}, "a", id="a name as kubectl writes it"),
        pytest.param({"q": "none"}, "", id="nothing"),
    ],
)
def test_the_overview_is_filtered(query: dict[str, str], names: str) -> None:
    assert "".join(each["name"] for each in table(ROWS, query)["slice"].rows) == names


def test_the_overview_counts_states() -> None:
    assert [(name, number) for name, number, _ in summary(ROWS, {})["states"]] == [
        ("Degraded", 1),
        ("Progressing", 1),
        ("Suspended", 0),
        ("Healthy", 1),
    ]


@pytest.mark.parametrize(
    ("error", "part"),
    [
        pytest.param(Forbidden("no", status=403), "hidden", id="a missing right"),
        pytest.param(Forbidden("no", status=403, call="list nodes"), "hidden", id="no right to list"),
        pytest.param(Forbidden("no", status=403, call="watch nodes"), "unwatched", id="no right to watch"),
        pytest.param(Unauthorized("the token has expired", status=401), "others", id="credentials that are not valid"),
        pytest.param(Unreachable("refused", reason="ClientConnectorError"), "lost", id="no connection"),
        pytest.param(Unavailable("bad gateway", status=502), "lost", id="a proxy whose API server is away"),
        pytest.param(Throttled("it ends", status=503), "lost", id="an API server that ends"),
        pytest.param(Unavailable("etcd failed", status=500), "others", id="an API server that fails"),
        pytest.param(NotFound("could not find it", status=404), "others", id="a resource that is not served"),
    ],
)
def test_an_error_of_an_informer_is_told_once(error: ApiError, part: str) -> None:
    found = connection_values({"virtualmachines": error, "nodes": error})
    assert {key for key, value in found.items() if value} == {part}


def test_a_problem_of_several_kinds_is_shown_once() -> None:
    expired, other = ApiError("Unauthorized", status=401), ApiError("gone", status=410)
    found = connection_values({"virtualmachines": expired, "nodes": expired, "events": other})
    assert found["others"] == [("virtualmachines, nodes", str(expired)), ("events", str(other))]


def test_vms_that_wait_for_the_same_are_named_together() -> None:
    assert grouped([("web-1", "full"), ("web-2", "late"), ("web-3", "full")]) == [
        "web-1, web-3 wait: full",
        "web-2 waits: late",
    ]
    assert grouped((f"web-{number}", "full") for number in range(5)) == ["web-0, web-1, web-2 and 2 more wait: full"]


def device(name: str, place: str = "", kind: str = "", by: str = "defaulter") -> Json:
    return {"device": name, "place": place, "kind": kind, "by": by, "since": None}


def test_devices_are_below_the_bridge_of_their_bus() -> None:
    found = hardware_page.topology(
        [
            device("nic a", "0000:01:00.0"),
            device("controller pci 1", "0000:00:02.1"),
            device("display", "0000:00:01.0"),
            device("disk x", "0000:07:00.0"),
            device("mac a", "52:54:00:00:00:01"),
        ]
    )
    assert [bus.number for bus in found] == [0, 7]  # no address names the bridge of bus 7
    [(display, nothing), (bridge, below)] = found[0].devices
    assert (display["device"], nothing, bridge["device"]) == ("display", None, "controller pci 1")
    assert [each["device"] for each, _ in below.devices] == ["nic a"]


def test_bridges_in_a_circle_end() -> None:
    ring = [device("controller pci 1", "0000:02:00.0"), device("controller pci 2", "0000:01:00.0")]
    assert [bus.number for bus in hardware_page.topology([*ring, device("nic", "0000:00:01.0")])] == [0]


def test_two_vms_are_compared_by_device() -> None:
    one = [device("nic a", "0000:01:00.0", "virtio"), device("cpu", "host-model"), device("disk x", "sata")]
    other = [device("nic a", "0000:02:00.0", "virtio"), device("cpu", "host-model"), device("disk y", "scsi")]
    assert hardware_page.compare(one, other) == [
        {"device": "nic a", "before": "virtio 0000:01:00.0", "after": "virtio 0000:02:00.0"},
        {"device": "disk x", "before": "sata", "after": "-"},
        {"device": "disk y", "before": "-", "after": "scsi"},
    ]


WIDE = RankedPolicy("wide", Selectors.of(namespace={"team": "hpc"}))
EXACT = RankedPolicy("exact", Selectors.of({"db": "yes"}, {"team": "hpc"}))


def vmi(name: str, labels: dict[str, str], phase: str = "Running", namespace: str = "shop") -> VMI:
    return VMI(namespace, name, name, labels=labels, phase=phase)


def test_vmis_are_grouped_by_the_policies_that_match() -> None:
    stamped = {"poolhouse.dev/migration-policy": "exact", "db": "yes"}
    vmis = [
        vmi("a", stamped),
        vmi("b", {"db": "yes"}),
        vmi("c", {"db": "no"}),
        vmi("d", {}, namespace="other"),
        vmi("e", {"db": "yes"}, phase="Succeeded"),
    ]
    found = policies_page.groups(vmis, [EXACT, WIDE], {"shop": {"team": "hpc"}})
    assert [(each.namespace, each.names, each.winner, each.stale) for each in found] == [
        ("other", ["d"], "", 0),
        ("shop", ["a", "b"], "exact", 1),
        ("shop", ["c"], "wide", 1),
    ]
    assert [found[1].cell(name) for name in ("exact", "wide", "absent")] == ["wins", "place 2", ""]
    assert found[1].why == "against wide: it matches more labels, 2 to 1"
    assert (found[0].why, found[2].why) == ("no policy matches", "no other policy matches")


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([], 50, None), ([3.0], 99, 3.0), ([1, 2, 3, 4], 50, 2), ([*range(1, 101)], 99, 99), ([2, 1], 100, 2)],
)
def test_percentiles(values: list[float], percent: float, expected: float | None) -> None:
    assert percentile(values, percent) == expected


def claim(pool: str, total: int | None, ready: str = "2026-03-01T12:00:00Z", namespace: str = "shop") -> Json:
    status = {"poolName": pool, "readyAt": ready, "launchType": "Warm", "timings": {"totalMs": total}}
    return {"metadata": {"name": "c", "namespace": namespace}, "status": status}


def test_waits_are_those_of_the_pools_served_claims() -> None:
    claims = [
        claim("ci", 200, "2026-03-01T12:00:01Z"),
        claim("ci", 100),
        claim("ci", None),
        claim("other", 5),
        claim("ci", 5, namespace="elsewhere"),
        {"metadata": {"name": "new", "namespace": "shop"}},
    ]
    assert [each.seconds for each in warm_page.waits_of(claims, ("shop", "ci"))] == [0.1, 0.2]


def test_idle_hours_are_the_area_below_the_spare_vms() -> None:
    assert warm_page.idle_hours([Sample(0, 2, 0, 0), Sample(3600, 5, 0, 0)], 5400) == 2 + 2.5
    assert warm_page.idle_hours([], 5) == 0


def test_a_chart_has_classes_for_the_colours_of_the_page() -> None:
    drawn = step_chart("t", 0, 60, [Series("a", [(0, 1)]), Series("b", [(0, 2)])])
    assert all(f'class="{name}"' in drawn for name in ("ground", "axis", "line-0", "line-1", "fill-0", "fill-1"))
    assert "style=" not in drawn


STORED = build_manifest(
    POOLS,
    "web",
    {"replicas": 1},
    "shop",
    status={"replicas": 1},
    uid="u",
    resourceVersion="7",
    labels={"a": "1"},
    annotations={LAST_APPLIED: "{}", "note": "x"},
    finalizers=["f"],
    managedFields=[{}],
)


def test_an_edit_removes_what_the_user_has_removed() -> None:
    edited = change.shown({**STORED, "spec": {"replicas": 1, "paused": True}})
    manifest = {**STORED, "metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 2}}
    _, found_edited = change.Text(change.shown(manifest), edited).read()
    before = found_edited[change.identity(manifest)]
    found = Change(POOL, manifest, {**STORED, "spec": {"replicas": 1, "paused": True, "minReadySeconds": 3}}, before)
    # Another client has set minReadySeconds since the user began to edit.
    assert found.body == {
        "metadata": {"labels": None, "annotations": None},
        "spec": {"replicas": 2, "paused": None},
    }
    assert change.identity({**manifest, "metadata": {"name": "api", "namespace": "shop"}}) not in found_edited


def test_very_long_objects_are_not_compared() -> None:
    long = {**STORED, "spec": {"lines": list(range(change.MAX_COMPARED))}}
    for before, after in ((STORED, long), (long, STORED), (None, long)):
        assert change.diff(before, after) == [("place", "There are 3011 lines; at most 3000 are compared.")]


def test_a_text_with_too_many_objects_is_refused() -> None:
    text = "---\nkind: VirtualMachinePool\n" * (change.MAX_OBJECTS + 1)
    with pytest.raises(Failed, match="contains 101 objects; plan at most 100 at once"):
        change.Text(text, "").read()


def test_the_document_to_edit_has_no_fields_of_the_server() -> None:
    assert change.shown(STORED) == (
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachinePool\nmetadata:\n  name: web\n  namespace: shop\n"
        "  labels:\n    a: '1'\n  annotations:\n    note: x\nspec:\n  replicas: 1\n"
    )


def test_the_difference_has_kinds_of_lines() -> None:
    found = change.diff(STORED, {**STORED, "spec": {"replicas": 2}})
    assert [line for line in found if line[0] in ("add", "remove")] == [
        ("remove", "-  replicas: 1"),
        ("add", "+  replicas: 2"),
    ]
    assert change.diff(STORED, STORED) == []
    assert {kind for kind, _ in change.diff(None, STORED)} == {"place", "add"}


def report(name: str, defaulted: str = "No", changes: int = 0, held: bool | None = False, unknown: str = "") -> Json:
    change = {
        "device": "nic default",
        "field": "macAddress",
        "from": "02:00:00:00:00:01",
        "to": None,
        "reason": "not set",
    }
    rest = {"changes": [change] * changes, "unknown": [unknown] if unknown else [], "held": held}
    return {"namespace": "shop", "name": name, "defaulted": defaulted, **rest}


REPORTS = [
    report("a", "Poolhouse", held=True),
    report("b", changes=1),
    report("c", changes=2, held=None),
    report("d", "OptedOut", unknown="machine type: the alias q35"),
]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        pytest.param({}, "cbda", id="those that change most come first"),
        pytest.param({"defaulted": "No"}, "cb", id="who set the hardware"),
        pytest.param({"q": "MACADDRESS"}, "cb", id="a field that changes"),
        pytest.param({"q": "q35"}, "d", id="what is unknown"),
        pytest.param({"q": "shop/a"}, "a", id="a name"),
        pytest.param({"defaulted": "Author"}, "", id="nothing"),
    ],
)
def test_the_fleet_is_filtered(query: dict[str, str], names: str) -> None:
    found = fleet_page.table(REPORTS, [], query)
    assert "".join(each["name"] for each in found["slice"].rows) == names
    assert (found["total"], found["changing"], found["not_held"]) == (4, 2, 2)
    assert [number for name, number, _ in found["groups"] if name in ("No", "OptedOut", "Author")] == [0, 2, 1]


@pytest.mark.parametrize(
    ("current", "revisions"),
    [pytest.param(False, ["new", 1], id="not recorded yet"), pytest.param(True, [1], id="recorded")],
)
def test_the_history_has_the_current_revision(current: bool, revisions: list[object]) -> None:
    rows = with_current(snapshot(1), [{"revision": 1, "current": current}])
    assert [row["revision"] for row in rows] == revisions
    assert rows[0]["current"]
