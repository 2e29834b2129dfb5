"""A change of anything that a decision of the engine reads leads to that decision, in whatever order events arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from poolhouse.api.kinds.meta import NAMESPACE, SIMULATION
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.metrics import Metrics
from poolhouse.stack.engine.datavolume.controller import DataVolumeController
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.migration.evacuation import EvacuationController
from poolhouse.stack.engine.node.scheduler import NodeCapacity
from poolhouse.stack.engine.vm.controller import VMController
from poolhouse.stack.engine.vm.plan import Delays
from poolhouse.stack.engine.vmi.controller import VMIController
from tests.stack.engine.builders import disk, node, vm, vmi

API: Any = SimpleNamespace(metrics=Metrics(), identity="tests", monotonic=lambda: 0.0)
HYPERVISOR: Any = SimpleNamespace(subscribe=lambda changed: None)
FAILING = (("fail", "DataVolumeError"),)
VM = ("default", "vm")


def vms(informers: Informers) -> Any:
    return VMController(API, informers, Delays()).controller


def vmis(informers: Informers) -> Any:
    capacity = NodeCapacity(informers.vmis.store)
    return VMIController(API, informers, HYPERVISOR, None, Delays(), capacity).controller


def data_volumes(informers: Informers) -> Any:
    return DataVolumeController(API, informers, HYPERVISOR).controller


def evacuations(informers: Informers) -> Any:
    return EvacuationController(API, informers).controller


def opts_out(informers: Informers) -> None:
    informers.namespaces.replace({("", "default"): True})


def opts_in(informers: Informers) -> None:
    informers.namespaces.replace({("", "default"): False})


def is_annotated(informers: Informers) -> None:
    informers.vms.replace({VM: replace(a_vm(), faults=FAILING)})


def is_labelled(informers: Informers) -> None:
    informers.vms.replace({VM: replace(a_vm(), resource_version="2")})


def is_configured(informers: Informers) -> None:
    informers.settings.replace({(NAMESPACE, SIMULATION): FAILING})


def migrates_by_default(informers: Informers) -> None:
    informers.kubevirts.replace({("", "kubevirt"): ClusterSettings(eviction_strategy="LiveMigrate")})


def a_vm() -> Any:
    return vm(awaits_defaults=True, data_volume_templates=("disk",))


@pytest.mark.parametrize(
    ("controller", "happens", "reconciled"),
    [
        pytest.param(vms, opts_out, [VM], id="a namespace opts out: its VM waits for no defaults"),
        pytest.param(vms, opts_in, [], id="a namespace that has not opted out is no news"),
        pytest.param(vmis, is_annotated, [VM], id="the faults of a VM are those of its VMI"),
        pytest.param(vmis, is_configured, [VM], id="the faults of all VMs are those of a VMI that runs"),
        pytest.param(data_volumes, is_annotated, [("default", "disk")], id="the faults of a DataVolume"),
        pytest.param(data_volumes, is_configured, [("default", "disk")], id="the faults of all VMs: a DataVolume"),
        pytest.param(data_volumes, is_labelled, [], id="another change of a VM is no news for a DataVolume"),
        pytest.param(evacuations, migrates_by_default, ["node-1"], id="a default says which VMIs leave a node"),
    ],
)
async def test_a_change_leads_to_the_decisions_that_read_it(
    controller: Callable[[Informers], Any],
    happens: Callable[[Informers], None],
    reconciled: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    informers = Informers(API)
    informers.vms.replace({VM: a_vm()})
    informers.vmis.replace({VM: vmi("Running")})
    informers.data_volumes.replace({("default", "disk"): disk(phase="ImportInProgress")})
    informers.nodes.replace({("", "node-1"): node()})
    found, enqueued = controller(informers), list[Any]()
    monkeypatch.setattr(found, "enqueue", enqueued.append)
    happens(informers)
    assert enqueued == reconciled
