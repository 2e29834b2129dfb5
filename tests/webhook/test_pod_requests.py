"""What Pods of VMIs request at least, by KubeVirt's rules."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from webhook.pod_requests import pod_requests

Json = dict[str, Any]
GI = 2**30
DEFAULTS = ClusterSettings()


def domain(resources: Json | None = None, **parts: Any) -> Json:
    return {"domain": {"resources": resources or {}, **parts}}


GUEST = {"memory": {"guest": "4Gi"}}


@pytest.mark.parametrize(
    ("vmi", "settings", "memory"),
    [
        pytest.param(domain({"requests": {"memory": "1Gi"}}, **GUEST), DEFAULTS, GI, id="the request"),
        pytest.param(domain({"limits": {"memory": "2Gi"}}, **GUEST), DEFAULTS, 2 * GI, id="a limit without a request"),
        pytest.param(domain(**GUEST), DEFAULTS, 4 * GI, id="the memory of the guest"),
        pytest.param(domain(**GUEST), replace(DEFAULTS, memory_overcommit=200), 2 * GI, id="with overcommit"),
        pytest.param(domain(**GUEST), None, None, id="KubeVirt's settings are unknown"),
        pytest.param(domain({"requests": {"memory": "1Gi"}}), None, GI, id="a request needs no settings of KubeVirt"),
        pytest.param(
            domain({"requests": {"memory": "4Gi"}}, memory={"guest": "4Gi", "hugepages": {"pageSize": "2Mi"}}),
            DEFAULTS,
            None,
            id="hugepages are no memory",
        ),
        pytest.param(domain(), DEFAULTS, None, id="nothing says it"),
        pytest.param({"domain": "text"}, DEFAULTS, None, id="no domain"),
    ],
)
def test_memory(vmi: Json, settings: ClusterSettings | None, memory: int | None) -> None:
    assert dict(pod_requests(vmi, settings)).get("memory") == memory


FOUR = {"cpu": {"sockets": 2, "cores": 2}}
DEDICATED = {"dedicatedCpuPlacement": True}


@pytest.mark.parametrize(
    ("vmi", "settings", "millis"),
    [
        pytest.param(domain({"requests": {"cpu": "2"}}, **FOUR), DEFAULTS, 2000, id="the request"),
        pytest.param(domain({"limits": {"cpu": "3"}}, **FOUR), DEFAULTS, 3000, id="a limit without a request"),
        pytest.param(domain(**FOUR), DEFAULTS, 400, id="a share of the virtual CPUs"),
        pytest.param(domain(), DEFAULTS, 100, id="of one without a topology"),
        pytest.param(domain(**FOUR), replace(DEFAULTS, cpu_allocation_ratio=2), 2000, id="with another ratio"),
        pytest.param(domain(**FOUR), replace(DEFAULTS, cpu_request="250m"), 250, id="a request for all VMs"),
        pytest.param(domain(**FOUR), replace(DEFAULTS, cpu_request="100m"), 400, id="another request for all VMs"),
        pytest.param(domain(**FOUR), None, None, id="KubeVirt's settings are unknown"),
        pytest.param(domain(cpu={**FOUR["cpu"], **DEDICATED}), None, 4000, id="dedicated CPUs"),
        pytest.param(domain({"requests": {"cpu": "2"}}, cpu=DEDICATED), None, 2000, id="by the request"),
    ],
)
def test_cpus(vmi: Json, settings: ClusterSettings | None, millis: int | None) -> None:
    found = dict(pod_requests(vmi, settings)).get("cpu")
    assert found == (None if millis is None else Fraction(millis, 1000))
