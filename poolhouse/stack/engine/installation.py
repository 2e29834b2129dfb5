"""The engine's KubeVirt object, which says as which release of KubeVirt the engine behaves.

Users write its spec. The engine writes the part of its status that clients read, as KubeVirt's operator does.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolhouse.api.apimachinery.merge_patch import merge_patch
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import NAMESPACE
from poolhouse.api.kubevirt.cluster_settings import choose
from poolhouse.api.kubevirt.live_updates import LIVE_MIGRATE
from poolhouse.api.kubevirt.versions import NEWEST
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import KUBEVIRTS
from poolhouse.stack.engine.migration.plan import MIGRATING

VERSION = "v{}.{}.0".format(*NEWEST)

NAME = "kubevirt"

STATUS = {
    "phase": "Deployed",
    "observedKubeVirtVersion": VERSION,
    "targetKubeVirtVersion": VERSION,
    "operatorVersion": VERSION,
    "defaultArchitecture": "amd64",
}


def new_kubevirt(namespace: str) -> Json:
    return {
        "apiVersion": KUBEVIRTS.api_version,
        "kind": KUBEVIRTS.kind,
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            # So that a drain moves VMs that name no strategy. KubeVirt has no default, so it would evict them.
            "configuration": {"evictionStrategy": MIGRATING[0]},
            # So that a VM gets CPUs and memory while it runs. KubeVirt's own manifest names no method.
            "workloadUpdateStrategy": {"workloadUpdateMethods": [LIVE_MIGRATE]},
        },
    }


async def register(api: Api, namespace: str = NAMESPACE) -> None:
    """Writes the status of the KubeVirt object. Creates one in the namespace if the cluster has none."""
    found: Sequence[Json]
    found, _ = await api.list(KUBEVIRTS)
    installation = choose(found) or await api.create(KUBEVIRTS, new_kubevirt(namespace))
    if changes := merge_patch(installation.get("status") or {}, {**(installation.get("status") or {}), **STATUS}):
        metadata = installation["metadata"]
        await api.patch(KUBEVIRTS, metadata["namespace"], metadata["name"], {"status": changes}, subresource="status")
