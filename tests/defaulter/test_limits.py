"""Bounds of numbers: each number of the table of fields has one, and a number beyond it never reaches libvirt."""

from __future__ import annotations

from typing import Any

import pytest

from defaulter.codecs import BYTES, COUNT
from defaulter.fields import DEVICES, DOMAIN
from defaulter.limits import NUMBERS, Limit, excessive_values
from poolhouse.api.apimachinery.problem import format_path
from tests.defaulter.builders import Json


def spec_with(path: str, value: Any) -> Json:
    """A spec with this value at a path of the table."""
    before, is_list, after = path.partition("[].")
    value = [spec_with(after, value)] if is_list else value
    for step in reversed(before.split(".")):
        value = {step: value}
    return dict(value)


def test_each_number_of_the_fields_has_a_limit() -> None:
    numbers = {field.spec for field in DOMAIN if field.codec in (COUNT, BYTES)}
    for devices in DEVICES:
        separator = "." if devices.is_single else "[]."
        numbers |= {f"{devices.spec}{separator}{field.spec}" for field in devices.fields if field.codec is COUNT}
    further = {"domain.cpu.maxSockets", "domain.clock.utc.offsetSeconds"}
    assert {limit.path for limit in NUMBERS} == numbers | further
    assert all(limit.source for limit in NUMBERS)


@pytest.mark.parametrize("limit", NUMBERS, ids=lambda limit: limit.path)
def test_a_number_beyond_its_limit_is_refused_at_its_path(limit: Limit) -> None:
    path = limit.path.replace("[]", "[0]")
    assert not list(excessive_values(spec_with(limit.path, limit.most)))
    for value in (limit.most + 1, 2**63 - 1, 10**400):
        (error,) = excessive_values(spec_with(limit.path, value))
        assert (format_path(error.path), f"at most {limit.most} (" in error.message) == (path, True)
    (error,) = excessive_values(spec_with(limit.path, -limit.most - 1))
    assert error.message.startswith(f"must be from {limit.least} to {limit.most} (")


@pytest.mark.parametrize(
    ("cpu", "vcpus"),
    [
        pytest.param({"sockets": 64, "cores": 64}, None, id="4096 vCPUs"),
        pytest.param({"sockets": 64, "cores": 64, "threads": 2}, 8192, id="a product"),
        pytest.param({"sockets": 2, "maxSockets": 2049, "cores": 2}, 4098, id="with the sockets that may be added"),
        pytest.param({"sockets": "64", "cores": True, "threads": None}, None, id="values that are no numbers"),
    ],
)
def test_the_product_of_the_topology_has_a_limit(cpu: Json, vcpus: int | None) -> None:
    found = [(error.path, error.message) for error in excessive_values({"domain": {"cpu": cpu}})]
    message = f"has {vcpus} vCPUs; at most 4096 are allowed (QEMU: max_cpus of q35)"
    assert found == ([] if vcpus is None else [(("domain", "cpu"), message)])
