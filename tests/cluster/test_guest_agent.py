"""The agent in a real guest, with a certificate of Poolhouse: a claim's application runs in a VM that waited, with
volumes, probes and an exit code."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.claim.snapshot import CLAIMS
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import CONFIG_MAPS, VMS
from poolhouse.stack.paths import StackPaths
from tests.cluster.simulated.test_engine import delete_all
from tests.conftest import RUNS_GUESTS, stack
from tests.resources import ROLE_BINDINGS
from tests.waiting import eventually

Json = dict[str, Any]

pytestmark = [
    pytest.mark.libvirt,
    pytest.mark.slow,
    pytest.mark.skipif(not RUNS_GUESTS, reason="needs QEMU and libvirt"),
]

DOMAIN = {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}, "memory": {"guest": "256Mi"}}
POOL: Json = {
    "apiVersion": "poolhouse.dev/v1alpha1",
    "kind": "VirtualMachineWarmPool",
    "metadata": {"name": "real", "namespace": "default"},
    "spec": {
        "replicas": 1,
        # The pool replaces no claimed VM, because a second guest would take the processor time of the first.
        "maxTotal": 1,
        "agent": {"tls": {"issuer": "Poolhouse"}},
        "claimPolicy": {"allowApplication": True},
        "template": {
            "spec": {"template": {"spec": {"domain": DOMAIN, "networks": [{"name": "default", "pod": {}}]}}},
        },
    },
}
# The probe succeeds only where the volume is mounted; the application ends after it.
SCRIPT = "cat /settings/greeting; uname -n; until [ -e /tmp/probed ]; do sleep 1; done; exit 3"
PROBE = {"exec": {"command": ["sh", "-c", "test -e /settings/greeting && touch /tmp/probed"]}, "timeoutSeconds": 60}
CLAIM: Json = {
    "apiVersion": "poolhouse.dev/v1alpha1",
    "kind": "VirtualMachineClaim",
    "metadata": {"name": "job", "namespace": "default"},
    "spec": {
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
    },
}
SETTINGS: Json = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings", "namespace": "default"},
    "data": {"greeting": "hello\n"},
}
# The controllers may read no ConfigMap, unless a namespace lets them.
BINDING: Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "poolhouse", "namespace": "default"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    "subjects": [{"kind": "ServiceAccount", "name": "poolhouse-controllers", "namespace": "poolhouse-system"}],
}


async def test_an_application_runs_in_a_real_guest_that_waited_for_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    paths = StackPaths(tmp_path_factory.mktemp("agent"))
    with stack(paths, "--engine", "qemu", "--guest-agent"):
        async with await Api.connect(paths.kubeconfig, user_agent="tests", timeout_seconds=60) as api:
            await api.create(CONFIG_MAPS, SETTINGS)
            await api.create(ROLE_BINDINGS, BINDING)
            await api.create(WARM_POOLS, POOL)

            async def is_ready() -> bool:
                status = (await api.get(WARM_POOLS, "default", "real")).get("status", {})
                return bool(status.get("readyReplicas") == 1)

            # A guest without KVM needs ten seconds on an idle machine.
            await eventually(is_ready, 400)
            await api.create(CLAIMS, CLAIM)

            async def end() -> Json | None:
                status = (await api.get(CLAIMS, "default", "job")).get("status", {})
                found: Json = status.get("application") or {}
                return {**status, **found} if found.get("phase") in ("Succeeded", "Failed") else None

            status = await eventually(end, 400)
            assert status["launchType"] == "Warm"
            (main,) = status["containers"]
            assert main["state"]["terminated"]["exitCode"] == 3
            assert main["state"]["terminated"]["message"] == f"hello\n{status['vmRef']['name']}"
            assert status["initContainers"][0]["state"]["terminated"]["exitCode"] == 0
            await delete_all(api, CLAIMS, WARM_POOLS, VMS)
