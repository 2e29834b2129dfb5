"""Reading the Secrets and the webhook configurations."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from controllers.certificates.state import State, Trusting
from kinds import meta
from manifests import webhooks
from runtime.api import Api
from runtime.errors import NotFound
from runtime.resource import Resource
from service.certificates import KeyPair, PublishedCA, split_pem

log = logging.getLogger(__name__)

Json = dict[str, Any]

SECRETS = Resource("", "v1", "secrets", "Secret")
CERTIFICATE, KEY, BUNDLE = "tls.crt", "tls.key", "ca.crt"


async def observe(api: Api, namespace: str) -> State:
    """The configurations are read before the authorities: who has published a newer bundle since then has changed
    the configuration, and our older one meets a conflict."""
    trusting = [await _trusting(api, plural, name) for plural, name in webhooks.configuration_names()]
    authorities = await _secret(api, namespace, meta.CA_SECRET)
    serving = await _secret(api, namespace, meta.SERVING_SECRET)
    data = _data(serving)
    leaf = KeyPair(data.get(CERTIFICATE, b""), data.get(KEY, b""))
    return State(
        authorities=_authorities(_data(authorities)),
        authorities_version=_version(authorities),
        leaf=leaf if leaf.is_complete else None,
        leaf_bundle=split_pem(data.get(BUNDLE, b"")),
        leaf_version=_version(serving),
        trusting=tuple(found for found in trusting if found is not None),
    )


def resource(plural: str) -> Resource:
    return Resource("admissionregistration.k8s.io", "v1", plural, "", namespaced=False)


async def _trusting(api: Api, plural: str, name: str) -> Trusting | None:
    """None where somebody has switched admission off: nothing of ours brings it back."""
    try:
        found = await api.get(resource(plural), None, name)
    except NotFound:
        return None
    bundles = tuple(_decoded(each["clientConfig"].get("caBundle") or "") for each in found.get("webhooks") or ())
    return Trusting(plural, name, found["metadata"]["resourceVersion"], bundles)


async def _secret(api: Api, namespace: str, name: str) -> Json | None:
    try:
        return await api.get(SECRETS, namespace, name)
    except NotFound:
        return None


def _version(secret: Json | None) -> str | None:
    return secret["metadata"]["resourceVersion"] if secret else None


def _data(secret: Json | None) -> dict[str, bytes]:
    return {name: _decoded(text) for name, text in ((secret or {}).get("data") or {}).items()}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""


def _authorities(data: Mapping[str, bytes]) -> tuple[PublishedCA, ...]:
    """What somebody has garbled is left out, and so is replaced."""
    found = []
    for name in sorted(name.removesuffix(".crt") for name in data if name.endswith(".crt")):
        pair = KeyPair(data[f"{name}.crt"], data.get(f"{name}.key", b""))
        if pair.is_complete:
            found.append(PublishedCA(pair, _moment(data.get(f"{name}.published", b""))))
        else:
            log.warning("certificates: %s of Secret %s is no authority; it is left out", name, meta.CA_SECRET)
    return tuple(found)


def _moment(text: bytes) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
