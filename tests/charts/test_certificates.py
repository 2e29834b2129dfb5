"""Certificates of cert-manager and of the user, on a real API server. The webhook runs with the rights of the chart.

No admission request may fail while the certificate is replaced.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from controllers.certificates.observe import configuration_resource
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import DEPLOYMENTS, SECRETS
from poolhouse.service.certificates import new_ca, new_server_certificate
from poolhouse.stack.install import RESOURCES, apply
from poolhouse.stack.paths import StackPaths
from tests.charts.cert_manager import CertManager, write_tls_secret
from tests.charts.dry_runs import DryRuns, continuous_dry_runs
from tests.charts.helm import RELEASE, run, without_schemas
from tests.charts.kubelet import SERVICES, Kubelet
from tests.cluster.heard import heard
from tests.cluster.pooling import namespace
from tests.waiting import eventually

Json = dict[str, Any]

DAY = timedelta(days=1)
WANTED = {
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "Deployment",
    "Service",
    "Secret",
}
WANTED |= {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Certificate", "Issuer"}


@dataclass
class Installed:
    api: Api
    namespace: str
    kubelet: Kubelet
    documents: list[Json]

    async def served(self) -> set[str]:
        """The certificates that the Pods serve."""
        ports = [pod.port for pod in self.kubelet.pods("poolhouse-webhook")]
        return {await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port)) for port in ports}

    async def publish(self, bundle: bytes) -> None:
        """Changes caBundle as `helm upgrade` does."""
        for each in configurations(self.documents):
            patch = [
                {
                    "op": "add",
                    "path": f"/webhooks/{i}/clientConfig/caBundle",
                    "value": base64.b64encode(bundle).decode(),
                }
                for i, _ in enumerate(each["webhooks"])
            ]
            await self.api.patch(
                configuration_resource(each["kind"].lower() + "s"), None, each["metadata"]["name"], patch, kind="json"
            )
        await heard(self.api)


def configurations(documents: list[Json]) -> list[Json]:
    return [each for each in documents if each["kind"].endswith("WebhookConfiguration")]


def rendered(namespace: str, url: str, certificates: Json) -> list[Json]:
    """Renders the objects of the webhook. Cluster roles get unique names, because tests run side by side."""
    values = {"certificates": certificates, "webhook": {"url": url, "replicas": 1}, "defaulter": {"enabled": False}}
    options = ("--no-hooks", "--api-versions", "cert-manager.io/v1")
    printed = run("template", RELEASE, str(without_schemas()), "--namespace", namespace, *options, values=values)
    found = []
    for document in yaml.load_all(printed, yaml.CSafeLoader):
        if document and document["kind"] in WANTED and "controllers" not in document["metadata"]["name"]:
            found.append(document)
            if document["kind"].startswith("ClusterRole"):
                document["metadata"]["name"] += f"-{namespace}"
            if document["kind"] == "ClusterRoleBinding":
                document["roleRef"]["name"] += f"-{namespace}"
    return found


@asynccontextmanager
async def installed(
    control_plane: StackPaths, pods: Path, certificates: Json, prepared: Callable[[Installed], Awaitable[None]]
) -> AsyncIterator[Installed]:
    """Installs the webhook. `prepared` provides the certificates."""
    async with namespace(control_plane.kubeconfig, "chart-certificates") as place:
        with Kubelet(control_plane.kubeconfig, place.namespace, pods) as kubelet:
            url = f"https://{kubelet.address('poolhouse-webhook')}"
            documents = rendered(place.namespace, url, certificates)
            known = [each for each in documents if each["kind"] in RESOURCES]
            found = Installed(place.api, place.namespace, kubelet, documents)
            try:
                await apply(place.api, copy.deepcopy(known))
                for sort in (SECRETS, SERVICES, DEPLOYMENTS):
                    for each in documents:
                        if each["kind"] == sort.kind:
                            await place.api.patch(
                                sort,
                                place.namespace,
                                each["metadata"]["name"],
                                each,
                                kind="apply",
                                field_manager="tests",
                            )
                await prepared(found)
                await heard(place.api)
                await eventually(DryRuns(place.api, place.namespace).once)
                yield found
            finally:
                for each in known:
                    if not RESOURCES[each["kind"]].namespaced:
                        with suppress(NotFound):
                            await place.api.delete(RESOURCES[each["kind"]], None, each["metadata"]["name"])


async def certificates_replaced(found: Installed, before: set[str]) -> None:
    """Waits until every Pod serves another certificate. Pods watch the Secret."""

    async def another() -> bool:
        return not before & await found.served()

    await eventually(another)


async def test_renewal_by_cert_manager_fails_no_request(control_plane: StackPaths, tmp_path: Path) -> None:
    async def prepared(found: Installed) -> None:
        manager = managers["it"] = CertManager(found.api, found.documents)
        for name in ("poolhouse-authority", "poolhouse-serving"):
            await manager.issue(name)
        await manager.inject()

    managers: dict[str, CertManager] = {}
    async with installed(control_plane, tmp_path, {"mode": "cert-manager"}, prepared) as found:
        before = await found.served()
        async with continuous_dry_runs(found.api, found.namespace) as dry_runs:
            await managers["it"].issue("poolhouse-serving")
            await certificates_replaced(found, before)
            await dry_runs.wait_for(20)
        assert dry_runs.refused == []


async def test_change_of_authority_in_the_users_secret_fails_no_request(
    control_plane: StackPaths, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    old, new = (new_ca(name, now, DAY) for name in ("old", "new"))
    secret = {"name": "mine", "caBundle": old.certificate.decode()}

    async def write(found: Installed, authority: Any, bundle: bytes) -> None:
        await write_tls_secret(
            found.api,
            found.namespace,
            "mine",
            new_server_certificate(authority, "web", ["127.0.0.1"], now, DAY),
            bundle,
        )

    async with installed(
        control_plane,
        tmp_path,
        {"mode": "secret", "secret": secret},
        lambda found: write(found, old, old.certificate),
    ) as found:
        before = await found.served()
        both = old.certificate + new.certificate
        async with continuous_dry_runs(found.api, found.namespace) as dry_runs:
            await found.publish(both)
            await write(found, new, both)
            await certificates_replaced(found, before)
            await found.publish(new.certificate)
            await dry_runs.wait_for(20)
        assert dry_runs.refused == []
