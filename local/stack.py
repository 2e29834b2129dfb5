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

from local import identities, install, prerequisites, services
from local.binaries import Echo, Programs, find_programs, link_kubectl
from local.build import build
from local.certificates import LEAF_LIFE, CertificateManager, prepare_cluster_certificates
from local.components import Component, SetupStep, StackError
from local.control_plane import control_plane_components
from local.down import clean_up
from local.download import Releases
from local.lock import hold
from local.paths import DIR_VARIABLE, StackPaths, abandoned_directories
from local.ports import PortReservations, load_ports
from local.status_file import StatusFile
from local.supervisor import ComponentState, Supervisor
from manifests import rbac
from runtime.api import Api
from runtime.errors import ApiError

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME")
CONTROL_PLANE_PATIENCE_SECONDS = 120.0

Watching = Callable[[Api], Awaitable[None]]


@dataclass(frozen=True)
class StackOptions:
    """What a person asked for."""

    paths: StackPaths
    engine: str = "qemu"
    without: frozenset[str] = frozenset()
    certificate_life: timedelta = LEAF_LIFE

    @property
    def services(self) -> tuple[str, ...]:
        return tuple(name for name in services.SERVICES if name not in self.without)


def run(wanted: StackOptions, echo: Echo, watch: Watching | None = None) -> None:
    """Until SIGINT or SIGTERM; every process has ended when it returns. `watch` runs beside the stack once it is ready.
    Raises `Broken`, everything ended as well."""
    paths = wanted.paths
    prerequisites.check_programs(wanted.services, wanted.engine)
    with paths.writing():
        paths.dir.mkdir(parents=True, exist_ok=True)
        paths.lock.touch(mode=0o600)
        prerequisites.check_disk_space(paths.dir)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with hold(paths.lock):
        for left in clean_up(paths):
            echo(f"ended a leftover of an earlier run: {left.pid} {left.command[:80]}")
        for directory in abandoned_directories():
            shutil.rmtree(directory, ignore_errors=True)
        reporter = StatusFile(paths.status, wanted.engine, wanted.without)
        try:
            programs = _programs(echo)
            with paths.writing():
                paths.prepare(services.worker_uid())
                stack = Stack(wanted, programs, reporter, echo)
            asyncio.run(stack.run(watch))
        except StackError as broken:
            reporter.phase("broken", str(broken))
            raise
        finally:
            clean_up(paths)
        reporter.phase("ended")


def _programs(echo: Echo) -> Programs:
    programs = find_programs(echo, download=Releases().download, build=build)
    if link_kubectl(programs, Path(sys.prefix) / "bin" / "kubectl"):
        echo("put kubectl beside poolhouse: this machine had none that is new enough")
    return programs


class Stack:
    """One running stack."""

    def __init__(self, wanted: StackOptions, programs: Programs, reporter: StatusFile, echo: Echo) -> None:
        self._wanted, self._paths, self._reporter, self._echo = wanted, wanted.paths, reporter, echo
        self._reserved = PortReservations()
        self._ports = load_ports(services.PORTS, str(self._paths.dir), self._paths.ports, self._reserved.take)
        now = datetime.now(UTC)
        cluster = prepare_cluster_certificates(self._paths.tls_of("cluster"), now)
        self._keeper = CertificateManager(self._paths.tls, services.HOSTS, cluster, wanted.certificate_life)
        self._keeper.prepare(now)
        self._write_identities()
        self._began = asyncio.Event()
        self._supervisor = Supervisor(
            [*control_plane_components(programs, self._paths, self._ports), *self._services()],
            self._steps(),
            env=self._environment(),
            cwd=self._paths.dir,
            log=self._paths.log,
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
                self._echo("ending")
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
        """What the supervisor's own process does while the components run."""
        await self._supervisor.ready()
        found = services.endpoints(self._paths, self._ports, self._wanted.services)
        self._paths.endpoints.write_text(json.dumps(found, indent=2) + "\n")
        self._reporter.phase("ready")
        self._echo(f"ready: export KUBECONFIG={self._paths.kubeconfig}")
        if watch is not None:
            await self._with_api(watch)

    def _steps(self) -> list[SetupStep]:
        steps = [SetupStep("kinds", lambda: self._patiently(install.install_kinds), after=("kube-apiserver",))]
        steps.append(SetupStep("admission", self._open_admission, after=("kinds", "webhook")))
        steps.append(SetupStep("subresources", self._open_subresources, after=("kinds", "engine")))
        return steps

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
                    raise StackError(f"the API server refuses what Poolhouse needs: {error}") from error
            await asyncio.sleep(0.3)

    async def _with_api(self, step: Watching) -> None:
        async with await self._api() as api:
            await step(api)

    async def _api(self) -> Api:
        return await Api.connect(self._paths.kubeconfig, user_agent="poolhouse-up")

    def _services(self) -> tuple[Component, ...]:
        nodes: tuple[Component, ...] = ()
        if "engine" in self._wanted.services and self._wanted.engine == "qemu":
            from local.engine.qemu.libvirtd import (
                libvirtd_components,  # needs libvirt, which a simulated engine does without
            )

            nodes = libvirtd_components(self._paths, services.worker_uid())
        return services.service_components(self._paths, self._ports, self._wanted.services, self._wanted.engine, nodes)

    def _environment(self) -> Mapping[str, str]:
        """What every component has: little, so that a stack does not depend on the shell that started it."""
        passed = {k: v for k, v in os.environ.items() if k in PASSED_ON or k.startswith("POOLHOUSE_")}
        return {**passed, "PATH": prerequisites.search_path(), DIR_VARIABLE: str(self._paths.dir)}

    def _write_identities(self) -> None:
        accounts = {name: identities.service(rbac.service_account_user(name)) for name in services.ACCOUNTS}
        accounts["kube-controller-manager"] = identities.MANAGER
        tokens = identities.load_tokens([identities.ADMIN, *accounts.values()], self._paths.tokens)
        files = {self._paths.kubeconfig_of(name): who for name, who in accounts.items()}
        files[self._paths.kubeconfig] = identities.ADMIN
        for path, who in files.items():
            server = services.url("apiserver", self._ports)
            token = tokens[who.name]
            identities.write_kubeconfig(path, server=server, ca=self._paths.ca, user=who.name, token=token)

    def _changed(self, state: ComponentState) -> None:
        before = self._reporter.states.get(state.name)
        self._reporter.component(state)
        if state.ready and not (before and before.ready):
            self._echo(f"{state.name} is ready")
        elif state.exit_code is not None and before and before.pid and not state.pid:
            how = f"exit code {state.exit_code}" if state.exit_code >= 0 else f"signal {-state.exit_code}"
            self._echo(f"{state.name} ended ({how}) and is started again; see {self._paths.log(state.name)}")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What really happened inside the groups of TaskGroups: what is broken, if anything is."""
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves.append(_first(error) if isinstance(error, BaseExceptionGroup) else error)
    return next((error for error in leaves if isinstance(error, StackError)), leaves[0])
