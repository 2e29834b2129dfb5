"""Keeps the certificate authorities of agents in a Secret of Poolhouse's namespace."""

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import Sequence

from controllers.warmpool.agent_certificates import AUTHORITY_LIFE, authority_of, renewal_due
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.errors import AlreadyExists, Conflict, Forbidden
from poolhouse.runtime.resource import SECRETS
from poolhouse.service.certificates import KeyPair, new_ca

log = logging.getLogger(__name__)

READ_SECONDS = 60.0
TRIES = 3


class AgentAuthority:
    """The authorities, which are read again after a minute. The first controller that needs an authority creates it.
    Methods raise the API server's error."""

    def __init__(self, api: Api, namespace: str = meta.NAMESPACE) -> None:
        self._api, self._namespace = api, namespace
        self._known: tuple[KeyPair, ...] = ()
        self._read_again = 0.0
        self._reading = asyncio.Lock()

    async def of(self, vm: WarmVM) -> KeyPair:
        return authority_of(await self.all(), parse_time(vm.created_at) or self._api.now())

    async def all(self) -> tuple[KeyPair, ...]:
        """The authorities that have not expired, the newest last. There is at least one."""
        async with self._reading:
            if not self._known or self._api.monotonic() >= self._read_again:
                self._known = await self._read()
                self._read_again = self._api.monotonic() + READ_SECONDS
            return self._known

    async def _read(self) -> tuple[KeyPair, ...]:
        for _ in range(TRIES):
            try:
                return await self._read_or_create()
            except (AlreadyExists, Conflict):
                continue  # Another controller was first: its authorities are read.
            except Forbidden as error:
                why = f"{error.message}. controllers.agentCertificates.enabled of the chart grants the right"
                raise Forbidden(why) from error
        raise Conflict(f"Secret {meta.AGENT_CA_SECRET} is changed all the time")

    async def _read_or_create(self) -> tuple[KeyPair, ...]:
        now = self._api.now()
        found = await find(self._api, SECRETS, self._namespace, meta.AGENT_CA_SECRET) or {}
        kept = [each for each in parse_authorities(found) if not each.validity.expired(now)]
        if not renewal_due(kept, now):
            return tuple(kept)
        kept.append(new_ca("poolhouse agents", now, AUTHORITY_LIFE))
        document = self._document(kept)
        if found:
            document["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
            await self._api.replace(SECRETS, document)
        else:
            await self._api.create(SECRETS, document)
        log.info("agents: created a certificate authority")
        return tuple(kept)

    def _document(self, authorities: Sequence[KeyPair]) -> Json:
        data: dict[str, bytes] = {}
        for each in authorities:
            data |= {f"{each.serial}.crt": each.certificate, f"{each.serial}.key": each.key}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "namespace": self._namespace,
                "name": meta.AGENT_CA_SECRET,
                "labels": {meta.PART_OF: meta.POOLHOUSE},
            },
            "type": "Opaque",
            "data": {key: b64encode(value).decode() for key, value in data.items()},
        }


def parse_authorities(secret: Json) -> list[KeyPair]:
    """The complete authorities of the Secret, sorted by age, the oldest first."""
    data = {name: b64decode(value) for name, value in (secret.get("data") or {}).items()}
    pairs = [
        KeyPair(content, data.get(f"{name.removesuffix('.crt')}.key", b""))
        for name, content in data.items()
        if name.endswith(".crt")
    ]
    return sorted((each for each in pairs if each.is_complete), key=lambda each: each.validity.start)
