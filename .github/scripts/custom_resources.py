#!/usr/bin/env python3
"""Prints the object that makes an operator install KubeVirt or CDI for the end-to-end tests:

    custom_resources.py kubevirt v1.8.4      custom_resources.py cdi

Guests run without KVM where the nodes have none. Feature gates that a release has, but not by default, are enabled.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from poolhouse.api.kubevirt.versions import (
    DECLARATIVE_HOTPLUG_VOLUMES,
    HOTPLUG_VOLUMES,
    PANIC_DEVICES,
    SNAPSHOT,
    VIDEO_CONFIG,
    FeatureGate,
    Release,
    is_enabled,
    parse_release,
)

GATES = (DECLARATIVE_HOTPLUG_VOLUMES, PANIC_DEVICES, SNAPSHOT, VIDEO_CONFIG)
"""what the tests use"""

Json = dict[str, Any]


def kubevirt(release: Release) -> Json:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {
            "imagePullPolicy": "IfNotPresent",
            "infra": {"replicas": 1},
            "configuration": {"developerConfiguration": {"useEmulation": True, "featureGates": gates(release)}},
        },
    }


def gates(release: Release) -> list[str]:
    """The gates that the KubeVirt object must list in this release."""
    wanted = GATES if _has(DECLARATIVE_HOTPLUG_VOLUMES, release) else (*GATES, HOTPLUG_VOLUMES)
    return sorted(gate.name for gate in wanted if _has(gate, release) and not is_enabled(gate, release, (), ()))


def _has(gate: FeatureGate, release: Release) -> bool:
    return gate.alpha is None or release >= gate.alpha


def cdi() -> Json:
    linux = {"nodeSelector": {"kubernetes.io/os": "linux"}}
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "CDI",
        "metadata": {"name": "cdi"},
        "spec": {
            "config": {"featureGates": ["HonorWaitForFirstConsumer"]},
            "imagePullPolicy": "IfNotPresent",
            "infra": linux,
            "workload": linux,
        },
    }


def main(arguments: list[str]) -> int:
    match arguments:
        case ["kubevirt", version] if (release := parse_release(version)) is not None:
            document = kubevirt(release)
        case ["cdi"]:
            document = cdi()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    print(yaml.safe_dump(document, sort_keys=False), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
