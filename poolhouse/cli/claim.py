"""`poolhouse claim` and `ssh`: claim a warm VM, and log in to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn
from uuid import uuid4

import click

from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.claim_status import FINISHED, describe, vm_of
from poolhouse.cli.cluster import Cluster, cluster_options
from poolhouse.cli.live import StatusLine
from poolhouse.cli.output import Failed, Unreachable, echo, is_structured, output_option, print_structured
from poolhouse.cli.parameters import CLAIM, WARM_POOL, Duration, WaitingCommand, qualified_name
from poolhouse.cli.release import release_or_warn
from poolhouse.service.signals import exit_at_signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse.runtime.api import Api


POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 1.0
UNSEEN_SECONDS = 2.0
"""time after which a claim without status is no longer new"""
SSH_PORT = 22
SSH_TIMEOUT_SECONDS = 15.0
RETRY_SECONDS = 0.5


class NotReached(Failed):
    """The VM could not be reached. The exit code is that of ssh for its own errors, which few commands have."""

    exit_code = 255


@click.command(cls=WaitingCommand)
@click.argument("name", required=False)
@click.option("--pool", type=WARM_POOL, help="Default: the default pool of the namespace.")
@click.option("--ttl", type=Duration(), help="Release the VM after this time: 600, 10m or 2h.")
@click.option(
    "--on-empty", type=click.Choice(["ColdStart", "Queue", "Fail"]), help="Default: claimPolicy.onEmpty of the pool."
)
@click.option("--instancetype", help="Default: the pool's.")
@click.option("--image", help="Default: the pool's.")
@click.option("--placement", help="Default: any placement of the pool.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the claim is Ready or Failed.")
@click.option("--timeout", "seconds", type=Duration(), default="10m", show_default=True, help="Longest wait.")
@click.option("--keep", is_flag=True, help="Do not release the claim if the wait is interrupted.")
@click.option("--ssh", metavar="USER", help="Log in to the ready VM with ssh, through virtctl if it is installed.")
@click.option("--exec", "command", metavar="COMMAND", help="Run this command in the VM instead of a shell, with --ssh.")
@click.option("--rm", "release_after", is_flag=True, help="Release the claim when the login or the command has ended.")
@output_option("text", "name")
@cluster_options
def claim(
    cluster: Cluster,
    name: str | None,
    pool: str | None,
    ttl: float | None,
    on_empty: str | None,
    instancetype: str | None,
    image: str | None,
    placement: str | None,
    wait: bool,
    seconds: float,
    keep: bool,
    ssh: str | None,
    command: str | None,
    release_after: bool,
    output: str,
) -> None:
    """Claim a warm VM. If the pool has none, --on-empty decides.

    NAME is the name of the claim; the default is a random name. Delete or `release` the claim to give the VM back.
    While the claim waits, the command says why. Ctrl-C, SIGTERM and SIGHUP then release it, unless --keep is given.
    Exits with 1 if the claim fails, with 3 after --timeout, with 130 or 143 if it is interrupted. With --exec or --rm,
    the exit code is that of the command or the login: `claim --ssh ci --rm --exec "make test"`.
    """
    _check_options(name, wait, keep, ssh, command, release_after)
    overrides = _without_none({"instancetype": instancetype, "image": image, "placement": placement})
    spec = {
        "poolName": pool,
        "ttlSeconds": None if ttl is None else int(ttl),
        "onEmpty": on_empty,
        "overrides": overrides or None,
    }
    new = NewClaim(cluster, name or f"claim-{uuid4().hex[:12]}", _without_none(spec), is_unique=name is None)
    wait_seconds = seconds if wait else None
    abandoned = release_after
    if release_after:  # a job of a CI system is cancelled by SIGTERM
        exit_at_signals()
    try:
        try:
            status = cluster.run(lambda api: new.create(api, wait_seconds)).get("status") or {}
        except (KeyboardInterrupt, SystemExit):
            abandoned = not keep
            if keep:
                echo(f"{new.name} waits on; `poolhouse release {new.name}` cancels it", err=True)
            raise
        _report(new.name, status, output, wait_seconds, release_after)
        _warn_of_limit(new.name, status, ttl)
        if ssh and not (command or release_after):
            _become(cluster, ssh_arguments(cluster, ssh, status))
        if ssh:
            sys.exit(_run(cluster, ssh_arguments(cluster, ssh, status, command)))
    finally:
        if abandoned and new.release() and not release_after:
            echo(f"{new.name} is released", err=True)


def _check_options(
    name: str | None, wait: bool, keep: bool, ssh: str | None, command: str | None, release_after: bool
) -> None:
    """Raises `UsageError` if options contradict each other."""
    if ssh and not wait:
        raise click.UsageError("--ssh needs --wait")
    if (command or release_after) and not ssh:
        raise click.UsageError("--exec and --rm need --ssh USER")
    if keep and release_after:
        raise click.UsageError("give --keep or --rm, not both")
    if name == "":
        raise click.UsageError("NAME is empty; leave it out for a random name")


@dataclass
class NewClaim:
    """A claim that the command creates, and what an interrupted command knows of it."""

    cluster: Cluster
    name: str
    spec: Json
    is_unique: bool
    """whether the name is random, so that a claim of this name can only be this one"""
    sent: bool = False
    uid: str | None = None

    async def create(self, api: Api, wait_seconds: float | None) -> Json:
        """Returns the claim: at once without a limit, else when it is Ready, has ended, or the time is over. Raises
        `Failed` if no pool can serve it."""
        from poolhouse.cli.resources import CLAIMS

        body = {
            "apiVersion": CLAIMS.api_version,
            "kind": CLAIMS.kind,
            "metadata": {"namespace": self.cluster.namespace, "name": self.name},
            "spec": self.spec,
        }
        if why := await _why_not_served(api, body):
            raise Failed(f"{self.name}: {why}")
        self.sent = True
        document = await _create(api, body, unique=self.is_unique)
        self.uid = document["metadata"]["uid"]
        if wait_seconds is None:
            return document
        with StatusLine() as line:
            return await _wait_until_settled(api, document, time.monotonic() + wait_seconds, line.show)

    def release(self) -> bool:
        """Releases the claim if it may exist. Returns whether it is released."""
        may_exist = self.uid is not None or (self.sent and self.is_unique)
        return may_exist and release_or_warn(self.cluster, self.name, self.uid)


async def _create(api: Api, body: Json, *, unique: bool) -> Json:
    """Creates a claim. If the answer is lost, a claim with a unique name is created again: one that then exists is this
    claim. Of another claim, only its user knows whose it is."""
    from poolhouse.cli.resources import CLAIMS
    from poolhouse.runtime.errors import OUTCOME_UNKNOWN, AlreadyExists

    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    try:
        return await api.create(CLAIMS, body)
    except AlreadyExists:
        raise Failed(await _describe_existing(api, namespace, name)) from None
    except OUTCOME_UNKNOWN as error:
        if not unique:
            advice = f"if the claim exists, `poolhouse release {name}` releases it"
            raise Unreachable(f"no answer: {error}; {advice}") from None
    await asyncio.sleep(RETRY_SECONDS)
    try:
        return await api.create(CLAIMS, body)
    except AlreadyExists:
        return await api.get(CLAIMS, namespace, name)


async def _describe_existing(api: Api, namespace: str, name: str) -> str:
    from poolhouse.cli.resources import CLAIMS
    from poolhouse.runtime.errors import ApiError

    phase = ""
    with contextlib.suppress(ApiError):
        phase = ((await api.get(CLAIMS, namespace, name)).get("status") or {}).get("phase") or "Pending"
    delete = f", or run `kubectl delete vmclaim {name} -n {namespace}` first" if phase in FINISHED else ""
    return f"the claim {name} exists already{f' and is {phase}' if phase else ''}; give another name{delete}"


async def _why_not_served(api: Api, body: Json) -> str:
    """Why no pool can serve the claim, or an empty string. Nothing is known without the right to list pools."""
    from controllers.claim.allocator import select_pool
    from controllers.claim.snapshot import Failure, parse_claim
    from controllers.warmpool.warm_pool import parse_warm_pool
    from poolhouse.cli.resources import WARM_POOLS
    from poolhouse.runtime.errors import Forbidden

    try:
        pools, _ = await api.list(WARM_POOLS, body["metadata"]["namespace"])
    except Forbidden:
        return ""
    claimed = parse_claim({**body, "metadata": {**body["metadata"], "uid": ""}})
    found = select_pool(claimed, [parse_warm_pool(each) for each in pools])
    return f"{found.reason}: {found.message}" if isinstance(found, Failure) else ""


def _report(name: str, status: Json, output: str, waited_seconds: float | None, release_after: bool) -> None:
    """Prints the claim. Raises an error if it has ended, or is not Ready after the wait."""
    phase = status.get("phase") or "Pending"
    if shown := is_structured(output):
        print_structured(output, {"name": name, **status, "phase": phase})
    elif output == "name":
        echo(qualified_name("VirtualMachineClaim", name))
    if phase in FINISHED:
        raise Failed(describe(name, status), shown=shown)
    if waited_seconds is not None and phase != "Ready":
        end = "so it is released" if release_after else f"`poolhouse release {name}` cancels it"
        raise Unreachable(f"{describe(name, status)}; not Ready after {waited_seconds:g} s, {end}", shown=shown)
    if output == "text":
        echo(describe(name, status))


def _warn_of_limit(name: str, status: Json, ttl_seconds: float | None) -> None:
    """Says on stderr that the pool's limit ends the claim before the time that its user asked for."""
    if ttl_seconds is None or not (status.get("boundAt") and status.get("expiresAt")):
        return
    granted = (parse_time(status["expiresAt"]) - parse_time(status["boundAt"])).total_seconds()
    if granted < ttl_seconds - 1:
        limit = "claimPolicy.maxTTLSeconds of the pool"
        echo(f"{name}: it has its VM for {granted:.0f} s instead of {ttl_seconds:.0f}: {limit}", err=True)


@click.command("ssh")
@click.argument("name", type=CLAIM)
@click.argument("user")
@click.option("--exec", "command", metavar="COMMAND", help="Run this command instead of a shell.")
@cluster_options
def log_in(cluster: Cluster, name: str, user: str, command: str | None) -> None:
    """Log in to the VM of a claim that is Ready, or run a command in it.

    Exits with the exit code of the command: `ssh CLAIM ci --exec "make test"`. As with ssh, 255 means that the VM could
    not be reached, or that the claim is not Ready.
    """

    async def get(api: Api) -> Json:
        from poolhouse.cli.resources import CLAIMS

        return await api.get(CLAIMS, cluster.namespace, name)

    try:
        status = cluster.run(get).get("status") or {}
        if status.get("phase") != "Ready":
            raise Failed(describe(name, status))
        arguments = ssh_arguments(cluster, user, status, command)
    except (Failed, Unreachable) as error:
        raise NotReached(error.message) from None
    _become(cluster, arguments)


async def _wait_until_settled(api: Api, document: Json, end: float, tell: Callable[[str], None]) -> Json:
    """Returns the claim when it is Ready, has ended, or the time is over. Tells meanwhile what it waits for."""
    from poolhouse.cli.resources import CLAIMS
    from poolhouse.runtime.errors import Forbidden

    metadata, pause, begun = document["metadata"], POLL_SECONDS, time.monotonic()
    while True:
        status = document.get("status") or {}
        phase = status.get("phase")
        if phase == "Ready" or phase in FINISHED or time.monotonic() > end:
            return document
        if phase:
            tell(describe(metadata["name"], status))
        elif time.monotonic() - begun > UNSEEN_SECONDS:
            unseen = "no controller has seen it yet; `poolhouse doctor` says whether one works"
            tell(f"{metadata['name']}: Pending: {unseen}")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, MAX_POLL_SECONDS)
        try:
            document = await api.get(CLAIMS, metadata["namespace"], metadata["name"])
        except Forbidden as error:
            raise Failed(
                f"the claim {metadata['name']} is created, and it gets a VM, but you may not read it: {error.message}; "
                "somebody who may change claims can release it"
            ) from None
        if document["metadata"]["uid"] != metadata["uid"]:  # its VM belongs to somebody else
            raise Failed(f"the claim {metadata['name']} was deleted, and there is another one of its name now")


def ssh_arguments(
    cluster: Cluster, user: str, status: Json, command: str | None = None, *, port: int = SSH_PORT
) -> list[str]:
    """The command line of `ssh`, which ends with the exit code of the command; `virtctl ssh` ends with 1 instead. With
    virtctl, the connection goes through KubeVirt, which can reach cluster-internal addresses."""
    ssh = shutil.which("ssh")
    vm = vm_of(status) or ""
    virtctl = shutil.which("virtctl") if status.get("vmRef") else None
    address = next(iter(status.get("addresses") or ()), None)
    if address is None and virtctl is None:
        raise Failed("the VM has no address, and virtctl is not installed; use its console")
    if ssh is None:
        raise Failed(f"ssh is not installed; log in as {user} at {address or vm}")
    # A VM's name is never used twice, but its address is, so known hosts are stored by name.
    options = ["-o", f"HostKeyAlias={vm}.{cluster.namespace}", "-o", f"ConnectTimeout={SSH_TIMEOUT_SECONDS:.0f}"]
    if command:  # nobody can confirm the key of a VM that was created a moment ago
        options += ["-o", "StrictHostKeyChecking=accept-new"]
    if virtctl:
        options += ["-o", f"ProxyCommand={_through_kubevirt(cluster, virtctl, vm, port)}"]
    elif why := unreachable(str(address), port, SSH_TIMEOUT_SECONDS):
        raise Failed(
            f"{address} port {port}: {why}. Install virtctl to reach an address inside a"
            " cluster; addresses of an embedded stack can only be reached from its guests"
        )
    return [ssh, "-p", str(port), *options, f"{user}@{vm if virtctl else address}", *([command] if command else [])]


def _through_kubevirt(cluster: Cluster, virtctl: str, vm: str, port: int) -> str:
    context = ["--context", cluster.context] if cluster.context else []
    target = ["--namespace", cluster.namespace, *context, "--stdio=true", f"vm/{vm}", str(port)]
    return shlex.join([virtctl, "port-forward", *target]).replace("%", "%%")


def _become(cluster: Cluster, arguments: list[str]) -> NoReturn:
    """Replaces this process by the program."""
    os.execve(arguments[0], arguments, cluster.environment)


def _run(cluster: Cluster, arguments: list[str]) -> int:
    """Runs a program, and returns its exit code as a shell does: 128 and the number of a signal that ended it."""
    code = subprocess.run(arguments, env=cluster.environment, check=False).returncode
    return code if code >= 0 else 128 - code


def unreachable(address: str, port: int, seconds: float) -> str:
    """Returns why a connection fails; empty on success. Retries, because a resumed guest needs a moment."""
    end, why = time.monotonic() + seconds, ""
    while (left := end - time.monotonic()) > 0:
        try:
            socket.create_connection((address, port), timeout=left).close()
        except OSError as error:
            why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            time.sleep(min(0.5, max(0.0, end - time.monotonic())))
        else:
            return ""
    return f"{why} in {seconds:g} s"


def _without_none(values: Json) -> Json:
    return {key: value for key, value in values.items() if value is not None}
