"""A substitute for cert-manager: it signs the chart's Certificates and injects the authority into webhooks.

It reads fields as cert-manager does: `dnsNames` must not contain addresses.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from controllers.certificates.observe import configuration_resource
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import SECRETS
from poolhouse.service.certificates import KeyPair, new_ca, new_server_certificate

Json = dict[str, Any]

INJECT = "cert-manager.io/inject-ca-from"


class CertManager:
    def __init__(self, api: Api, documents: Sequence[Json]) -> None:
        self._api = api
        self._certificates = {e["metadata"]["name"]: e for e in documents if e["kind"] == "Certificate"}
        self._issuers = {e["metadata"]["name"]: e["spec"] for e in documents if e["kind"] == "Issuer"}
        self._configurations = [e for e in documents if e["kind"].endswith("WebhookConfiguration")]
        self._authorities: dict[str, KeyPair] = {}

    async def issue(self, name: str) -> None:
        """Creates or renews the Secret of this Certificate."""
        certificate = self._certificates[name]
        spec = certificate["spec"]
        now, validity = datetime.now(UTC), timedelta(hours=int(spec["duration"].removesuffix("h")))
        if spec.get("isCA"):
            assert self._issuers[spec["issuerRef"]["name"]] == {"selfSigned": {}}
            self._authorities[spec["secretName"]] = pair = new_ca(spec["commonName"], now, validity)
            authority = pair
        else:
            authority = self._authorities[self._issuers[spec["issuerRef"]["name"]]["ca"]["secretName"]]
            assert not any(_is_address(name) for name in spec["dnsNames"])
            pair = new_server_certificate(
                authority, "poolhouse", [*spec["dnsNames"], *spec.get("ipAddresses", ())], now, validity
            )
        namespace = certificate["metadata"]["namespace"]
        await write_tls_secret(self._api, namespace, spec["secretName"], pair, authority.certificate)

    async def inject(self) -> None:
        for configuration in self._configurations:
            namespace, _, name = configuration["metadata"]["annotations"][INJECT].partition("/")
            secret = await self._api.get(SECRETS, namespace, self._certificates[name]["spec"]["secretName"])
            plural = configuration["kind"].lower() + "s"
            patch = [
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": secret["data"]["ca.crt"]}
                for index in range(len(configuration["webhooks"]))
            ]
            await self._api.patch(
                configuration_resource(plural), None, configuration["metadata"]["name"], patch, kind="json"
            )


async def write_tls_secret(api: Api, namespace: str, name: str, pair: KeyPair, bundle: bytes) -> None:
    data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": bundle}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
    with suppress(NotFound):
        await api.replace(SECRETS, secret)
        return
    await api.create(SECRETS, secret)


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False
