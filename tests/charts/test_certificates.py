"""Certificates that somebody else keeps: cert-manager, or the user. The chart's webhook runs with its own rights on a
real API server, and not one admission is refused while what it shows is replaced.
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
from local.install import RESOURCES, apply
from local.paths import StackPaths
from runtime.api import Api
from runtime.errors import NotFound
from service.certificates import new_ca, new_server_certificate
from tests.charts.asking import Asked, asking
from tests.charts.cert_manager import CertManager, keep
from tests.charts.helm import CHART, RELEASE, run
from tests.charts.kubelet import DEPLOYMENTS, SERVICES, Kubelet
from tests.cluster.heard import heard
from tests.cluster.pooling import namespace
from tests.waiting import eventually

Json = dict[str, Any]

DAY = timedelta(days=1)
WANTED = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Deployment", "Service"}
WANTED |= {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Certificate", "Issuer"}


@dataclass
class Installed:
    api: Api
    namespace: str
    kubelet: Kubelet
    documents: list[Json]

    async def shown(self) -> set[str]:
        """What the pods show."""
        ports = [pod.port for pod in self.kubelet.pods("poolhouse-webhook")]
        return {await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port)) for port in ports}

    async def published(self, bundle: bytes) -> None:
        """As `helm upgrade` with another caBundle would."""
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
    """The webhook's part of the chart, with names of its own where the cluster has one for all."""
    values = {"certificates": certificates, "webhook": {"url": url, "replicas": 1}, "defaulter": {"enabled": False}}
    options = ("--no-hooks", "--api-versions", "cert-manager.io/v1")
    printed = run("template", RELEASE, str(CHART), "--namespace", namespace, *options, values=values)
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
    """`prepared` is what somebody has to have done before admission works."""
    async with namespace(control_plane.kubeconfig, "chart-certificates") as place:
        with Kubelet(control_plane.kubeconfig, place.namespace, pods) as kubelet:
            url = f"https://{kubelet.address('poolhouse-webhook')}"
            documents = rendered(place.namespace, url, certificates)
            known = [each for each in documents if each["kind"] in RESOURCES]
            found = Installed(place.api, place.namespace, kubelet, documents)
            try:
                await apply(place.api, copy.deepcopy(known))
                for sort in (SERVICES, DEPLOYMENTS):
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
                await eventually(Asked(place.api, place.namespace).once)
                yield found
            finally:
                for each in known:
                    if not RESOURCES[each["kind"]].namespaced:
                        with suppress(NotFound):
                            await place.api.delete(RESOURCES[each["kind"]], None, each["metadata"]["name"])


async def turned(found: Installed, before: set[str]) -> None:
    """Every pod shows another certificate: the Secret is fetched every ten seconds, its files looked at every two."""

    async def another() -> bool:
        return not before & await found.shown()

    await eventually(another)


async def test_a_certificate_of_cert_managers_is_renewed_and_nobody_refused(
    control_plane: StackPaths, tmp_path: Path
) -> None:
    async def prepared(found: Installed) -> None:
        manager = managers["it"] = CertManager(found.api, found.documents)
        for name in ("poolhouse-authority", "poolhouse-serving"):
            await manager.issue(name)
        await manager.inject()

    managers: dict[str, CertManager] = {}
    async with installed(control_plane, tmp_path, {"mode": "cert-manager"}, prepared) as found:
        before = await found.shown()
        async with asking(found.api, found.namespace) as asked:
            await managers["it"].issue("poolhouse-serving")
            await turned(found, before)
            await asked.more(20)
        assert asked.refused == []


async def test_a_secret_of_yours_gets_another_authority_and_nobody_is_refused(
    control_plane: StackPaths, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    old, new = (new_ca(name, now, DAY) for name in ("old", "new"))
    secret = {"name": "mine", "caBundle": old.certificate.decode()}

    async def kept(found: Installed, authority: Any, bundle: bytes) -> None:
        await keep(
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
        lambda found: kept(found, old, old.certificate),
    ) as found:
        before = await found.shown()
        both = old.certificate + new.certificate
        async with asking(found.api, found.namespace) as asked:
            await found.published(both)
            await kept(found, new, both)
            await turned(found, before)
            await found.published(new.certificate)
            await asked.more(20)
        assert asked.refused == []
