"""The pages of a VM's serial console and screen, and the links to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.console.page import Page, Part, Query, object_path
from poolhouse.console.vm_stream import LABELS, right

if TYPE_CHECKING:
    from poolhouse.console.cluster_state import ClusterState
    from poolhouse.console.context import Context

SCRIPTS: Mapping[str, Sequence[str]] = {"console": ("serial.js",), "vnc": ("screen.js",)}
STYLES: Mapping[str, Sequence[str]] = {"console": ("xterm.css",), "vnc": ()}


async def links(state: ClusterState, namespace: str, name: str) -> list[Json]:
    """The link to each stream of a VM that runs, and which right the user lacks for it."""
    return [] if state.pools.vmis.get((namespace, name)) is None else await offered(state, namespace, name)


async def offered(state: ClusterState, namespace: str, name: str) -> list[Json]:
    """The links of a VM that runs. The caller knows that it does, for example from the claim of the user."""
    missing = await state.missing_rights(map(right, LABELS), namespace)
    return [
        {
            "label": label,
            "path": object_path(stream, namespace, name),
            "missing": str(right(stream)) if right(stream) in missing else "",
        }
        for stream, label in LABELS.items()
    ]


async def stream_page(context: Context, query: Query, stream: str, namespace: str, name: str) -> Page:
    values = {
        "stream": stream,
        "label": LABELS[stream],
        "namespace": namespace,
        "name": name,
        "url": f"/stream{object_path(stream, namespace, name)}",
        "back": object_path("vm" if context.state.pools.vms.get((namespace, name)) else "vmi", namespace, name),
    }
    return Page(
        f"{LABELS[stream]} of {name}",
        [Part("stream", "stream.html", values)],
        live=False,
        scripts=SCRIPTS[stream],
        styles=STYLES[stream],
    )
