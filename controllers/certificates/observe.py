"""Reads the certificates and CA bundles from Secrets and webhook configurations."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.manifests import webhooks
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import SECRETS, Resource
from poolhouse.service.certificates import KeyPair, PublishedCA, split_pem


@dataclass(frozen=True)
class CertificatePolicy:
    hosts: tuple[str, ...]
    certificate_life: timedelta = timedelta(days=7)
    ca_life: timedelta = timedelta(days=365)
    propagation: timedelta = timedelta(seconds=30)
    """Time until every API server uses a new CA bundle."""


@dataclass(frozen=True)
class CertificateSnapshot:
    """The resourceVersions are those of the objects that a step writes, or None for objects that do not exist."""

    cas: tuple[PublishedCA, ...] = ()
    """Sorted by age, the oldest first."""
    cas_version: str | None = None
    certificate: KeyPair | None = None
    """None if the certificate is missing or damaged."""
    bundle: tuple[bytes, ...] = ()
    """The certificates that clients of the servers trust: `ca.crt` of the serving Secret."""
    certificate_version: str | None = None
    configurations: tuple[WebhookConfiguration, ...] = ()


@dataclass(frozen=True)
class WebhookConfiguration:
    plural: str
    name: str
    version: str
    bundles: tuple[bytes, ...]


log = logging.getLogger(__name__)

CERTIFICATE, KEY, BUNDLE = "tls.crt", "tls.key", "ca.crt"


async def observe(api: Api, namespace: str) -> CertificateSnapshot:
    """Reads the configurations before the CAs. If another controller publishes a newer bundle in between, the write of
    the older bundle is a conflict."""
    configurations = [await _configuration(api, plural, name) for plural, name in webhooks.configuration_names()]
    cas = await find(api, SECRETS, namespace, meta.CA_SECRET)
    return _snapshot(configurations, cas, await find(api, SECRETS, namespace, meta.SERVING_SECRET))


class CertificateStores:
    """The objects that hold certificates and CA bundles, as list-and-watch shows them. `changed` is set after each
    change."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.changed = asyncio.Event()
        self._configurations = {
            (plural, name): Informer(
                api, configuration_resource(plural), partial(_parse_configuration, plural), name=name
            )
            for plural, name in webhooks.configuration_names()
        }
        self._secrets = {
            name: Informer(api, SECRETS, _keep_secret, namespace=namespace, name=name)
            for name in (meta.CA_SECRET, meta.SERVING_SECRET)
        }
        self._namespace = namespace
        for informer in self.informers:
            informer.subscribe(lambda old, new: self.changed.set())

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (*self._configurations.values(), *self._secrets.values())

    def snapshot(self) -> CertificateSnapshot:
        secrets = {name: each.store.get((self._namespace, name)) for name, each in self._secrets.items()}
        configurations = [each.store.get(("", name)) for (_, name), each in self._configurations.items()]
        return _snapshot(configurations, secrets[meta.CA_SECRET], secrets[meta.SERVING_SECRET])


def _informer(api: Api, plural: str, name: str) -> Informer[WebhookConfiguration]:
    return Informer(api, configuration_resource(plural), partial(_parse_configuration, plural), name=name)


def _keep_secret(secret: Json) -> Json:
    version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
    return {"metadata": version, "data": secret.get("data") or {}}


def _snapshot(
    configurations: Iterable[WebhookConfiguration | None], cas: Json | None, serving: Json | None
) -> CertificateSnapshot:
    data = _data(serving)
    certificate = KeyPair(data.get(CERTIFICATE, b""), data.get(KEY, b""))
    return CertificateSnapshot(
        cas=_cas(_data(cas)),
        cas_version=_version(cas),
        certificate=certificate if certificate.is_complete else None,
        bundle=split_pem(data.get(BUNDLE, b"")),
        certificate_version=_version(serving),
        configurations=tuple(each for each in configurations if each is not None),
    )


def configuration_resource(plural: str) -> Resource:
    return Resource("admissionregistration.k8s.io", "v1", plural, "", namespaced=False)


async def _configuration(api: Api, plural: str, name: str) -> WebhookConfiguration | None:
    """None for a configuration that an administrator deleted to disable admission. No controller restores it."""
    found = await find(api, configuration_resource(plural), None, name)
    return _parse_configuration(plural, found) if found is not None else None


def _parse_configuration(plural: str, document: Json) -> WebhookConfiguration:
    bundles = tuple(_decoded(each["clientConfig"].get("caBundle") or "") for each in document.get("webhooks") or ())
    return WebhookConfiguration(plural, document["metadata"]["name"], document["metadata"]["resourceVersion"], bundles)


def _version(secret: Json | None) -> str | None:
    return secret["metadata"]["resourceVersion"] if secret else None


def _data(secret: Json | None) -> dict[str, bytes]:
    return {name: _decoded(text) for name, text in ((secret or {}).get("data") or {}).items()}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""


def _cas(data: Mapping[str, bytes]) -> tuple[PublishedCA, ...]:
    """Omits damaged entries, so that the plan replaces them."""
    found = []
    for name in sorted(name.removesuffix(".crt") for name in data if name.endswith(".crt")):
        pair = KeyPair(data[f"{name}.crt"], data.get(f"{name}.key", b""))
        if pair.is_complete:
            found.append(PublishedCA(pair, _time(data.get(f"{name}.published", b""))))
        else:
            log.warning("certificates: entry %s of Secret %s is damaged and is ignored", name, meta.CA_SECRET)
    return tuple(found)


def _time(text: bytes) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
