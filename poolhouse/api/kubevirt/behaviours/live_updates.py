"""Which changes a running VM gets, and which need a restart."""

from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.behaviours.steps import ANY, HALTED, Behaviour, Change, Create, Shows, domain, running

_LIVE = "Pools let KubeVirt change running VMs, and restart those for which KubeVirt requires it."
_NICS = "domain.devices.interfaces"


def _nics(**second: Any) -> Json:
    """A NIC on the pod network. With `second`, also one on a Multus network."""
    nics: list[Json] = [{"name": "default", "masquerade": {}}]
    networks: list[Json] = [{"name": "default", "pod": {}}]
    if second:
        nics.append({"name": "second", "bridge": {}, **second})
        networks.append({"name": "second", "multus": {"networkName": "conformance"}})
    return {"template": {"spec": {"domain": {"devices": {"interfaces": nics}}, "networks": networks}}}


LIVE_UPDATES: tuple[Behaviour, ...] = (
    Behaviour(
        "restart-required",
        "a VM whose template has changed since its start has the condition RestartRequired",
        "Users see by it which VMs of a pool do not run the new template yet.",
        (
            *running(),
            Change("VM", {"spec": {"template": {"spec": {"domain": {"cpu": {"cores": 2}}}}}}),
            Shows("VM", {"conditions.RestartRequired": "True"}),
        ),
        guest=True,
    ),
    Behaviour(
        "more-sockets-while-running",
        "virt-controller gives a running VMI more CPU sockets",
        _LIVE,
        (
            *running(domain(cpu={"sockets": 1, "cores": 1, "threads": 1})),
            Shows("VMI", {"spec.domain.cpu.maxSockets": ANY, "status.currentCPUTopology.sockets": 1}),
            Change("VM", {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 2}}}}}}),
            Shows("VMI", {"spec.domain.cpu.sockets": 2}),
            Shows("VM", {"conditions.RestartRequired": None}),
        ),
        guest=True,
        live=True,
    ),
    Behaviour(
        "absent-nic-leaves-the-vm",
        "virt-controller removes a NIC with the state absent from a VM that does not run",
        "Pools do not count a NIC that the template calls absent as a difference.",
        (Create({**HALTED, **_nics(state="absent")}), Shows("VM", {f"spec.template.spec.{_NICS}.1": None})),
        since=(1, 6),
    ),
    Behaviour(
        "nic-while-running",
        "virt-controller gives a running VMI a NIC on a Multus network, and takes an absent one",
        _LIVE,
        (
            *running(_nics()),
            Change("VM", {"spec": _nics(state=None)}),
            Shows("VMI", {f"spec.{_NICS}.1.name": "second", "spec.networks.1.name": "second"}),
            Change("VM", {"spec": _nics(state="absent")}),
            Shows("VM", {"conditions.RestartRequired": None}),
        ),
        guest=True,
        since=(1, 6),
    ),
    Behaviour(
        "placement-while-running",
        "virt-controller gives a running VMI another node selector and other tolerations",
        _LIVE,
        (
            *running(),
            Change("VM", {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}}}),
            Change("VM", {"spec": {"template": {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}}}),
            Shows("VMI", {"spec.nodeSelector.kubernetes.io/os": "linux", "spec.tolerations.0.key": "a"}),
            Shows("VM", {"conditions.RestartRequired": None}),
        ),
        guest=True,
        live=True,
    ),
    Behaviour(
        "fewer-sockets-need-a-restart",
        "virt-controller sets RestartRequired for fewer CPU sockets",
        _LIVE,
        (
            *running(domain(cpu={"sockets": 2, "cores": 1, "threads": 1})),
            Change("VM", {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 1}}}}}}),
            Shows("VM", {"conditions.RestartRequired": "True"}),
            Shows("VMI", {"spec.domain.cpu.sockets": 2}),
        ),
        guest=True,
        live=True,
    ),
)
