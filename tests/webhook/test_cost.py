"""What a request costs: bytecode instructions are counted, because time depends on the machine.

A check whose cost is proportional to the document costs twice as much for twice the document; a quadratic one four
times as much.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from defaulter.contract import (
    forbidden_changes,
    open_addresses,
    preserve_stored_values,
    undefaulted_fields,
)
from defaulter.limits import MAX_LIST_ENTRIES, MAX_VALUES
from defaulter.superseded import follow_author, record_defaults
from poolhouse.api.kinds import by_gvk
from poolhouse.service.cpu_lane import CpuLane, compute
from tests.cost import instructions
from tests.waiting import PATIENCE_SECONDS, eventually
from tests.webhook.builders import POOL, request, review, vm
from tests.webhook.conftest import RunningWebhook
from webhook.admission import Admission, decide_at_once, validate_kind
from webhook.defaulting import NoDefaulter
from webhook.hardware_drift import HardwareDrift
from webhook.patch import diff
from webhook.review import denied_or_tolerated

Json = dict[str, Any]


def many(count: int) -> Json:
    """A VM with so many disks, volumes, NICs, networks and DataVolume templates."""
    document = vm()
    names = [f"x{index}" for index in range(count)]
    document["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": name}, "spec": {}} for name in names]
    spec = document["spec"]["template"]["spec"]
    spec["domain"]["devices"] = {
        "disks": [{"name": name, "disk": {"bus": "virtio"}} for name in names],
        "interfaces": [{"name": f"nic-{name}", "bridge": {}} for name in names],
    }
    spec["volumes"] = [{"name": name, "dataVolume": {"name": name}} for name in names]
    spec["networks"] = [{"name": f"nic-{name}", "multus": {"networkName": name}} for name in names]
    return document


def addressed(document: Json) -> Json:
    """The VM with an address for each device."""
    devices = document["spec"]["template"]["spec"]["domain"]["devices"]
    disks = [
        {**disk, "disk": {"bus": "virtio", "pciAddress": f"0000:{number:02x}:00.0"}}
        for number, disk in enumerate(devices["disks"])
    ]
    nics = [
        {**nic, "model": "virtio", "macAddress": f"02:00:00:00:{number // 256:02x}:{number % 256:02x}"}
        for number, nic in enumerate(devices["interfaces"])
    ]
    spec = {**document["spec"]["template"]["spec"], "domain": {"devices": {"disks": disks, "interfaces": nics}}}
    return {**document, "spec": {**document["spec"], "template": {**document["spec"]["template"], "spec": spec}}}


def recorded(count: int) -> Json:
    """A stored VM with the record of its defaults."""
    return record_defaults(follow_author(many(count), None), addressed(many(count)))


def pool(count: int) -> Json:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": many(count)["spec"]}
    return {**POOL, "spec": {**POOL["spec"], "template": template}}


def with_unknown_fields(count: int) -> Json:
    document = pool(count)
    for volume in document["spec"]["template"]["spec"]["template"]["spec"]["volumes"]:
        volume["nmae"] = 1
    return document


def validated(document: Json, old: Json | None = None) -> Any:
    kind = by_gvk(document["apiVersion"], document["kind"])
    assert kind is not None
    return validate_kind(request(document, old), kind)


def drift(document: Json) -> Any:
    check = HardwareDrift(now=lambda: 0.0)
    check.remember(request(document), {**document, "spec": {**document["spec"], "other": 1}})
    return check.check(request(document))


def with_addresses(count: int) -> Json:
    return addressed(many(count))


Make = Callable[[int], Json]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        pytest.param(lambda new, old: decide_at_once(request(new, old)), (many, with_addresses), id="bounds"),
        pytest.param(undefaulted_fields, (many,), id="unset fields"),
        pytest.param(open_addresses, (many,), id="unset addresses"),
        pytest.param(preserve_stored_values, (many, recorded), id="an update with a record"),
        pytest.param(preserve_stored_values, (many, with_addresses), id="an update without a record"),
        pytest.param(forbidden_changes, (many, with_addresses), id="the defaulter's answer"),
        pytest.param(diff, (many, with_addresses), id="the patch"),
        pytest.param(drift, (with_addresses,), id="drift"),
        pytest.param(validated, (pool,), id="a pool"),
        pytest.param(validated, (pool, pool), id="an update of a pool"),
        pytest.param(validated, (with_unknown_fields,), id="a pool with unknown fields"),
    ],
)
def test_a_document_of_twice_the_size_costs_twice_as_much(
    function: Callable[..., Any], arguments: tuple[Make, ...]
) -> None:
    costs = []
    for count in (40, 80):
        given = [make(count) for make in arguments]
        function(*given)  # fills caches
        costs.append(instructions(lambda given=given: function(*given)))
    assert costs[1] < 2.3 * costs[0]


def test_tolerated_problems_are_looked_up_and_not_searched() -> None:
    problems = [validated(with_unknown_fields(n)).problems for n in (40, 80)]
    once, twice = ((lambda found=found: denied_or_tolerated(found, found)) for found in problems)
    assert instructions(twice) < 2.3 * instructions(once)


def admission() -> Admission:
    return Admission(defaulting=NoDefaulter(), checks=(), drift=HardwareDrift(now=lambda: 0.0))


@pytest.mark.parametrize("make", [pytest.param(many, id="VM"), pytest.param(pool, id="pool")])
@pytest.mark.parametrize("old", [None, vm()], ids=["created", "updated"])
async def test_a_document_beyond_the_bounds_is_denied_before_any_other_check(
    make: Callable[[int], Json], old: Json | None
) -> None:
    """60,000 disks took 12 seconds."""
    documents = [request(make(count), old) for count in (MAX_LIST_ENTRIES + 1, 20 * MAX_LIST_ENTRIES)]
    validate = admission().validate
    assert instructions(lambda: validate(documents[1])) < 1.1 * instructions(lambda: validate(documents[0]))
    for answer in (validate(documents[1]), await admission().mutate(documents[1])):
        above = "spec.template.spec.template.spec" if make is pool else "spec.template.spec"
        paths = {problem.path: problem.message for problem in answer.problems}
        assert paths[f"{above}.domain.devices.disks"] == f"has {20 * MAX_LIST_ENTRIES} entries; at most 256 are allowed"
        assert {f"{above}.volumes", f"{above}.networks", f"{above}.domain.devices.interfaces"} < paths.keys()
        assert len(paths) == 5


def test_a_document_with_too_many_values_is_denied() -> None:
    document = vm(features={f"x{index}": {} for index in range(MAX_VALUES)})
    (problem,) = admission().validate(request(document)).problems
    assert (problem.path, problem.message) == ("spec", f"has more than {MAX_VALUES} values")


def test_the_largest_vm_is_within_the_bounds() -> None:
    assert decide_at_once(request(addressed(many(MAX_LIST_ENTRIES)))) is None


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_a_costly_review_is_computed_apart_from_the_event_loop(webhook: RunningWebhook, path: str) -> None:
    """Each computation of a costly review holds the lane, so none of them holds the event loop."""
    lane = webhook.service.lane
    with lane.enter("holder", 1):
        release = threading.Event()
        holder = asyncio.create_task(compute(release.wait, PATIENCE_SECONDS))
    await eventually(lambda: lane._busy)
    large = asyncio.create_task(webhook.review(review(many(MAX_LIST_ENTRIES)), path))
    await eventually(lambda: len(lane) == 1)
    assert (await webhook.review(review(vm()), path))["allowed"], "an ordinary VM does not wait for the large one"
    assert not large.done()
    release.set()
    assert (await large)["allowed"]
    assert await holder


async def test_large_reviews_of_one_namespace_are_refused_when_too_many_wait(webhook: RunningWebhook) -> None:
    webhook.service.lane = CpuLane(budget_seconds=60, max_per_tenant=1)
    with webhook.service.lane.enter("holder", 1):
        release = threading.Event()
        holder = asyncio.create_task(compute(release.wait, PATIENCE_SECONDS))
    await eventually(lambda: webhook.service.lane._busy)
    body = review(many(MAX_LIST_ENTRIES))
    first = asyncio.create_task(webhook.client.post("/validate", json=body))
    await eventually(lambda: len(webhook.service.lane) == 1)
    refused = await webhook.client.post("/validate", json=body)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    other = {**body, "request": {**body["request"], "namespace": "other"}}
    second = asyncio.create_task(webhook.client.post("/validate", json=other))
    await eventually(lambda: len(webhook.service.lane) == 2)
    release.set()
    assert [(await each).status_code for each in (first, second)] == [200, 200]
    assert await holder


async def test_a_review_beyond_its_budget_of_processor_time_is_given_up(webhook: RunningWebhook) -> None:
    webhook.service.lane = CpuLane(budget_seconds=0, max_per_tenant=10)
    refused = await webhook.client.post("/validate", json=review(many(MAX_LIST_ENTRIES)))
    assert refused.status_code == 503
    assert "too much processor time" in refused.text
    assert (await webhook.review(review(vm()), "/validate"))["allowed"]
