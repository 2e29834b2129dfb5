"""Applications: the agent in a real guest, with a certificate of Poolhouse."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kinds.meta import SIM_PREFIX
from poolhouse.manifests import agent_certificates, rbac
from poolhouse.runtime.resource import CONFIG_MAPS
from poolhouse.stack.install import apply
from tests.e2e.scope import CLAIMS, WARM_POOLS, Scope
from tests.resources import ROLE_BINDINGS
from tests.waiting import eventually, until

Json = dict[str, Any]

GUEST_SECONDS = 400.0
"""A guest without KVM needs ten seconds on an idle machine."""
DOMAIN = {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}, "memory": {"guest": "256Mi"}}
GUEST = {"domain": DOMAIN, "networks": [{"name": "default", "pod": {}}]}
POOL: Json = {
    "replicas": 1,
    # The pool replaces no claimed VM, because a second guest would take the processor time of the first.
    "maxTotal": 1,
    "agent": {"tls": {"issuer": "Poolhouse"}},
    "claimPolicy": {"allowApplication": True},
    "template": {"metadata": {"annotations": {f"{SIM_PREFIX}linux": "true"}}, "spec": {"template": {"spec": GUEST}}},
}
# The probe succeeds only where the volume is mounted; the application ends after it.
SCRIPT = "cat /settings/greeting; uname -n; until [ -e /tmp/probed ]; do sleep 1; done; exit 3"
PROBE = {"exec": {"command": ["sh", "-c", "test -e /settings/greeting && touch /tmp/probed"]}, "timeoutSeconds": 60}
CLAIM: Json = {
    "poolName": "real",
    "application": {
        "restartPolicy": "Never",
        "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
        "initContainers": [{"name": "first", "command": ["true"]}],
        "containers": [
            {
                "name": "main",
                "command": ["sh", "-c", SCRIPT],
                "volumeMounts": [{"name": "settings", "mountPath": "/settings"}],
                "startupProbe": {**PROBE, "failureThreshold": 100, "periodSeconds": 1},
            }
        ],
    },
}
# The controllers may read no ConfigMap, unless a namespace lets them.
BINDING: Json = {
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    "subjects": [{"kind": "ServiceAccount", "name": "poolhouse-controllers", "namespace": "poolhouse-system"}],
}


@pytest.mark.needs(embedded=True)
async def test_application(scope: Scope) -> None:
    """An application runs in a guest that waited for it, with a volume, a probe and an exit code"""
    metadata = {"namespace": scope.namespace, "name": "settings"}
    await scope.api.create(CONFIG_MAPS, {"metadata": metadata, "data": {"greeting": "hello\n"}})
    await scope.api.create(ROLE_BINDINGS, {"metadata": metadata, **BINDING})
    await apply(scope.api, rbac.namespace_role("controllers", agent_certificates.CERTIFICATE_RULES, scope.namespace))
    await scope.create(WARM_POOLS, "real", POOL)

    async def ready() -> int:
        return int(((await scope.get(WARM_POOLS, "real") or {}).get("status") or {}).get("readyReplicas", 0))

    await until(ready, 1, GUEST_SECONDS)
    await scope.create(CLAIMS, "job", CLAIM)

    async def end() -> Json | None:
        status = (await scope.get(CLAIMS, "job") or {}).get("status") or {}
        found: Json = status.get("application") or {}
        return {**status, **found} if found.get("phase") in ("Succeeded", "Failed") else None

    status = await eventually(end, GUEST_SECONDS)
    assert status["launchType"] == "Warm"
    (main,) = status["containers"]
    assert main["state"]["terminated"]["exitCode"] == 3
    assert main["state"]["terminated"]["message"] == f"hello\n{status['vmRef']['name']}"
    assert status["initContainers"][0]["state"]["terminated"]["exitCode"] == 0
