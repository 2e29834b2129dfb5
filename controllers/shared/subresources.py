"""Asks KubeVirt to start, stop, restart, pause or unpause a VM, and counts its refusals."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Conflict, Invalid, NotFound, Throttled, Unreachable
from poolhouse.runtime.resource import VMIS, VMS, Resource

Verb = Literal["start", "stop", "restart", "pause", "unpause"]

_VMS = Resource("subresources.kubevirt.io", "v1", VMS.plural, VMS.kind)
_VMIS = Resource("subresources.kubevirt.io", "v1", VMIS.plural, VMIS.kind)

RESOURCES: Mapping[Verb, Resource] = {
    "start": _VMS,
    "stop": _VMS,
    "restart": _VMS,
    "pause": _VMIS,
    "unpause": _VMIS,
}
"""KubeVirt serves `pause` and `unpause` for VMIs only, and the other verbs for VMs only."""

REPEATED_TIMES = 3
REPEATED_SECONDS = 20.0
"""A refusal is reported after this time. KubeVirt needs a few seconds to show a pause or a stop in the status of a VMI,
and refuses a second request in that time."""


class RepeatedlyRefused(Invalid):
    """A Conflict or NotFound that did not pass: KubeVirt has refused the same request several times in a row."""


@dataclass(frozen=True)
class _Refusals:
    verb: Verb
    since: float
    count: int
    error: ApiError


@dataclass
class Subresources:
    """Puts subresources, with a memory of the refusals of each VM in a row."""

    api: Api
    clock: Callable[[], float]
    _refused: dict[str, _Refusals] = field(default_factory=dict)
    """The key is the UID of the VM or VMI."""

    def sharing_refusals(self, api: Api) -> "Subresources":
        """The same memory with another client."""
        return Subresources(api, self.clock, self._refused)

    async def put(self, verb: Verb, namespace: str, name: str, uid: str) -> None:
        """Raises ApiError if KubeVirt refuses the request. A Conflict or NotFound that KubeVirt has answered at least
        `REPEATED_TIMES` times during `REPEATED_SECONDS` raises `RepeatedlyRefused`. `uid` is that of the VM or VMI."""
        try:
            await self.api.put_subresource(RESOURCES[verb], namespace, name, verb)
        except (Throttled, Unreachable):
            raise
        except ApiError as error:
            if self._count(verb, uid, error) and isinstance(error, Conflict | NotFound):
                raise RepeatedlyRefused(
                    error.message, status=error.status, reason=error.reason, details=error.details, call=error.call
                ) from error
            raise
        self._refused.pop(uid, None)

    def refusal(self, uids: Iterable[str]) -> str:
        """KubeVirt's answer to a request that it refuses repeatedly for one of these VMs, or ""."""
        found = (self._refused.get(uid) for uid in uids)
        repeated = [each for each in found if each is not None and self._is_repeated(each)]
        return str(max(repeated, key=lambda each: each.count).error) if repeated else ""

    def forget(self, uid: str) -> None:
        self._refused.pop(uid, None)

    def _count(self, verb: Verb, uid: str, error: ApiError) -> bool:
        before = self._refused.get(uid)
        if before is None or before.verb != verb:
            before = _Refusals(verb, self.clock(), 0, error)
        refusals = self._refused[uid] = replace(before, count=before.count + 1, error=error)
        return self._is_repeated(refusals)

    def _is_repeated(self, refusals: _Refusals) -> bool:
        return refusals.count >= REPEATED_TIMES and self.clock() - refusals.since >= REPEATED_SECONDS
