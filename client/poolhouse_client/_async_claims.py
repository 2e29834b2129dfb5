"""Claims in the async client, and the VMs that they give."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ._async_objects import AsyncObjects
from .errors import AlreadyExists, ApiError, NotFound
from .failures import ClaimFailed, Stalled, describe, same_claim
from .models import VirtualMachineClaim


class AsyncClaimedVM:
    """A VM that belongs to a claim."""

    def __init__(self, claims: AsyncClaims, claim: VirtualMachineClaim) -> None:
        self._claims, self.claim = claims, claim

    @property
    def address(self) -> str:
        """The primary IP address, or an empty text if KubeVirt does not report one."""
        return next(iter(self.claim.status.addresses), "")

    @property
    def name(self) -> str:
        """Name of the VM, or ID of the EC2 instance."""
        status = self.claim.status
        if status.vm_ref is not None:
            return status.vm_ref.name
        return status.instance_ref.id if status.instance_ref is not None else ""

    async def extend(self, ttl_seconds: int) -> None:
        """Lets the VM live until `ttl_seconds` after it was bound, up to the pool's maximum. Raises ClaimFailed if the
        claim has ended or has lost its VM."""
        where = self.claim.metadata
        change = {"metadata": {"uid": where.uid}, "spec": {"ttlSeconds": ttl_seconds}}
        found = same_claim(self.claim, await self._claims.get(where.name, namespace=where.namespace))
        if found.ended or found.stalled:
            raise ClaimFailed(describe(found), found)
        self.claim = await self._claims.patch(where.name, change, namespace=where.namespace)


class AsyncClaims(AsyncObjects[VirtualMachineClaim]):
    @asynccontextmanager
    async def claim(
        self,
        pool: str | None = None,
        *,
        name: str = "",
        namespace: str | None = None,
        timeout_seconds: float = 120.0,
        **spec: Any,
    ) -> AsyncIterator[AsyncClaimedVM]:
        """Claims a VM of a warm pool, or of the namespace's default pool, and deletes the claim and the VM at the end
        of the block, also after an exception. `spec` has other fields of the claim's spec: `ttl_seconds=3600`.

        Give `ttl_seconds`, or a pool with `defaultTTLSeconds`: a program that is killed cannot delete its claim. Raises
        ClaimFailed with the reason if there is no VM, and DeadlineExceeded."""
        wanted = {**({"pool_name": pool} if pool else {}), **spec}
        new = VirtualMachineClaim.new(name or f"{pool or 'claim'}-{secrets.token_hex(5)}", spec=wanted)
        new.metadata.namespace = namespace or self._client.namespace
        created = await self._created(new) if name else await self._created_once(new)
        try:
            yield AsyncClaimedVM(self, await self._handed_over(created, timeout_seconds))
        except BaseException as error:
            try:
                await self._release(created)
            except ApiError as failure:
                error.add_note(f"the claim {created.name} was not deleted: {failure}")
            raise
        await self._release(created)

    async def _created(self, new: VirtualMachineClaim) -> VirtualMachineClaim:
        return await self.create(new, repeatable=False)

    async def _created_once(self, new: VirtualMachineClaim) -> VirtualMachineClaim:
        """Creates a claim with a unique name. A claim of this name is this claim, created by a request without an
        answer; therefore it is deleted after an error too."""
        try:
            try:
                return await self.create(new, repeatable=True)
            except AlreadyExists:
                return await self.get(new.name, namespace=new.metadata.namespace)
        except BaseException as error:
            try:
                await self.delete(new.name, namespace=new.metadata.namespace, missing_ok=True)
            except ApiError as failure:
                error.add_note(f"the claim {new.name} may exist: {failure}")
            raise

    async def _handed_over(self, claim: VirtualMachineClaim, timeout_seconds: float) -> VirtualMachineClaim:
        name, namespace = claim.name, claim.metadata.namespace
        try:
            found = await self.wait_ready(name, timeout_seconds=timeout_seconds, namespace=namespace)
            return same_claim(claim, found)
        except Stalled as error:
            raise ClaimFailed(str(error), error.found) from error
        except NotFound as error:
            raise ClaimFailed(f"the claim {namespace}/{name} was deleted", claim) from error

    async def _release(self, claim: VirtualMachineClaim) -> None:
        where = claim.metadata
        await self.delete(where.name, namespace=where.namespace, uid=where.uid, missing_ok=True)
