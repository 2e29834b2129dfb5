"""Grants what a claim wishes of the machine that is its own. To do it twice does no harm: whoever is killed on the way
leaves a claim for which it is done again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from controllers.claim.personalization import beyond, labels
from controllers.claim.snapshot import Claim, Failure
from controllers.warmpool import ssh_keys
from controllers.warmpool.backends import OutcomeUnknown, WriteConflict
from controllers.warmpool.vm_backend import VMIS, VMS
from controllers.warmpool.warm_vm import WarmVM, parse_warm_vm
from runtime.api import Api
from runtime.errors import OUTCOME_UNKNOWN, ApiError, Conflict, NotFound, Throttled, Unavailable, Unreachable

Json = dict[str, Any]

PASSING = (Conflict, Throttled, Unavailable, Unreachable)
"""refusals that say nothing of what was asked for"""
SYNCHRONIZED = "AccessCredentialsSynchronized"
"""the condition of an instance with which KubeVirt says that it has given its guest's agent what Secrets have"""


@dataclass(frozen=True)
class Wishes:
    api: Api

    async def grant(self, c: Claim, m: WarmVM, *, keyed: bool, seeded: bool) -> tuple[WarmVM, tuple[Failure, ...]]:
        """The machine as it is then, and what could not be granted. `keyed` and `seeded`: it has a Secret of its own,
        and a volume of cloud-init, as far as its pool's template says. Raises Lost and Unsure, as machines do."""
        wish = c.spec.personalization
        assert wish is not None
        instance = c.status.instance_ref is not None
        refused = [*beyond(wish, c.status.launch_type or "", instance=instance, keyed=keyed, seeded=seeded)]
        try:
            if wish.labels and not instance:
                m, why = await self._label(m, dict(labels(wish)))
                refused += [why] if why is not None else []
            if wish.ssh_public_key_secret and keyed and not instance:
                why = await self._hand(m, wish.ssh_public_key_secret)
                refused += [why] if why is not None else []
        except Conflict as error:
            raise WriteConflict(str(error)) from error
        except OUTCOME_UNKNOWN as error:
            raise OutcomeUnknown(str(error)) from error
        return m, tuple(refused)

    async def _label(self, m: WarmVM, given: dict[str, str]) -> tuple[WarmVM, Failure | None]:
        """Its runs: those to come, and the present one, which takes nothing over from its VM."""
        change = {"metadata": {"uid": m.uid, "resourceVersion": m.resource_version}}
        runs = {"spec": {"template": {"metadata": {"labels": given}}}}
        try:
            changed = parse_warm_vm(await self.api.patch(VMS, m.namespace, m.name, {**change, **runs}))
            m = replace(changed, vmi=m.vmi, node=m.node)
            if m.vmi is not None:
                run = {"metadata": {"uid": m.vmi.uid, "labels": given}}
                with suppress(NotFound):  # the next one is made with them
                    await self.api.patch(VMIS, m.namespace, m.vmi.name, run)
        except PASSING:
            raise
        except ApiError as error:
            return m, Failure("LabelsRefused", f"labels: {error.message}")
        return m, None

    async def _hand(self, m: WarmVM, of_claim: str) -> Failure | None:
        name = ssh_keys.secret_name(m.name)
        try:
            own, given = await self._secret(m, name), await self._secret(m, of_claim)
            if own is None or not ssh_keys.is_of(own, m):
                lacks = "there is no" if own is None else "another's is"
                return Failure("NoSecretOfItsOwn", f"ssh key: {lacks} Secret {name}, which should be the machine's own")
            if given is None:
                return Failure("NoPublicKey", f"ssh key: there is no Secret {of_claim} in namespace {m.namespace}")
            kept, others = ssh_keys.public_keys(given.get("data") or {})
            if others or not kept:
                what = f"{', '.join(others)} in Secret {of_claim}" if others else f"Secret {of_claim}"
                return Failure("NoPublicKey", f"ssh key: {what} is no list of public keys of ssh; leave all else out")
            await self._put(own, kept)
        except PASSING:
            raise
        except ApiError as error:
            return Failure("SecretsForbidden", f"ssh key: {error.message}; see Keys in the documentation of warm pools")
        if m.vmi is None or SYNCHRONIZED not in m.vmi.holds:
            return Failure(
                "GuestNotTold",
                f"ssh key: it is in Secret {name}, but KubeVirt does not say that it tells the guest (the instance's"
                f" {SYNCHRONIZED} is not True): the guest needs qemu-guest-agent, and the access credential the"
                " propagationMethod qemuGuestAgent; the embedded engine tells no guest",
            )
        return None

    async def _secret(self, m: WarmVM, name: str) -> Json | None:
        try:
            return await self.api.get(ssh_keys.SECRETS, m.namespace, name)
        except NotFound:
            return None

    async def _put(self, own: Json, data: dict[str, str]) -> None:
        metadata = own["metadata"]
        version = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        # Null for what is in it: another try may have left it there.
        change = {"metadata": version, "data": dict.fromkeys(own.get("data") or {}) | data}
        await self.api.patch(ssh_keys.SECRETS, metadata["namespace"], metadata["name"], change)
