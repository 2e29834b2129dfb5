"""Checks whether the CRD of a kind is Poolhouse's, because KubeVirt may have installed its own."""

import logging
from typing import Literal

from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.meta import is_installed_by_us
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import CRDS

log = logging.getLogger(__name__)


Owner = Literal["ours", "foreign", "absent"]
MESSAGES: dict[Owner, str] = {
    "ours": "the CRD %s is Poolhouse's: the controller works",
    "foreign": "the CRD %s is not Poolhouse's: the controller does nothing",
    "absent": "the CRD %s is not installed: the controller waits for it",
}


class OwnCRD:
    """Checks whether the CRD of a kind is Poolhouse's. Two controllers of one object would both create its VMs."""

    def __init__(self, api: Api, kind: Kind) -> None:
        self._api, self._name = api, kind.crd_name
        self._known: Owner | None = None

    async def check(self) -> bool | None:
        try:
            owner: Owner = "ours" if is_installed_by_us(await self._api.get(CRDS, None, self._name)) else "foreign"
        except NotFound:
            owner = "absent"
        except ApiError as error:
            log.warning("cannot read the CRD %s: %s", self._name, error)
            return None
        if owner != self._known:
            self._known = owner
            log.info(MESSAGES[owner], self._name)
        return owner == "ours"
