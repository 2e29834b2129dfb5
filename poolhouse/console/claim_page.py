"""The page of a claim: its VM, how its user reaches it, and until when it is held."""

from __future__ import annotations

from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.claims import claim_row
from poolhouse.console import stream_page
from poolhouse.console.cluster_state import ClusterState, Right
from poolhouse.console.page import object_path
from poolhouse.runtime.resource import VMS

CONNECTED = ("Bound", "Ready")
"""phases in which a claim has a VM that runs"""


async def access(state: ClusterState, document: Json) -> Json:
    """What the user of the claim needs. The VM is a link if the user may see it."""
    row = claim_row(document, state.now())
    namespace, name, vm = row["namespace"], row["name"], row["vm"]
    is_virtual = bool(at(document, "status", "vmRef", "name"))
    connected = bool(vm) and row["phase"] in CONNECTED
    hidden = await state.missing_rights([Right("get", VMS)], namespace) if vm and is_virtual else frozenset()
    vm_path = object_path("vm", namespace, vm) if vm and is_virtual and not hidden else ""
    pool_path = object_path(WARM_POOL.short_name, namespace, row["pool"]) if row["pool"] else ""
    facts = (
        ("VM" if is_virtual else "EC2 instance", vm, vm_path),
        ("Address", row["address"], ""),
        ("Held until", f"{row['expires']} ({row['left']})" if row["left"] else "", ""),
        ("Requested by", row["requester"], ""),
        ("Pool", row["pool"], pool_path),
    )
    return {
        "facts": [(label, value, path) for label, value, path in facts if value],
        "streams": await stream_page.offered(state, namespace, vm) if connected and is_virtual else [],
        "ssh": f"kubectl poolhouse ssh {name} USER -n {namespace}" if row["phase"] == "Ready" else "",
    }
