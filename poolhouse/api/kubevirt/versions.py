"""The releases of KubeVirt, and what each of them has of the fields, requests and behaviour that Poolhouse relies on.

`FEATURES` is the only place for such facts: the defaulter asks it, and docs/reference/kubevirt-versions.md is made from
it. The releases were read in KubeVirt's source at the tag of each release. `seen` says on which releases it was tried.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

Release = tuple[int, int]
"""major and minor version"""


def dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))


RELEASES: tuple[Release, ...] = ((1, 5), (1, 6), (1, 7), (1, 8), (1, 9))
OLDEST, NEWEST = RELEASES[0], RELEASES[-1]
MAIN: Release = (1, 10)
"""the release that KubeVirt's main branch becomes"""
BETA_IS_ON: Release = (1, 9)
"""the first release that enables a feature gate in beta without being told to"""


@dataclass(frozen=True)
class Hypervisor:
    """The versions in the image of virt-launcher."""

    libvirt: str
    qemu: str


HYPERVISORS: Mapping[Release, Hypervisor] = {
    (1, 5): Hypervisor("10.10.0", "9.1.0"),
    (1, 6): Hypervisor("10.10.0", "9.1.0"),
    (1, 7): Hypervisor("10.10.0", "9.1.0"),
    (1, 8): Hypervisor("11.9.0", "10.1.0"),
    (1, 9): Hypervisor("11.10.0", "10.1.0"),
    MAIN: Hypervisor("11.10.0", "10.1.0"),
}
"""Read in hack/rpm-deps.sh of each release, for CentOS Stream 9. A cluster may have another image of virt-launcher."""

_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:[.-]|$)")


@dataclass(frozen=True)
class FeatureGate:
    name: str
    alpha: Release | None = None
    """The release that added the gate. None: before `OLDEST`."""
    beta: Release | None = None
    general: Release | None = None
    """The first release in which the feature is always enabled (GA)."""


VIDEO_CONFIG = FeatureGate("VideoConfig", alpha=(1, 6), beta=(1, 7), general=(1, 9))
PANIC_DEVICES = FeatureGate("PanicDevices", alpha=(1, 6), beta=(1, 7), general=(1, 9))
DECLARATIVE_HOTPLUG_VOLUMES = FeatureGate("DeclarativeHotplugVolumes", alpha=(1, 6), beta=(1, 9))
HOTPLUG_VOLUMES = FeatureGate("HotplugVolumes")
PERSISTENT_RESERVATION = FeatureGate("PersistentReservation", general=(1, 9))
REBOOT_POLICY = FeatureGate("RebootPolicy", alpha=(1, 8), beta=(1, 9))
TERMINATE = "Terminate"
"""the value of `domain.rebootPolicy` with which a VMI ends when its guest reboots"""
SIDECAR = FeatureGate("Sidecar")
SNAPSHOT = FeatureGate("Snapshot", beta=(1, 6))
READS_BACK_WITHOUT_PLACEHOLDERS: Release = MAIN
"""the first release that reads a domain without placeholder NICs back before it adds root ports for hotplug"""
IN_PLACE_RESTORE: Release = (1, 6)
"""the first release that restores disks with their names"""
PLUGINS = FeatureGate("Plugins", alpha=(1, 9))
STALL_DETECTION = FeatureGate("MigrationStallDetection", alpha=(1, 9))
DOWNTIME_TUNING = FeatureGate("MigrationDowntimeTuning", alpha=(1, 10))
MIGRATION_COMPRESSION: Release = (1, 9)
"""the first release that can compress the memory of migrating guests"""

Support = Literal["no", "gate", "default", "always"]
"""Whether a release lacks a feature, has it behind a feature gate that is off or on by default, or always has it."""


@dataclass(frozen=True)
class Feature:
    name: str
    api: str
    """The field, request or label, as KubeVirt spells it."""
    use: str
    """What Poolhouse writes or asks, and what it does where the feature is missing."""
    since: Release | None = None
    """The first release with the feature. None: before `OLDEST`."""
    gate: FeatureGate | None = None
    seen: tuple[Release, ...] = ()
    """Releases on which it was tried on a real cluster."""

    def support(self, release: Release) -> Support:
        """The support without any feature gate in the KubeVirt object."""
        if self.since is not None and release < self.since:
            return "no"
        if self.gate is None or (self.gate.general is not None and release >= self.gate.general):
            return "always"
        return "default" if is_enabled(self.gate, release, (), ()) else "gate"


FEATURES = (
    Feature(
        "Display adapter",
        "`domain.devices.video.type`",
        "Written where KubeVirt accepts it, else left empty. KubeVirt 1.6 to 1.8 refuse a VM with the field if the gate"
        " is off; 1.5 does not know the field.",
        since=(1, 6),
        gate=VIDEO_CONFIG,
        seen=((1, 8), (1, 9)),
    ),
    Feature(
        "Panic devices",
        "`domain.devices.panicDevices`",
        "The model of a device without one is written. Poolhouse adds no panic device.",
        since=(1, 6),
        gate=PANIC_DEVICES,
    ),
    Feature(
        "Watchdog of s390x",
        "`domain.devices.watchdog.diag288`",
        "The action of a watchdog without one is written.",
        since=(1, 6),
    ),
    Feature(
        "Restart at a reboot of the guest",
        "`domain.rebootPolicy`",
        "A VM with Terminate, whose guest reboots, starts again with its spec: an update that waits for a restart is"
        " then done.",
        since=(1, 8),
        gate=REBOOT_POLICY,
    ),
    Feature(
        "Firmware UUID by virt-api",
        "`domain.firmware.uuid`",
        "virt-api writes a random UUID when a VM is created, and Poolhouse keeps it. In 1.5 Poolhouse writes one that"
        " is computed from the VM's name.",
        since=(1, 6),
        seen=((1, 8), (1, 9)),
    ),
    Feature(
        "Firmware serial by virt-api",
        "`domain.firmware.serial`",
        "As the UUID. In 1.5 and 1.6 Poolhouse writes it.",
        since=(1, 7),
        seen=((1, 8), (1, 9)),
    ),
    Feature(
        "Machine types on node labels",
        "`machine-type.node.kubevirt.io/...`",
        "Read to replace an alias of a new VM. Without the labels the defaulter's own QEMU decides.",
        since=(1, 6),
        seen=((1, 8), (1, 9)),
    ),
    Feature(
        "CPU models on node labels",
        "`cpu-model.node.kubevirt.io/...`",
        "Read to accept CPU models that only the nodes' libvirt knows.",
        seen=((1, 9),),
    ),
    Feature(
        "Machine type of a running guest",
        "`status.machine.type` of the VMI",
        "Read when an older VM stops, so that it keeps its machine type.",
        seen=((1, 7), (1, 9)),
    ),
    Feature(
        "Spare root ports for hotplug",
        "eight or sixteen PCI ports in total",
        "The same ports are assumed when addresses are chosen. In 1.5 virt-launcher reserves ports for four NICs only.",
        since=(1, 6),
        seen=((1, 9),),
    ),
    Feature(
        "Spare root ports of a VM without placeholder NICs",
        "the domain is read back before ports are added",
        "A hotplugged disk gets the address of such a port. Before, other devices occupy most of them.",
        since=READS_BACK_WITHOUT_PLACEHOLDERS,
    ),
    Feature(
        "Version of the PCI layout",
        "`kubevirt.io/pci-topology-version`",
        "Not needed: Poolhouse writes the addresses. The annotation is in 1.6.4 and 1.7.2 too.",
        since=(1, 8),
        seen=((1, 9),),
    ),
    Feature(
        "Hotplug of NICs",
        "interfaces added to a running VM",
        "An added NIC gets an address that is free in the running VM.",
    ),
    Feature(
        "Declarative hotplug of volumes",
        "`hotpluggable` volumes added to a running VM",
        "An added virtio disk gets an address that is free in the running VM. Without the gate KubeVirt attaches it at"
        " the next start.",
        since=(1, 6),
        gate=DECLARATIVE_HOTPLUG_VOLUMES,
        seen=((1, 7), (1, 9)),
    ),
    Feature(
        "Hotplug of volumes by request",
        "`addvolume`, `removevolume`",
        "Not asked. The devices that KubeVirt adds to the VM get addresses as others do. Deprecated in 1.9.",
        gate=HOTPLUG_VOLUMES,
        seen=((1, 7),),
    ),
    Feature(
        "Persistent reservations",
        "`lun.reservation`",
        "Left as written.",
        gate=PERSISTENT_RESERVATION,
    ),
    Feature(
        "Sidecar hooks",
        "`hooks.kubevirt.io/hookSidecars`",
        "Added to new VMIs with a hardware record, which it restores, if the chart's `hardwareRecord` allows it.",
        gate=SIDECAR,
        seen=((1, 7),),
    ),
    Feature(
        "Plugins",
        "`plugin.kubevirt.io/v1alpha1`",
        "Installed by the chart if its `hardwareRecord` allows it. It restores the hardware record.",
        since=(1, 9),
        gate=PLUGINS,
    ),
    Feature(
        "Requests to a VM",
        "`subresources.kubevirt.io/v1`: start, stop, restart, pause, unpause",
        "Asked by pools and warm pools. The client accepts any content type.",
        seen=((1, 7), (1, 9)),
    ),
    Feature(
        "Migration policies",
        "`migrations.kubevirt.io/v1alpha1`",
        "One is written for each of Poolhouse's policies.",
        seen=((1, 9),),
    ),
    Feature(
        "Disruption by migrations",
        "`allowWorkloadDisruption` of a migration policy",
        "Written as the policy says. If a policy only forbids post-copy, the value of KubeVirt's configuration is"
        " written, because KubeVirt would forbid the disruption too.",
    ),
    Feature(
        "Downtime limit of migrations",
        "`maxDowntimeMs` of a migration policy",
        "Written as the policy says, else left out with a reason in the policy's condition. The gate of downtime tuning"
        " allows it too.",
        since=(1, 9),
        gate=STALL_DETECTION,
    ),
    Feature(
        "Stall detection of migrations",
        "`experimental.stallDetector` of a migration policy",
        "As the downtime limit.",
        since=(1, 9),
        gate=STALL_DETECTION,
    ),
    Feature(
        "Compression of migrations",
        "`experimental.compression` of a migration policy",
        "As the downtime limit.",
        since=MIGRATION_COMPRESSION,
    ),
    Feature(
        "Downtime tuning of migrations",
        "`experimental.downtimeTuning` of a migration policy",
        "As the downtime limit.",
        since=(1, 10),
        gate=DOWNTIME_TUNING,
    ),
    Feature(
        "Snapshots of VMs",
        "`snapshot.kubevirt.io/v1beta1`: VirtualMachineSnapshot",
        "Created before an update if the pool asks for it. Without the gate KubeVirt refuses them, and the pool updates"
        " no VM.",
        gate=SNAPSHOT,
        seen=((1, 9),),
    ),
    Feature(
        "Restore of disks with their names",
        "`volumeRestorePolicy: InPlace` of a VirtualMachineRestore",
        "`rollout undo --restore-snapshots` asks for it. In 1.5 the API server refuses the field, and an event says so."
        " It needs the gate of snapshots.",
        since=IN_PLACE_RESTORE,
        seen=((1, 9),),
    ),
    Feature(
        "Instance types and preferences",
        "`instancetype.kubevirt.io/v1beta1`",
        "Read where a VM refers to them.",
        seen=((1, 7), (1, 9)),
    ),
    Feature(
        "Live update by default",
        "`vmRolloutStrategy: LiveUpdate`",
        "Pools let KubeVirt change running VMs where it can. In 1.5 the default is `Stage`: a change of a running VM"
        " waits for its restart, unless the KubeVirt object says `LiveUpdate`.",
        since=(1, 6),
    ),
    Feature(
        "Disabled feature gates",
        "`developerConfiguration.disabledFeatureGates`",
        "Read. Before 1.9 a gate in beta is off unless the KubeVirt object lists it.",
        since=(1, 8),
        seen=((1, 9),),
    ),
    Feature(
        "KubeVirt's own pools",
        "`pool.kubevirt.io/v1beta1`",
        "Never touched. 1.5 and 1.6 have only `v1alpha1`.",
        since=(1, 7),
        seen=((1, 7), (1, 9)),
    ),
)


def parse_release(version: str) -> Release | None:
    """The release of a version such as `v1.8.4`; None for a version of another form, such as an image digest.

    An alpha version counts as the release before, because most of the release's changes are not in it yet. A build of
    the main branch has a version such as `v1.9.0-beta.0-1264-gd923fdb` and counts as 1.9.
    """
    match = _VERSION.match(version)
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2])
    return major, minor - (1 if "-alpha." in version and minor > 0 else 0)


def is_enabled(gate: FeatureGate, release: Release | None, enabled: Collection[str], disabled: Collection[str]) -> bool:
    """Whether KubeVirt enables the gate, where the KubeVirt object lists the gates `enabled` and `disabled`.

    Without a known release only a gate that the object lists counts as enabled."""
    if release is None:
        return gate.name in enabled
    if gate.general is not None and release >= gate.general:
        return True
    if gate.alpha is not None and release < gate.alpha:
        return False
    if gate.name in enabled:
        return True
    beta = gate.beta is not None and release >= gate.beta
    return beta and release >= BETA_IS_ON and gate.name not in disabled
