"""Poolhouse on the cluster under test: upgraded, uninstalled, and installed again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

import pytest

from poolhouse.manifests.webhooks import configurations
from poolhouse.runtime.api import Api
from poolhouse.stack.install import RESOURCES, apply, remove_webhooks
from poolhouse.stack.paths import StackPaths
from poolhouse.stack.status_file import StackStatus
from tests.charts.helm import HelmError, program
from tests.e2e.target import Target
from tests.waiting import until

Json = dict[str, Any]
SECONDS = 1500
SERVICES = ("webhook", "defaulter", "controllers")


class Release(Protocol):
    async def upgrade(self) -> None:
        """Replaces all processes of Poolhouse."""

    async def roll_back(self) -> None: ...

    async def uninstall(self) -> None: ...

    async def install(self) -> None: ...

    def restore(self) -> None:
        """Poolhouse works again as before the test, also if the test was interrupted."""


@dataclass(frozen=True)
class HelmRelease:
    target: Target
    name: str
    namespace: str
    values: Json
    """those that were given to the release"""
    running: Lock = field(default_factory=Lock)
    """An interrupted test leaves its last command running."""

    @classmethod
    def find(cls, target: Target) -> HelmRelease:
        """The only release of Poolhouse on the cluster. Skips the test if its uninstallation would delete VMs."""
        listed = json.loads(_helm(target, "list", "--all", "--all-namespaces", "--output=json"))
        found = [each for each in listed if each["chart"].startswith("poolhouse-")]
        assert len(found) == 1, f"`helm list` must show one release of Poolhouse, and shows {len(found)}"
        name, namespace = found[0]["name"], found[0]["namespace"]
        given = _helm(target, "get", "values", name, f"--namespace={namespace}", "--output=json")
        release = cls(target, name, namespace, json.loads(given) or {})
        if not release.values.get("crds", {}).get("keep", True):
            pytest.skip("`crds.keep` is false: an uninstallation would delete all pools and their VMs")
        return release

    async def upgrade(self) -> None:
        changed = {"commonAnnotations": {"poolhouse.dev/e2e": "upgraded"}}
        options = ("--reset-then-reuse-values", "--set-json", f"global={json.dumps(changed)}", "--wait")
        await asyncio.to_thread(self._run, "upgrade", self.name, self.target.chart, *options)

    async def roll_back(self) -> None:
        await asyncio.to_thread(self._run, "rollback", self.name, "--wait")

    async def uninstall(self) -> None:
        await asyncio.to_thread(self._run, "uninstall", self.name, "--wait")

    async def install(self) -> None:
        await asyncio.to_thread(self._install)

    def restore(self) -> None:
        try:
            found = json.loads(self._run("status", self.name, "--output=json"))
        except HelmError:
            found = {}
        deployed = found.get("info", {}).get("status") == "deployed"
        if deployed and (found.get("config") or {}) == self.values:
            return
        if not deployed:
            # Helm neither upgrades nor installs a release in which a command was interrupted.
            self._run("uninstall", self.name, "--ignore-not-found", "--wait")
        self._install()

    def _install(self) -> None:
        options = ("--install", "--reset-values", "--values=-", "--wait")
        self._run("upgrade", self.name, self.target.chart, *options)

    def _run(self, *arguments: str) -> str:
        with self.running:
            timeout = () if arguments[0] == "status" else ("--timeout=20m",)
            return _helm(self.target, *arguments, f"--namespace={self.namespace}", *timeout, values=self.values)


def _helm(target: Target, *arguments: str, values: Json | None = None) -> str:
    where = [f"--kubeconfig={target.kubeconfig}", *([f"--kube-context={target.context}"] if target.context else [])]
    done = subprocess.run(
        [program(), *arguments, *where],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        # Ctrl-C ends the test, which then waits for the command.
        start_new_session=True,
    )
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


@dataclass(frozen=True)
class EmbeddedRelease:
    """The services of an embedded stack. It has no Helm: they are stopped with signals, and the API server forgets
    their webhooks."""

    paths: StackPaths
    removed: list[Json] = field(default_factory=list)
    """webhook configurations"""

    async def upgrade(self) -> None:
        before = set(self._signal(signal.SIGTERM))
        await until(lambda: all(part["ready"] and part["pid"] not in before for part in self._services()), True)

    async def roll_back(self) -> None:
        """The stack has one release only, so that the way back would be the same restart."""

    async def uninstall(self) -> None:
        async with await self._api() as api:
            for each in configurations(url="https://localhost", ca_bundle=b""):
                found = await api.get(RESOURCES[each["kind"]], None, each["metadata"]["name"])
                self.removed.append({**each, "webhooks": found["webhooks"]})
            await remove_webhooks(api)
        self._signal(signal.SIGSTOP)

    async def install(self) -> None:
        self._signal(signal.SIGCONT)
        async with await self._api() as api:
            await apply(api, self.removed)
        self.removed.clear()

    def restore(self) -> None:
        asyncio.run(self.install())

    def _signal(self, number: signal.Signals) -> list[int]:
        pids = [part["pid"] for part in self._services() if part["pid"]]
        for pid in pids:
            os.kill(pid, number)
        return pids

    def _services(self) -> list[Json]:
        status = StackStatus.read(self.paths.status)
        return [part for part in status.parts if part["name"] in SERVICES] if status else []

    async def _api(self) -> Api:
        return await Api.connect(self.paths.kubeconfig, user_agent="e2e", timeout_seconds=60)
