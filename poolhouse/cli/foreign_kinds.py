"""Refuses to speak for the controller of another project, which serves a kind of the same name.

KubeVirt has VirtualMachineInstanceReplicaSets of its own. Where it has installed them, its controller decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse.api.kinds.meta import POOLHOUSE
from poolhouse.api.kinds.resource_types import REPLICA_SETS
from poolhouse.cli.output import Failed

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api


async def refuse_foreign_replica_sets(api: Api) -> None:
    """Raises `Failed` if the replica sets of this cluster are KubeVirt's. Discovery, which every user may read, has the
    categories of a kind, and all kinds of Poolhouse are in the category `poolhouse`."""
    from poolhouse.runtime.errors import NotFound

    try:
        served = await api.request("GET", f"/apis/{REPLICA_SETS.api_version}")
    except NotFound:
        return  # no kind of the group is installed
    found = next((each for each in served.get("resources") or () if each.get("name") == REPLICA_SETS.plural), None)
    if found is not None and POOLHOUSE not in (found.get("categories") or ()):
        raise Failed(
            f"{REPLICA_SETS.plural}.{REPLICA_SETS.group} is KubeVirt's in this cluster: its own controller decides, and"
            " Poolhouse cannot say what it does or will do"
        )
