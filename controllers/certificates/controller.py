"""Reconciles the certificates in steps of one write, when an object or the time asks for one.

A write fails if the object has changed since the read.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from controllers.certificates.observe import (
    BUNDLE,
    CERTIFICATE,
    KEY,
    CertificatePolicy,
    CertificateSnapshot,
    CertificateStores,
    WebhookConfiguration,
    configuration_resource,
    observe,
)
from controllers.certificates.plan import (
    AddCA,
    IssueCertificate,
    MarkPublished,
    PublishBundle,
    Step,
    UpdateBundle,
    plan,
)
from controllers.shared.component import Component
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, ApiError, Conflict, Invalid
from poolhouse.runtime.resource import SECRETS
from poolhouse.service.certificates import KeyPair, PublishedCA, new_ca, new_server_certificate

log = logging.getLogger(__name__)


class CertificateWriter:
    def __init__(self, api: Api, namespace: str, policy: CertificatePolicy) -> None:
        self._api = api
        self._namespace = namespace
        self._policy = policy

    async def apply(self, step: Step, snapshot: CertificateSnapshot, now: datetime) -> None:
        """Executes the step. Raises Conflict, AlreadyExists or Invalid if another client was first."""
        match step:
            case AddCA(keep, reason):
                pair = new_ca("poolhouse", now, self._policy.ca_life)
                await self._write_cas([*keep, PublishedCA(pair)], snapshot)
                log.info("certificates: created a certificate authority: %s", reason)
            case PublishBundle(configuration, bundle):
                await self._publish(configuration, bundle)
                log.info("certificates: wrote the CA bundle of %s", configuration.name)
            case MarkPublished(cas):
                published = [replace(ca, published=ca.published or now) for ca in cas]
                await self._write_cas(published, snapshot)
            case IssueCertificate(ca, bundle, reason):
                certificate = new_server_certificate(
                    ca, self._policy.hosts[0], self._policy.hosts, now, self._policy.certificate_life
                )
                await self._write_certificate(certificate, bundle, snapshot)
                log.info("certificates: issued a certificate for %s: %s", ", ".join(self._policy.hosts), reason)
            case UpdateBundle(certificate, bundle):
                await self._write_certificate(certificate, bundle, snapshot)

    async def _write_cas(self, cas: Sequence[PublishedCA], snapshot: CertificateSnapshot) -> None:
        data: dict[str, bytes] = {}
        for ca in cas:
            name = f"{ca.pair.validity.start.astimezone(UTC):%Y%m%dT%H%M%S}-{ca.pair.serial}"
            data |= {f"{name}.crt": ca.pair.certificate, f"{name}.key": ca.pair.key}
            if ca.published is not None:
                data[f"{name}.published"] = ca.published.isoformat().encode()
        await self._write(meta.CA_SECRET, "Opaque", data, snapshot.cas_version)

    async def _write_certificate(self, pair: KeyPair, bundle: bytes, snapshot: CertificateSnapshot) -> None:
        data = {CERTIFICATE: pair.certificate, KEY: pair.key, BUNDLE: bundle}
        await self._write(meta.SERVING_SECRET, "kubernetes.io/tls", data, snapshot.certificate_version)

    async def _write(self, name: str, type: str, data: Mapping[str, bytes], version: str | None) -> None:
        secret: Json = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": self._namespace, "name": name, "labels": {meta.PART_OF: meta.POOLHOUSE}},
            "type": type,
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }
        if version is None:
            await self._api.create(SECRETS, secret)
        else:
            secret["metadata"]["resourceVersion"] = version
            await self._api.replace(SECRETS, secret)

    async def _publish(self, configuration: WebhookConfiguration, bundle: bytes) -> None:
        text = base64.b64encode(bundle).decode()
        await self._api.patch(
            configuration_resource(configuration.plural),
            None,
            configuration.name,
            [
                {"op": "test", "path": "/metadata/resourceVersion", "value": configuration.version},
                *(
                    {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": text}
                    for index in range(len(configuration.bundles))
                ),
            ],
            kind="json",
            field_manager="poolhouse-certificates",
        )


PERIOD_SECONDS = 5.0
"""How often the time is compared with the certificates, which needs no request."""
PAUSE_SECONDS = 1.0
"""Time after a step in which the stores get its events, and pause of a step that fails."""
MAX_STEPS = 12


class CertificateController:
    def __init__(self, api: Api, namespace: str, policy: CertificatePolicy, now: Callable[[], datetime]) -> None:
        self._api = api
        self._namespace = namespace
        self._policy = policy
        self._now = now
        self._writer = CertificateWriter(api, namespace, policy)
        self._stores = CertificateStores(api, namespace)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self._stores.informers:
                group.create_task(informer.run(), name=f"certificates-{informer.name}")
            for informer in self._stores.informers:
                await informer.synced()
            while True:
                self._stores.changed.clear()
                # The stores only say whether there is a step. The step itself starts from the present objects.
                if plan(self._stores.snapshot(), self._now(), self._policy) is not None:
                    await self._try_to_reconcile()
                    await asyncio.sleep(PAUSE_SECONDS)
                with suppress(TimeoutError):
                    async with asyncio.timeout(PERIOD_SECONDS):
                        await self._stores.changed.wait()

    async def _try_to_reconcile(self) -> None:
        try:
            await self.reconcile()
        except ApiError as error:
            log.warning("certificates: cannot reconcile: %s", error)

    async def reconcile(self) -> int:
        """Executes all steps that are possible now, and returns their number."""
        for taken in range(MAX_STEPS):
            snapshot, now = await observe(self._api, self._namespace), self._now()
            step = plan(snapshot, now, self._policy)
            if step is None:
                return taken
            try:
                await self._writer.apply(step, snapshot, now)
            except (Conflict, AlreadyExists, Invalid) as error:
                # The API server sends Invalid for a JSON patch whose `test` fails.
                log.info("certificates: another controller was first: %s", error)
        return MAX_STEPS


def build(api: Api, namespace: str, policy: CertificatePolicy) -> Component:
    return Component("certificates", (), CertificateController(api, namespace, policy, api.now).run)
