"""Says what the DataVolumes of a VM say that keep it from starting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.unstructured import Json, at

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api


async def data_volume_facts(api: Api, vm: Json | None) -> list[str]:
    """Reads with the user's rights. Nothing for a VM that no DataVolume stops."""
    from controllers.pool.data_volumes import parse_disk_state
    from controllers.shared.sources import DATA_VOLUMES
    from controllers.shared.vm import DATA_VOLUME_ERROR, parse_vm
    from poolhouse.runtime.errors import Forbidden, NotFound

    if vm is None or at(vm, "status", "printableStatus") != DATA_VOLUME_ERROR:
        return []
    found = parse_vm(vm)
    facts = []
    for name in found.disks:
        try:
            state = parse_disk_state(await api.get(DATA_VOLUMES, found.namespace, name))
        except (NotFound, Forbidden):
            continue
        if state.phase != "Succeeded":
            facts.append(f"DataVolume {name} is not ready: {state}")
    return facts
