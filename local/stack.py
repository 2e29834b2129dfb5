"""One `up`, from the lock to the last process's end. Everything is put together here."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kinds import rbac
from local import identities, install, prerequisites, services
from local.binaries import Programs, Say, find, link_kubectl
from local.build import build
from local.cluster import control_plane
from local.down import clean
from local.download import Releases
from local.lock import held
from local.parts import Broken, Gate, Part
from local.places import MARKER, Places, abandoned
from local.ports import Reserved, keep
from local.report import Reporter
from local.supervisor import State, Supervisor
from local.tls import LEAF_LIFE, Keeper, prepare_cluster
from runtime.api import Api, ApiError

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME")
CONTROL_PLANE_PATIENCE_SECONDS = 120.0

Watching = Callable[[Api], Awaitable[None]]


@dataclass(frozen=True)
class Wanted:
    """What a person asked for."""

    places: Places
    engine: str = "qemu"
    without: frozenset[str] = frozenset()
    certificate_life: timedelta = LEAF_LIFE

    @property
    def services(self) -> tuple[str, ...]:
        return tuple(name for name in services.SERVICES if name not in self.without)


def run(wanted: Wanted, say: Say, watch: Watching | None = None) -> None:
    """Until SIGINT or SIGTERM; every process has ended when it returns. `watch` runs beside the stack once it is ready.
    Raises `Broken`, everything ended as well."""
    places = wanted.places
    prerequisites.check(wanted.services, wanted.engine)
    with places.writing():
        places.dir.mkdir(parents=True, exist_ok=True)
        places.lock.touch(mode=0o600)
        prerequisites.check_room(places.dir)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with held(places.lock):
        for left in clean(places):
            say(f"ended a leftover of an earlier run: {left.pid} {left.command[:80]}")
        for directory in abandoned():
            shutil.rmtree(directory, ignore_errors=True)
        reporter = Reporter(places.status, wanted.engine, wanted.without)
        try:
            programs = _programs(say)
            with places.writing():
                places.prepare(services.worker_uid())
                stack = Stack(wanted, programs, reporter, say)
            asyncio.run(stack.run(watch))
        except Broken as broken:
            reporter.phase("broken", str(broken))
            raise
        finally:
            clean(places)
        reporter.phase("ended")


def _programs(say: Say) -> Programs:
    programs = find(say, download=Releases().download, build=build)
    if link_kubectl(programs, Path(sys.prefix) / "bin" / "kubectl"):
        say("put kubectl beside poolhouse: this machine had none that is new enough")
    return programs


class Stack:
    """One running stack."""

    def __init__(self, wanted: Wanted, programs: Programs, reporter: Reporter, say: Say) -> None:
        self._wanted, self._places, self._reporter, self._say = wanted, wanted.places, reporter, say
        self._reserved = Reserved()
        self._ports = keep(services.PORTS, str(self._places.dir), self._places.ports, self._reserved.take)
        now = datetime.now(UTC)
        cluster = prepare_cluster(self._places.tls_of("cluster"), now)
        self._keeper = Keeper(self._places.tls, services.HOSTS, cluster, wanted.certificate_life)
        self._keeper.prepare(now)
        self._write_identities()
        self._began = asyncio.Event()
        self._supervisor = Supervisor(
            [*control_plane(programs, self._places, self._ports), *self._services()],
            self._gates(),
            env=self._environment(),
            cwd=self._places.dir,
            log=self._places.log,
            changed=self._changed,
        )

    async def run(self, watch: Watching | None) -> None:
        loop = asyncio.get_running_loop()
        running = asyncio.create_task(self._run(watch))
        asked = 0

        def end() -> None:
            nonlocal asked
            asked += 1
            if asked == 1:
                self._say("ending")
                running.cancel()
            else:
                self._supervisor.hurry()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end)
        try:
            await running
        except asyncio.CancelledError:
            if not asked:
                raise
        except BaseExceptionGroup as group:
            raise _first(group) from None

    async def _run(self, watch: Watching | None) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._supervisor.run(), name="supervisor")
                group.create_task(self._beside(watch), name="beside")
                # From the start: a stack may take longer to start than a certificate lives.
                group.create_task(self._keeper.keep(self._publish), name="certificates")
        finally:
            self._reporter.phase("ended")

    async def _beside(self, watch: Watching | None) -> None:
        """What the supervisor's own process does while the parts run."""
        await self._supervisor.ready()
        found = services.endpoints(self._places, self._ports, self._wanted.services)
        self._places.endpoints.write_text(json.dumps(found, indent=2) + "\n")
        self._reporter.phase("ready")
        self._say(f"ready: export KUBECONFIG={self._places.kubeconfig}")
        if watch is not None:
            await self._with_api(watch)

    def _gates(self) -> list[Gate]:
        gates = [Gate("kinds", lambda: self._patiently(install.install_kinds), after=("kube-apiserver",))]
        gates.append(Gate("admission", self._open_admission, after=("kinds", "webhook")))
        gates.append(Gate("subresources", self._open_subresources, after=("kinds", "engine")))
        return gates

    async def _open_admission(self) -> None:
        if "webhook" in self._wanted.services:
            url = services.url("webhook", self._ports)
            await self._patiently(lambda api: install.install_webhooks(api, url, self._bundle()))
        else:
            await self._patiently(install.remove_webhooks)

    async def _open_subresources(self) -> None:
        if "engine" in self._wanted.services:
            port = self._ports["engine"]
            await self._patiently(lambda api: install.install_subresources(api, port, self._bundle()))
        else:
            await self._patiently(install.remove_subresources)

    def _bundle(self) -> bytes:
        """As it is now, asked for late: an older one must not replace a newer one."""
        return self._keeper.bundle(datetime.now(UTC))

    async def _publish(self, bundle: bytes) -> None:
        async with await self._api() as api:
            if "webhook" in self._wanted.services:
                await install.publish_webhooks(api, services.url("webhook", self._ports), bundle)
            if "engine" in self._wanted.services:
                await install.publish_subresources(api, self._ports["engine"], bundle)

    async def _patiently(self, step: Watching) -> None:
        """An API server that has just become ready may still refuse (its own roles and priorities are being made)."""
        loop = asyncio.get_running_loop()
        end = loop.time() + CONTROL_PLANE_PATIENCE_SECONDS
        while True:
            try:
                return await self._with_api(step)
            except ApiError as error:
                if loop.time() > end:
                    raise Broken(f"the API server refuses what Poolhouse needs: {error}") from error
            await asyncio.sleep(0.3)

    async def _with_api(self, step: Watching) -> None:
        async with await self._api() as api:
            await step(api)

    async def _api(self) -> Api:
        return await Api.connect(self._places.kubeconfig, user_agent="poolhouse-up")

    def _services(self) -> tuple[Part, ...]:
        nodes: tuple[Part, ...] = ()
        if "engine" in self._wanted.services and self._wanted.engine == "qemu":
            from local.engine.nodes import node_parts  # needs libvirt, which a simulated engine does without

            nodes = node_parts(self._places, services.worker_uid())
        return services.services(self._places, self._ports, self._wanted.services, self._wanted.engine, nodes)

    def _environment(self) -> Mapping[str, str]:
        """What every part has: little, so that a stack does not depend on the shell that started it."""
        passed = {k: v for k, v in os.environ.items() if k in PASSED_ON or k.startswith("POOLHOUSE_")}
        return {**passed, "PATH": prerequisites.search_path(), MARKER: str(self._places.dir)}

    def _write_identities(self) -> None:
        accounts = {name: identities.service(rbac.account(name)) for name in services.ACCOUNTS}
        accounts["kube-controller-manager"] = identities.MANAGER
        tokens = identities.keep_tokens([identities.ADMIN, *accounts.values()], self._places.tokens)
        files = {self._places.kubeconfig_of(name): who for name, who in accounts.items()}
        files[self._places.kubeconfig] = identities.ADMIN
        for path, who in files.items():
            server = services.url("apiserver", self._ports)
            token = tokens[who.name]
            identities.write_kubeconfig(path, server=server, ca=self._places.ca, user=who.name, token=token)

    def _changed(self, state: State) -> None:
        before = self._reporter.states.get(state.name)
        self._reporter.part(state)
        if state.ready and not (before and before.ready):
            self._say(f"{state.name} is ready")
        elif state.exit_code is not None and before and before.pid and not state.pid:
            how = f"exit code {state.exit_code}" if state.exit_code >= 0 else f"signal {-state.exit_code}"
            self._say(f"{state.name} ended ({how}) and is started again; see {self._places.log(state.name)}")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What really happened inside the groups of TaskGroups: what is broken, if anything is."""
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves.append(_first(error) if isinstance(error, BaseExceptionGroup) else error)
    return next((error for error in leaves if isinstance(error, Broken)), leaves[0])
