"""The settings of a cluster's KubeVirt object that decide what a guest sees and which fields KubeVirt accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Self

from poolhouse.api.apimachinery.unstructured import Json, at, entries, typed
from poolhouse.api.kubevirt.versions import FeatureGate, Release, is_enabled, parse_release

ARCHITECTURES = ("amd64", "arm64", "s390x")

_METADATA = ("namespace", "name", "deletionTimestamp")
_CONFIGURATION = (
    "architectureConfiguration",
    "cpuModel",
    "cpuRequest",
    "developerConfiguration",
    "emulatedMachines",
    "evictionStrategy",
    "liveUpdateConfiguration",
    "machineType",
    "network",
    "permittedHostDevices",
    "vmRolloutStrategy",
)
_DEVELOPER_CONFIGURATION = ("featureGates", "disabledFeatureGates", "memoryOvercommit", "cpuAllocationRatio")
_STATUS = ("phase", "observedKubeVirtVersion", "targetKubeVirtVersion", "operatorVersion", "defaultArchitecture")


@dataclass(frozen=True)
class ClusterSettings:
    """Empty values are unset in the KubeVirt object: KubeVirt's own defaults apply."""

    versions: tuple[str, ...] = ()
    """The running version and, during an update, the version that is being installed."""
    feature_gates: frozenset[str] = frozenset()
    disabled_feature_gates: frozenset[str] = frozenset()
    architecture: str = ""
    """The architecture of a VM that names none."""
    network: str = ""
    """The binding of the interface that KubeVirt adds to a VM without interfaces."""
    cpu_model: str = ""
    machine_types: Mapping[str, str] = field(default_factory=dict)
    """The machine type of a VM that names none, by architecture."""
    emulated_machines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Patterns of the machine types that KubeVirt accepts, by architecture."""
    eviction_strategy: str = ""
    """What happens to a VM that names no strategy while its node is drained. Unset: its Pod is evicted."""
    usb_resources: frozenset[str] = frozenset()
    """Resource names of host devices on USB. Other host devices are PCI functions."""
    rollout_strategy: str = ""
    """What KubeVirt does with changes of running VMs: `LiveUpdate` or `Stage`. Unset: the release decides."""
    update_methods: frozenset[str] = frozenset()
    """How KubeVirt may move running VMs by itself: `LiveMigrate`, `Evict`"""
    memory_overcommit: int = 100
    """The memory of a guest as a percentage of what its Pod requests, if the VM requests none."""
    cpu_allocation_ratio: int = 10
    """How many virtual CPUs share a CPU, if the VM requests none."""
    cpu_request: str = ""
    """What the Pod requests in place of that share."""

    @classmethod
    def chosen(cls, kubevirts: Iterable[Json]) -> Self | None:
        """The settings of the cluster's KubeVirt object, if it has one."""
        found = choose(kubevirts)
        return cls.of(found) if found is not None else None

    @classmethod
    def of(cls, kubevirt: Json) -> Self:
        """The settings of a KubeVirt object. A value of a wrong type counts as unset."""
        configuration, status = at(kubevirt, "spec", "configuration"), at(kubevirt, "status")
        developer = at(configuration, "developerConfiguration")
        return cls(
            versions=tuple(dict.fromkeys(_versions(status))),
            feature_gates=frozenset(_texts(developer, "featureGates")),
            disabled_feature_gates=frozenset(_texts(developer, "disabledFeatureGates")),
            architecture=_text(status, "defaultArchitecture")
            or _text(configuration, "architectureConfiguration", "defaultArchitecture"),
            network=_text(configuration, "network", "defaultNetworkInterface"),
            cpu_model=_text(configuration, "cpuModel"),
            machine_types={arch: name for arch in ARCHITECTURES if (name := _machine_type(configuration, arch))},
            emulated_machines={arch: names for arch in ARCHITECTURES if (names := _machines(configuration, arch))},
            eviction_strategy=_text(configuration, "evictionStrategy"),
            usb_resources=frozenset(
                _text(device, "resourceName") for _, device in entries(configuration, "permittedHostDevices", "usb")
            ),
            rollout_strategy=_text(configuration, "vmRolloutStrategy"),
            update_methods=frozenset(_texts(kubevirt, "spec", "workloadUpdateStrategy", "workloadUpdateMethods")),
            memory_overcommit=_positive(developer, "memoryOvercommit") or 100,
            cpu_allocation_ratio=_positive(developer, "cpuAllocationRatio") or 10,
            cpu_request=_text(configuration, "cpuRequest"),
        )

    @property
    def release(self) -> Release | None:
        """The oldest release among the versions; None if one of them is unknown. During an update, virt-api may still
        be the old one."""
        releases = [parse_release(version) for version in self.versions]
        known = [release for release in releases if release is not None]
        return min(known) if known and len(known) == len(releases) else None

    def enables(self, gate: FeatureGate) -> bool:
        return is_enabled(gate, self.release, self.feature_gates, self.disabled_feature_gates)

    def accepts_machine_type(self, architecture: str, machine: str) -> bool:
        """Whether virt-api accepts the machine type. KubeVirt's own patterns accept all types of the architecture."""
        patterns = self.emulated_machines.get(architecture)
        return patterns is None or any(fnmatchcase(machine, pattern) for pattern in patterns)


def _versions(status: Any) -> Iterator[str]:
    """The observed and the target version. KubeVirt writes the tag of its images there. A tag such as `main` says
    nothing about the release, but the operator writes the version that it was built from."""
    operator = _text(status, "operatorVersion")
    for tag in (_text(status, "observedKubeVirtVersion"), _text(status, "targetKubeVirtVersion")):
        if tag:
            yield operator if parse_release(tag) is None and parse_release(operator) is not None else tag


def excerpt(kubevirt: Json) -> Json:
    """The part of a KubeVirt object that `ClusterSettings` reads, which a client sends with each request."""
    configuration = at(kubevirt, "spec", "configuration")
    kept = _keep(configuration, _CONFIGURATION)
    if "permittedHostDevices" in kept:
        kept["permittedHostDevices"] = _keep(kept["permittedHostDevices"], ("usb",))
    if "developerConfiguration" in kept:
        kept["developerConfiguration"] = _keep(kept["developerConfiguration"], _DEVELOPER_CONFIGURATION)
    return {
        "metadata": _keep(at(kubevirt, "metadata"), _METADATA),
        "spec": {"configuration": kept, **_keep(at(kubevirt, "spec"), ("workloadUpdateStrategy",))},
        "status": _keep(at(kubevirt, "status"), _STATUS),
    }


def choose(kubevirts: Iterable[Json]) -> Json | None:
    """The KubeVirt object that configures the cluster: the first that KubeVirt's operator handles, else the first.
    A cluster should have only one."""

    def rank(kubevirt: Json) -> tuple[bool, bool, str, str]:
        metadata = kubevirt["metadata"]
        unhandled = not at(kubevirt, "status", "phase")
        return bool(metadata.get("deletionTimestamp")), unhandled, metadata.get("namespace") or "", metadata["name"]

    return min(kubevirts, key=rank, default=None)


def _keep(value: Any, names: tuple[str, ...]) -> Json:
    return {name: value[name] for name in names if name in value} if isinstance(value, dict) else {}


def _text(value: Any, *path: str) -> str:
    return typed(str, value, *path) or ""


def _positive(value: Any, *path: str) -> int | None:
    """KubeVirt's schema has no bounds. A number below 1 would give requests that are negative, or none at all."""
    found = typed(int, value, *path)
    return found if found is not None and found > 0 else None


def _texts(value: Any, *path: str) -> tuple[str, ...]:
    return tuple(each for each in typed(list, value, *path) or () if isinstance(each, str))


def _machine_type(configuration: Any, architecture: str) -> str:
    everywhere = _text(configuration, "machineType")
    return everywhere or _text(configuration, "architectureConfiguration", architecture, "machineType")


def _machines(configuration: Any, architecture: str) -> tuple[str, ...]:
    everywhere = _texts(configuration, "emulatedMachines")
    return everywhere or _texts(configuration, "architectureConfiguration", architecture, "emulatedMachines")
