"""Runs `poolhouse up`: configures, supervises and stops the stack."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from poolhouse.manifests import rbac
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Unreachable
from poolhouse.service.signals import STDOUT, discard, exit_at_signals, received
from poolhouse.stack import identities, install, prerequisites, services
from poolhouse.stack.binaries import PROGRAMS, SCHEDULER, Programs, find_programs, link_kubectl
from poolhouse.stack.certificates import CERTIFICATE_LIFE, CertificateManager, prepare_cluster_certificates
from poolhouse.stack.components import Component, ComponentState, Echo, SetupStep, StackError
from poolhouse.stack.control_plane import control_plane_components, write_admission_configuration
from poolhouse.stack.lock import hold
from poolhouse.stack.paths import DIR_VARIABLE, StackPaths, abandoned_directories
from poolhouse.stack.ports import PortReservations, load_ports
from poolhouse.stack.processes import clean_up
from poolhouse.stack.status_file import StatusFile
from poolhouse.stack.supervisor import Supervisor

# With PYTHONPATH the services run the same code as the command that starts them, also from a second work tree.
PASSED_VARIABLES = (
    *("PATH", "HOME", "XDG_CACHE_HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "PYTHONPATH", "GOGC"),
)
# By how many percent the memory of the control plane grows before it collects garbage. With Go's 100, a start takes the
# API server a third more processor time, for 110 MB less.
GARBAGE_COLLECTION = {"GOGC": "200"}
API_SERVER_SECONDS = 120.0
RETRY_SECONDS = 0.3

WithApi = Callable[[Api], Awaitable[None]]


@dataclass(frozen=True)
class StackOptions:
    paths: StackPaths
    engine: str = "qemu"
    without: frozenset[str] = frozenset()
    certificate_life: timedelta = CERTIFICATE_LIFE
    virtual_node: str = ""
    """name of the Node whose Pods run on warm VMs; empty for none"""
    guest_agent: bool = False
    """whether the built-in Linux of QEMU's guests runs poolhouse-agent"""

    @property
    def programs(self) -> tuple[str, ...]:
        return (*PROGRAMS, SCHEDULER) if self.virtual_node else PROGRAMS

    @property
    def services(self) -> tuple[str, ...]:
        return tuple(name for name in services.SERVICES if name not in self.without)


def run(
    options: StackOptions,
    echo: Echo,
    watch: WithApi | None = None,
    progress: Callable[[int, int], None] = lambda ready, total: None,
) -> None:
    """Runs the stack until SIGINT, SIGTERM or SIGHUP, and ends all its processes before it returns. Calls `watch` when
    the stack is ready, and `progress` with the numbers of ready and of all components after each change. Raises
    `StackError`."""
    # Unprivileged workers read files of this process. What nobody else may read gets a mode of its own.
    os.umask(0o022)
    paths = options.paths
    prerequisites.check_programs(options.services, options.engine)
    prerequisites.check_processes()
    paths.check_name()
    with paths.writing():
        paths.create()
        paths.lock.touch(mode=0o600)
        prerequisites.check_disk_space(paths.dir)
    ends = (signal.SIGINT, *exit_at_signals())
    with hold(paths.lock):
        for process in clean_up(paths):
            echo(f"ended a process of an earlier run: {process.pid} {process.command[:80]}")
        for directory in abandoned_directories():
            shutil.rmtree(directory, ignore_errors=True)
        status = StatusFile(paths.status, options.engine, options.without)
        try:
            programs = find_programs(echo, needed=options.programs)
            if link_kubectl(programs, Path(sys.prefix) / "bin" / "kubectl"):
                echo("linked kubectl beside poolhouse, because PATH has none newer than 1.31")
            with paths.writing():
                paths.prepare(services.worker_uid())
                stack = Stack(options, programs, status, echo, progress)
            asyncio.run(stack.run(watch, ends))
        except StackError as error:
            broken = with_full_disk(str(error), paths)
            status.set_phase("broken", broken)
            raise StackError(broken) from None
        finally:
            clean_up(paths)
        status.set_phase("ended")


class Stack:
    def __init__(
        self,
        options: StackOptions,
        programs: Programs,
        status: StatusFile,
        echo: Echo,
        progress: Callable[[int, int], None],
    ) -> None:
        self._options, self._paths, self._status, self._echo = options, options.paths, status, echo
        self._progress = progress
        self._reservations = PortReservations()
        self._ports = load_ports(services.PORTS, str(self._paths.dir), self._paths.ports, self._reservations.take)
        now = datetime.now(UTC)
        cluster = prepare_cluster_certificates(self._paths.tls_of("cluster"), now)
        self._certificates = CertificateManager(self._paths.tls, services.HOSTS, cluster, options.certificate_life)
        self._certificates.prepare(now)
        self._write_kubeconfigs()
        write_admission_configuration(self._paths, self._ports)
        pods = bool(options.virtual_node)
        components = [*control_plane_components(programs, self._paths, self._ports, pods=pods), *self._services()]
        status.total = len(components)
        self._supervisor = Supervisor(
            components,
            [
                SetupStep("kinds", self._install_kinds, after=("kube-apiserver",)),
                SetupStep("admission", self._set_up_admission, after=("kinds", "webhook")),
                SetupStep("subresources", self._set_up_subresources, after=("kinds", "engine")),
            ],
            env=self._environment(),
            cwd=self._paths.dir,
            log=self._paths.log,
            changed=self._component_changed,
        )

    async def run(self, watch: WithApi | None, ends: Iterable[signal.Signals]) -> None:
        loop = asyncio.get_running_loop()
        running = asyncio.create_task(self._run(watch))
        signals = 0

        def stop(number: signal.Signals) -> None:
            nonlocal signals
            signals += 1
            if signals > 1:
                self._supervisor.kill()
                return
            running.cancel()
            received(number)
            try:
                self._echo("stopping")
            except OSError:  # Ctrl-C has also ended the reader of `poolhouse up | tee log`
                discard(STDOUT)

        for number in ends:
            loop.add_signal_handler(number, stop, number)
        try:
            await running
        except asyncio.CancelledError:
            if not signals:
                raise
        except BaseExceptionGroup as group:
            raise _cause(group) from None

    async def _run(self, watch: WithApi | None) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._supervisor.run(), name="supervisor")
                group.create_task(self._when_ready(watch), name="when-ready")
                # Renewal starts at once, because a certificate may expire before a slow stack is ready.
                group.create_task(self._certificates.run(self._publish), name="certificates")
        finally:
            self._status.set_phase("ended")

    async def _when_ready(self, watch: WithApi | None) -> None:
        await self._supervisor.ready()
        endpoints = services.endpoints(self._paths, self._ports, self._options.services)
        self._paths.endpoints.write_text(json.dumps(endpoints, indent=2) + "\n")
        self._paths.prometheus.write_text(yaml.safe_dump(services.prometheus_config(endpoints), sort_keys=False))
        # Before the phase, because `up --detach` prints nothing after it.
        self._echo(f"ready: export KUBECONFIG={shlex.quote(str(self._paths.kubeconfig))}")
        self._status.set_phase("ready")
        if watch is not None:
            await self._with_api(watch)

    async def _install_kinds(self) -> None:
        await self._setup(lambda api: install.install_kinds(api, self._options.virtual_node))

    async def _set_up_admission(self) -> None:
        if "webhook" in self._options.services:
            url = services.url("webhook", self._ports)
            await self._setup(lambda api: install.install_webhooks(api, url, self._bundle()))
        else:
            await self._setup(install.remove_webhooks)

    async def _set_up_subresources(self) -> None:
        if "engine" in self._options.services:
            port = self._ports["engine"]
            await self._setup(lambda api: install.install_subresources(api, port, self._bundle()))
        else:
            await self._setup(install.remove_subresources)

    def _bundle(self) -> bytes:
        """Returns the current CA bundle, for use at once: an older bundle must not replace a newer one."""
        return self._certificates.bundle(datetime.now(UTC))

    async def _publish(self, bundle: bytes) -> None:
        async with await self._api() as api:
            if "webhook" in self._options.services:
                await install.publish_webhooks(api, services.url("webhook", self._ports), bundle)
            if "engine" in self._options.services:
                await install.publish_subresources(api, self._ports["engine"], bundle)

    async def _setup(self, step: WithApi) -> None:
        """Retries the step, because a new API server refuses requests until it has created its own roles."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + API_SERVER_SECONDS
        while True:
            try:
                return await self._with_api(step)
            except ApiError as error:
                if loop.time() > deadline:
                    raise StackError(setup_failure(error)) from error
            await asyncio.sleep(RETRY_SECONDS)

    async def _with_api(self, step: WithApi) -> None:
        async with await self._api() as api:
            await step(api)

    async def _api(self) -> Api:
        return await Api.connect(self._paths.kubeconfig, user_agent="poolhouse-up")

    def _services(self) -> tuple[Component, ...]:
        options = self._options
        nodes: tuple[Component, ...] = ()
        if "engine" in options.services and options.engine == "qemu":
            from poolhouse.stack.engine.qemu.libvirtd import libvirtd_components

            nodes = libvirtd_components(self._paths, services.worker_uid())
        return services.service_components(
            self._paths,
            self._ports,
            options.services,
            options.engine,
            nodes,
            options.virtual_node,
            options.guest_agent,
        )

    def _environment(self) -> Mapping[str, str]:
        """Passes few variables, so that a stack does not depend on the shell that started it."""
        passed = passed_variables(os.environ)
        return {**GARBAGE_COLLECTION, **passed, "PATH": prerequisites.search_path(), DIR_VARIABLE: str(self._paths.dir)}

    def _write_kubeconfigs(self) -> None:
        users = {name: identities.service_account(rbac.service_account_user(name)) for name in services.ACCOUNTS}
        users["kube-controller-manager"] = identities.CONTROLLER_MANAGER
        users[SCHEDULER] = identities.SCHEDULER
        tokens = identities.load_tokens([identities.ADMIN, *users.values()], self._paths.tokens)
        files = {self._paths.kubeconfig_of(name): user for name, user in users.items()}
        files[self._paths.kubeconfig] = identities.ADMIN
        server = services.url("apiserver", self._ports)
        for path, user in files.items():
            identities.write_kubeconfig(path, server=server, ca=self._paths.ca, user=user.name, token=tokens[user.name])

    def _component_changed(self, state: ComponentState) -> None:
        before = self._status.states.get(state.name)
        self._status.set_component(state)
        self._progress(sum(each.ready for each in self._status.states.values()), self._status.total)
        if state.ready and not (before and before.ready):
            self._echo(f"{state.name} is ready")
        elif state.exit_code is not None and before and before.pid and not state.pid:
            restart = f"{state.name} {state.end} and will be restarted; see {self._paths.log(state.name)}"
            for line in with_full_disk(restart, self._paths).splitlines():
                self._echo(line)


def passed_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k in PASSED_VARIABLES or k.startswith("POOLHOUSE_")}


def with_full_disk(message: str, paths: StackPaths, free: Callable[[Path], int] = prerequisites.free_bytes) -> str:
    """Adds a line about a full disk to a message about a component: its log often names another cause."""
    return "\n".join(filter(None, (message, prerequisites.describe_full_disk(paths, free))))


def setup_failure(error: ApiError) -> str:
    if isinstance(error, Unreachable):
        return f"the API server does not answer; if the machine is busy, run `poolhouse up` again: {error}"
    return f"the API server refuses the objects of Poolhouse: {error}"


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the first `StackError` in nested exception groups, or else the first error."""
    errors = [_cause(error) if isinstance(error, BaseExceptionGroup) else error for error in group.exceptions]
    return next((error for error in errors if isinstance(error, StackError)), errors[0])
