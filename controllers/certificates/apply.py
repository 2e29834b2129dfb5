"""The steps, each one write that fails if what it was decided upon has changed since."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from controllers.certificates import observe
from controllers.certificates.plan import Accompany, AddAuthority, CountAsPublished, Publish, Sign, Step
from controllers.certificates.state import State, Terms
from kinds import meta
from runtime.api import Api
from service.certificates import KeyPair, PublishedCA, new_ca, new_server_certificate

log = logging.getLogger(__name__)

Json = dict[str, Any]


class Apply:
    def __init__(self, api: Api, namespace: str, terms: Terms) -> None:
        self._api = api
        self._namespace = namespace
        self._terms = terms

    async def apply(self, step: Step, state: State, now: datetime) -> None:
        """Raises Conflict or AlreadyExists when somebody else was faster."""
        match step:
            case AddAuthority(keep, reason):
                pair = new_ca("poolhouse", now, self._terms.authority_life)
                await self._write_authorities([*keep, PublishedCA(pair)], state)
                log.info("certificates: a new authority, for %s", reason)
            case Publish(where, bundle):
                await self._publish(where.plural, where.name, where.version, len(where.bundles), bundle)
                log.info("certificates: %s is told whom to trust", where.name)
            case CountAsPublished(authorities):
                published = [replace(trusted, published=trusted.published or now) for trusted in authorities]
                await self._write_authorities(published, state)
            case Sign(authority, bundle, reason):
                leaf = new_server_certificate(
                    authority, self._terms.hosts[0], self._terms.hosts, now, self._terms.leaf_life
                )
                await self._write_leaf(leaf, bundle, state)
                log.info("certificates: a new one for %s: %s", ", ".join(self._terms.hosts), reason)
            case Accompany(leaf, bundle):
                await self._write_leaf(leaf, bundle, state)

    async def _write_authorities(self, authorities: Sequence[PublishedCA], state: State) -> None:
        data: dict[str, bytes] = {}
        for trusted in authorities:
            name = f"{trusted.pair.validity.start.astimezone(UTC):%Y%m%dT%H%M%S}-{trusted.pair.serial}"
            data |= {f"{name}.crt": trusted.pair.certificate, f"{name}.key": trusted.pair.key}
            if trusted.published is not None:
                data[f"{name}.published"] = trusted.published.isoformat().encode()
        await self._write(meta.CA_SECRET, "Opaque", data, state.authorities_version)

    async def _write_leaf(self, leaf: KeyPair, bundle: bytes, state: State) -> None:
        data = {observe.CERTIFICATE: leaf.certificate, observe.KEY: leaf.key, observe.BUNDLE: bundle}
        await self._write(meta.SERVING_SECRET, "kubernetes.io/tls", data, state.leaf_version)

    async def _write(self, name: str, form: str, data: Mapping[str, bytes], version: str | None) -> None:
        secret: Json = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": self._namespace, "name": name, "labels": {meta.PART_OF: meta.POOLHOUSE}},
            "type": form,
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }
        if version is None:
            await self._api.create(observe.SECRETS, secret)
        else:
            secret["metadata"]["resourceVersion"] = version
            await self._api.replace(observe.SECRETS, secret)

    async def _publish(self, plural: str, name: str, version: str, webhooks: int, bundle: bytes) -> None:
        text = base64.b64encode(bundle).decode()
        await self._api.patch(
            observe.resource(plural),
            None,
            name,
            [
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                *(
                    {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": text}
                    for index in range(webhooks)
                ),
            ],
            kind="json",
            field_manager="poolhouse-certificates",
        )
