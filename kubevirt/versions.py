"""The releases of KubeVirt, and its feature gates that decide which fields and requests a cluster accepts.

The releases in the tables were read in KubeVirt's source at the tag of each release.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

Release = tuple[int, int]
"""major and minor version"""

OLDEST: Release = (1, 5)
NEWEST: Release = (1, 9)
BETA_IS_ON: Release = (1, 9)
"""the first release that enables a feature gate in beta without being told to"""

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
SIDECAR = FeatureGate("Sidecar")
PLUGINS = FeatureGate("Plugins", alpha=(1, 9))

GATES = (
    VIDEO_CONFIG,
    PANIC_DEVICES,
    DECLARATIVE_HOTPLUG_VOLUMES,
    HOTPLUG_VOLUMES,
    PERSISTENT_RESERVATION,
    SIDECAR,
    PLUGINS,
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
