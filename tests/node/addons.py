"""What every cluster has beside its nodes: cluster DNS, and the right of the API server to ask kubelets."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from poolhouse.stack.components import StackError
from tests.node.layout import Layout

OBJECTS = Path(__file__).with_name("addons.yaml")


async def install(layout: Layout) -> None:
    """Applies the objects, and waits until the nodes and the cluster DNS are ready."""
    for arguments in (
        ("apply", "--server-side", "-f", str(OBJECTS)),
        ("wait", "--for=condition=Ready", "node", *(node.name for node in layout.nodes), "--timeout=120s"),
        ("rollout", "status", "--namespace=kube-system", "daemonset/coredns", "--timeout=120s"),
    ):
        await asyncio.to_thread(_kubectl, layout, *arguments)


def _kubectl(layout: Layout, *arguments: str) -> None:
    command = ["kubectl", f"--kubeconfig={layout.paths.kubeconfig}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    if done.returncode:
        raise StackError(f"kubectl {arguments[0]} failed: {done.stderr.strip()}")
