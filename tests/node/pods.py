"""Looks at the pods of Poolhouse and runs Python inside of them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import PODS
from tests.charts.helm import NAMESPACE
from tests.node.layout import Layout

Json = dict[str, Any]

PYTHON = "/opt/poolhouse/bin/python"
EXEC_SECONDS = 60


@dataclass(frozen=True)
class Pod:
    name: str
    uid: str
    component: str
    node: str
    address: str
    ready: bool
    restarts: int

    @classmethod
    def of(cls, document: Json) -> Pod:
        metadata, status = document["metadata"], document["status"]
        return cls(
            metadata["name"],
            metadata["uid"],
            metadata.get("labels", {}).get("app.kubernetes.io/component", ""),
            document["spec"].get("nodeName", ""),
            status.get("podIP", ""),
            any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ()),
            sum(each["restartCount"] for each in status.get("containerStatuses") or ()),
        )


async def pods(api: Api, component: str = "", namespace: str = NAMESPACE) -> list[Pod]:
    """The pods that are not terminating, sorted by name."""
    items, _ = await api.list(PODS, namespace)
    found = [Pod.of(each) for each in items if "deletionTimestamp" not in each["metadata"]]
    return sorted((pod for pod in found if component in ("", pod.component)), key=lambda pod: pod.name)


async def run_python(layout: Layout, pod: str, code: str, *arguments: str, namespace: str = NAMESPACE) -> Any:
    """Runs code in a pod of one of Poolhouse's images. Returns the JSON that it prints."""
    command = ["kubectl", f"--kubeconfig={layout.paths.kubeconfig}", "exec", f"--namespace={namespace}", pod]
    command += ["--", PYTHON, "-c", code, *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=EXEC_SECONDS, check=False
    )
    assert done.returncode == 0, f"{pod}: {done.stderr}"
    return json.loads(done.stdout)


CONNECT = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor

def connects(target):
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=4).close()
    except TimeoutError:
        return False
    return True

targets = sys.argv[1:]
with ThreadPoolExecutor(len(targets)) as threads:
    print(json.dumps(dict(zip(targets, threads.map(connects, targets)))))
"""


async def connections(layout: Layout, pod: str, targets: Sequence[str], namespace: str = NAMESPACE) -> dict[str, bool]:
    """Whether the pod can connect to each HOST:PORT. Filtered packets get no answer."""
    found: dict[str, bool] = await run_python(layout, pod, CONNECT, *targets, namespace=namespace)
    return found
