"""Claims on the real API server with simulated guests."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import sys
import time
from collections import Counter as Tally
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiohttp import web

from controllers.claim.snapshot import CLAIMS
from controllers.warmpool.ssh_keys import secret_name
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.kinds import meta
from poolhouse.cli.output import Failed, Unreachable
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Invalid
from poolhouse.runtime.metrics import PREFIX
from poolhouse.runtime.resource import SECRETS, VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest, owned_by, vm_spec
from tests.cluster.ci_systems import GitHub, GitLabRunner, Guests, Jenkins, program, served
from tests.cluster.claiming import Counter, counted
from tests.cluster.faulty import Faulty
from tests.cluster.pooling import PATIENCE_SECONDS, instancetype, until
from tests.cluster.resting import rests
from tests.cluster.shell import Shell
from tests.cluster.warm_pools import RunningControllers, controllers, template
from tests.resources import ROLE_BINDINGS, ROLES
from tests.tokens import kubeconfig_with

Json = dict[str, Any]

CI = Path(__file__).parents[3] / "examples" / "ci"
"""in the test that kills controllers"""


@pytest_asyncio.fixture
async def running(ours: Path) -> AsyncIterator[RunningControllers]:
    async with controllers(ours) as found:
        yield found


async def test_a_claim_gets_a_ready_vm_and_releases_it(desk: Counter, running: RunningControllers) -> None:
    made = await desk.filled(2)
    claim = await desk.claim("mine", poolName="web", personalization={"labels": {"team": "blue"}})
    status = await desk.becomes("mine", "Ready")
    assert (status["launchType"], status["poolName"], status["attempts"]) == ("Warm", "web", 1)
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Bound": "True",
        "Ready": "True",
        "Personalized": "True",
    }
    took = status["timings"]
    assert {"queuedMs", "bindMs", "activateMs", "checkMs", "totalMs"} <= took.keys()
    assert max(took.values()) == took["totalMs"]

    await used(desk, status)
    vm = await desk.vm(status["vmRef"]["name"])
    assert vm is not None
    labels, (owner,) = vm["metadata"]["labels"], vm["metadata"]["ownerReferences"]
    assert (labels[meta.WARM_STATE], labels[meta.CLAIM_UID], labels["team"]) == (
        "InUse",
        claim["metadata"]["uid"],
        "blue",
    )
    assert (owner["kind"], owner["uid"]) == ("VirtualMachineClaim", claim["metadata"]["uid"])
    assert labels[meta.POOL_UID] == made["metadata"]["uid"]
    await until(desk.ready, 2)  # the pool replaces the claimed VM
    with pytest.raises(Invalid):
        await desk.alter("mine", poolName="other")

    await desk.alter("mine", release=True)
    await desk.becomes("mine", "Released")
    assert await desk.gone(status["vmRef"]["name"]), "the claim is Released after its VM is deleted"
    assert counted(running, "claims_total", launch="Warm", result="Ready") >= 1
    assert counted(running, "warmpool_invariant_violations_total") == 0


async def test_labels_alone_give_a_claim_no_vm(desk: Counter, running: RunningControllers, ours: Path) -> None:
    """Somebody has circumvented the admission policy that protects the labels."""
    pool = (await desk.pool(0, paused=True))["metadata"]

    async def members() -> Any:
        return (await desk.api.get(WARM_POOLS, desk.namespace, "web")).get("status", {}).get("members")

    await until(members, [])
    claim = (await desk.claim("mine", poolName="web", onEmpty="Queue"))["metadata"]
    await desk.becomes("mine", "Queued")
    of_pool = {meta.WARM_POOL: "web", meta.POOL_UID: pool["uid"]}
    forged = {
        "ready": ({meta.WARM_STATE: "Ready", **of_pool}, (WARM_POOLS, pool)),
        "given": ({meta.WARM_STATE: "Allocating", meta.CLAIM_UID: claim["uid"], **of_pool}, (CLAIMS, claim)),
    }
    async with await Api.connect(ours, user_agent="tests", timeout_seconds=60) as api:
        for name, (labels, (kind, owner)) in forged.items():
            spec = vm_spec(template()["spec"]["template"]["spec"], labels={meta.WARM_POOL: "web"})
            metadata = {"labels": labels, "ownerReferences": owned_by(kind, owner["name"], owner["uid"])}
            await api.create(VMS, manifest(VMS, name, spec, desk.namespace, **metadata))
    await until(lambda: desk.gone("given"), True)

    async def runs() -> bool:
        guests, _ = await desk.api.list(VMIS, desk.namespace)
        conditions = (c for each in guests for c in each.get("status", {}).get("conditions") or ())
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    await until(runs, True)
    await desk.change(replicas=2, paused=False)
    status = await desk.becomes("mine", "Ready")
    assert status["vmRef"]["name"] not in forged


async def used(desk: Counter, status: Json) -> None:
    """Waits until the claim's VM is InUse: a running VM is a moment after its claim is Ready."""
    await until(lambda: state_of(desk, status["vmRef"]["uid"]), "InUse")


@pytest.mark.sentence("5.46")
async def test_default_pool_and_missing_pool(desk: Counter, running: RunningControllers) -> None:
    await desk.claim("early")
    await until(lambda: desk.reason("early"), "NoDefaultPool")
    await desk.claim("lost", poolName="nowhere", bindTimeoutSeconds=2)
    await desk.filled(1, default=True)
    assert (await desk.becomes("early", "Ready"))["poolName"] == "web"
    await desk.becomes("lost", "Failed")
    assert await desk.reason("lost") == "PoolNotFound"


@pytest.mark.sentence("5.66")
async def test_on_empty_of_a_pool_without_ready_vms(desk: Counter, running: RunningControllers) -> None:
    await desk.pool(0)
    await desk.claim("cold", poolName="web", personalization={"sshPublicKeySecret": "keys"})
    await desk.claim("refused", poolName="web", onEmpty="Fail")
    status = await desk.becomes("cold", "Ready")
    assert (status["launchType"], status["launchReason"].partition(":")[0]) == ("Cold", "PoolEmpty")
    await used(desk, status)
    vm = await desk.vm(status["vmRef"]["name"])
    assert vm is not None
    assert vm["metadata"]["labels"][meta.WARM_STATE] == "InUse"
    assert await desk.reason("cold", "Personalized") == "VMSecretMissing", "its template has no cloud-init"
    await desk.becomes("refused", "Failed")
    assert await desk.reason("refused") == "NoCapacity"

    # A paused pool creates no VM for claims.
    await desk.change(paused=True)
    await until(desk.observed, True)
    await desk.claim("held", poolName="web")
    await until(lambda: desk.reason("held"), "PoolPaused")
    await desk.change(paused=False)
    assert (await desk.becomes("held", "Ready"))["launchType"] == "Cold"

    # A pool with 0 replicas creates VMs for queued claims.
    await desk.claim("waiting", poolName="web", onEmpty="Queue")
    status = await desk.becomes("waiting", "Ready")
    assert status["launchType"] == "Warm"
    await asyncio.sleep(0.5)
    assert await desk.ready() == 0


async def test_queue_positions_and_bind_timeout(desk: Counter, running: RunningControllers) -> None:
    await desk.filled(1, maxTotal=1, claimPolicy={"onEmpty": "Queue"})
    await desk.claim("first", poolName="web")
    await desk.becomes("first", "Ready")
    for name in ("second", "third", "fourth"):
        await desk.claim(name, poolName="web", bindTimeoutSeconds=3600)
        await desk.becomes(name, "Queued")
    paths = [(await desk.claimed(name))["queuePosition"] for name in ("second", "third", "fourth")]
    assert paths == [1, 2, 3]
    assert (await until_status(desk, "queuedClaims", 3)) == 3
    await desk.claim("hasty", poolName="web", bindTimeoutSeconds=2)
    await desk.becomes("hasty", "Failed")
    assert await desk.reason("hasty") == "BindTimeout"
    await desk.unclaim("first")
    await desk.becomes("second", "Ready")
    assert await desk.phase("third") == "Queued"


async def until_status(desk: Counter, field: str, value: Any) -> Any:
    async def ask() -> Any:
        return (await desk.status()).get(field)

    await until(ask, value)
    return value


async def test_personalization_of_a_running_vm(desk: Counter, ours: Path) -> None:
    """With and without permission to read the namespace's Secrets."""
    credential = {
        "sshPublicKey": {
            "source": {"secret": {"secretName": meta.CLAIM_KEY}},
            "propagationMethod": {"qemuGuestAgent": {"users": ["alpine"]}},
        }
    }
    keyed = template()
    keyed["spec"]["template"]["spec"]["accessCredentials"] = [credential]
    async with controllers(ours) as running:
        await desk.filled(1)
        personalization = {"labels": {"team": "blue"}, "sshPublicKeySecret": "mine"}
        await desk.claim("plain", poolName="web", personalization=personalization)
        status = await desk.becomes("plain", "Ready")
        assert await desk.reason("plain", "Personalized") == "VMSecretMissing"
        name = status["vmRef"]["name"]
        await used(desk, status)
        vm, guest = await desk.vm(name), await desk.api.get(VMIS, desk.namespace, name)
        assert vm is not None
        runs = vm["spec"]["template"]["metadata"]["labels"]
        assert vm["metadata"]["labels"]["team"] == guest["metadata"]["labels"]["team"] == runs["team"] == "blue"

        await desk.pool(1, "keyed", template=keyed, refill={"backoffSeconds": 1, "maxBackoffSeconds": 1})
        await until(lambda: said_of_secrets(desk), True)
        assert await desk.ready("keyed") == 0
        await allow_secrets(desk)
        await until(lambda: desk.ready("keyed"), 1)
        (waiting,) = [m for m in await desk.vms() if m.pool == "keyed" and m.state == "Ready"]
        own = await desk.api.get(SECRETS, desk.namespace, secret_name(waiting.name))
        assert (own.get("data"), own["metadata"]["ownerReferences"][0]["uid"]) == (None, waiting.uid)

        data = {"me": base64.b64encode(b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 me").decode()}
        await desk.api.create(SECRETS, {"metadata": {"namespace": desk.namespace, "name": "mine"}, "data": data})
        await desk.claim("mine", poolName="keyed", personalization=personalization)
        assert (await desk.becomes("mine", "Ready"))["vmRef"]["uid"] == waiting.uid
        own = await desk.api.get(SECRETS, desk.namespace, secret_name(waiting.name))
        assert own["data"] == data
        assert await desk.reason("mine", "Personalized") == "AccessCredentialsNotSynchronized", "the guest has no agent"
        assert counted(running, "warmpool_invariant_violations_total") == 0


async def said_of_secrets(desk: Counter) -> bool:
    return "secrets" in str((await desk.status("keyed")).get("failures"))


async def allow_secrets(desk: Counter) -> None:
    """As the documentation says."""
    shown = Path(__file__).parents[3].joinpath("docs/reference/personalization.md").read_text()
    (section,) = (each for each in re.findall(r"```yaml\n(.*?)```", shown, re.DOTALL) if "kind: RoleBinding" in each)
    for document in yaml.safe_load_all(section):
        document["metadata"]["namespace"] = desk.namespace
        await desk.api.create(ROLES if document["kind"] == "Role" else ROLE_BINDINGS, document)


async def test_vms_are_created_for_overrides(desk: Counter, running: RunningControllers) -> None:
    await instancetype(desk.api, "large", 2, "64Mi")
    await desk.filled(1, placements=[{"name": "east"}, {"name": "west", "weight": 0}])
    await desk.claim("large", poolName="web", annotations={meta.INSTANCE_TYPE: "large"})
    await desk.claim("west", poolName="web", overrides={"placement": "west"}, personalization={"hostname": "mine"})
    await desk.claim("odd", poolName="web", overrides={"placement": "north"})
    large, west = await desk.becomes("large", "Ready"), await desk.becomes("west", "Ready")
    for status in (large, west):
        assert (status["launchType"], status["launchReason"].partition(":")[0]) == ("Cold", "OverrideMismatch")
    vm, other = await desk.vm(large["vmRef"]["name"]), await desk.vm(west["vmRef"]["name"])
    assert vm is not None
    assert other is not None
    assert vm["spec"]["instancetype"]["name"] == "large"
    assert other["metadata"]["labels"][meta.PLACEMENT] == "west"
    assert other["spec"]["template"]["spec"]["hostname"] == "mine"
    await desk.becomes("odd", "Failed")
    assert await desk.reason("odd") == "OverrideNotAllowed"
    assert await desk.ready() == 1, "no claim got the ready VM"


async def test_a_leader_with_a_fast_clock_expires_nothing_early(ours: Path, desk: Counter) -> None:
    async with controllers(ours):
        await desk.filled(2, expiry={"maxAgeSeconds": 1800})
        await desk.claim("kept", poolName="web", ttlSeconds=1800)
        before = await desk.becomes("kept", "Ready")
        await until(desk.ready, 2)
        waiting = {vm.uid for vm in await desk.vms() if vm.unclaimed}
    async with controllers(ours, wall=lambda: time.time() + 3600) as late:
        # The API server's clock decides when a claim is bound and when it expires.
        await desk.claim("short", poolName="web", ttlSeconds=2)
        bound_at = datetime.fromisoformat((await desk.becomes("short", "Expired"))["boundAt"])
        assert abs((datetime.fromisoformat(before["boundAt"]) - bound_at).total_seconds()) < 1800
        assert await desk.phase("kept") == "Ready"
        assert waiting & await desk.uids(), "one was claimed, the other did not exceed its maximum age"
        offset = late.registry.get_sample_value(f"{PREFIX}api_clock_offset_seconds")
        assert offset == pytest.approx(-3600, abs=300)


async def test_expiry_and_extension(desk: Counter, running: RunningControllers) -> None:
    await desk.filled(2, claimPolicy={"defaultTTLSeconds": 2, "maxTTLSeconds": 3600})
    await desk.claim("short", poolName="web")
    await desk.claim("long", poolName="web", ttlSeconds=1800)
    status = await desk.becomes("long", "Ready")
    assert _seconds(status) == 1800
    await desk.alter("long", ttlSeconds=10_000)
    vm = (await desk.becomes("short", "Expired"))["vmRef"]["name"]
    await until(lambda: desk.gone(vm), True)
    await until(lambda: _lifetime(desk, "long"), 3600)  # up to the pool's limit
    extended = await desk.claimed("long")
    assert (extended["phase"], extended["vmRef"]) == ("Ready", status["vmRef"])
    await desk.hears("ClaimExpired")

    # A change of the pool applies to later claims.
    await desk.change(claimPolicy={"defaultTTLSeconds": 2, "maxTTLSeconds": 2})
    await until(desk.observed, True)
    await desk.claim("later", poolName="web", ttlSeconds=1800)
    await desk.becomes("later", "Expired")
    kept = await desk.claimed("long")
    assert (kept["phase"], _seconds(kept)) == ("Ready", 3600)


async def test_a_claim_warns_before_it_expires(desk: Counter, running: RunningControllers) -> None:
    await desk.filled(1)
    await desk.claim("mine", poolName="web", ttlSeconds=4000)
    await desk.becomes("mine", "Ready")
    # As if an hour had passed: less than a tenth of the time is left.
    before = datetime.now(UTC) - timedelta(hours=1)
    ends = before + timedelta(seconds=4000)
    times = {key: f"{each:%Y-%m-%dT%H:%M:%SZ}" for key, each in (("boundAt", before), ("expiresAt", ends))}
    await desk.api.patch(CLAIMS, desk.namespace, "mine", {"status": times}, subresource="status")
    await until(lambda: desk.reason("mine", "Expiring"), "TTLExpiring")
    await desk.hears("ClaimExpiring")
    await desk.alter("mine", ttlSeconds=40_000)
    await until(lambda: desk.reason("mine", "Expiring"), "TTLExtended")


def _seconds(status: Json) -> float:
    """From binding to expiry."""
    begin, end = (datetime.fromisoformat(status[each]) for each in ("boundAt", "expiresAt"))
    return (end - begin).total_seconds()


async def _lifetime(desk: Counter, name: str) -> float:
    return _seconds(await desk.claimed(name))


async def test_a_vm_that_does_not_start_is_deleted(desk: Counter, running: RunningControllers) -> None:
    """After a second VM the claim fails with the reason."""
    await desk.filled(2, standby={"mode": "Stopped"})
    machines = {vm.uid: vm for vm in await desk.vms()}
    # The short timeout comes after the first start of the VMs, which may take longer.
    await desk.change(paused=True, readiness={"timeoutSeconds": 3})
    await until(desk.observed, True)
    for vm in machines.values():
        fault = {"annotations": {f"{meta.SIM_PREFIX}fail": "Stuck"}}
        await desk.api.patch(VMS, desk.namespace, vm.name, {"metadata": fault})
    await desk.claim("mine", poolName="web")
    status = await desk.becomes("mine", "Failed")
    assert (status["attempts"], await desk.reason("mine")) == (2, "ActivationFailed")
    await until(lambda: left_of(desk, machines), set())


async def left_of(desk: Counter, machines: Collection[str]) -> set[str]:
    return {vm.uid for vm in await desk.vms()} & set(machines)


async def test_a_claim_of_the_same_name_gets_another_vm(desk: Counter, running: RunningControllers) -> None:
    await desk.filled(2, standby={"mode": "Stopped"})
    seen = set()
    for phase in ("", "Bound", "Ready"):
        await desk.claim("mine", poolName="web")
        if phase:
            await until(lambda phase=phase: reached(desk, phase), True)  # type: ignore[misc]
        seen |= {vm.uid for vm in await desk.vms() if vm.claim_uid}
        await desk.unclaim("mine")
    made = await desk.claim("mine", poolName="web")
    status = await desk.becomes("mine", "Ready")
    assert status["vmRef"]["uid"] not in seen
    await until(lambda: claimants(desk), [made["metadata"]["uid"]])


async def reached(desk: Counter, phase: str) -> bool:
    return await desk.phase("mine") in (phase, "Ready")


async def claimants(desk: Counter) -> list[str]:
    return sorted(vm.claim_uid for vm in await desk.vms() if vm.claim_uid)


async def test_claims_outlive_their_pool(desk: Counter, running: RunningControllers) -> None:
    await desk.filled(3)
    await desk.claim("mine", poolName="web")
    vm = (await desk.becomes("mine", "Ready"))["vmRef"]["name"]
    await desk.api.delete(WARM_POOLS, desk.namespace, "web")
    await until(lambda: names(desk), [vm])
    await asyncio.sleep(1)
    # A VM that the pool has created at the last moment may be there until the garbage collector deletes it.
    assert (vm in await names(desk), await desk.phase("mine")) == (True, "Ready")
    await desk.alter("mine", ttlSeconds=1)
    await desk.becomes("mine", "Expired")
    await until(lambda: names(desk), [])


async def names(desk: Counter) -> list[str]:
    return sorted(vm.name for vm in await desk.vms())


async def test_command_line(simulated: StackPaths, desk: Counter, running: RunningControllers) -> None:
    """Claim, release, status and doctor on the command line."""
    await desk.filled(1)

    run = Shell(desk, simulated.kubeconfig).run
    taken = await run("claim", "mine", "--pool", "web", "--ttl", "10m", "-o", "json")
    assert taken.exit_code == 0, taken.output
    status = json.loads(taken.stdout)
    assert (status["phase"], status["launchType"]) == ("Ready", "Warm")
    why = await run("why", status["vmRef"]["name"])
    assert "VirtualMachineClaim mine controls it" in why.output
    assert "now   it is " in why.output
    refused = await run("claim", "other", "--pool", "nowhere", "--timeout", "30")
    assert (refused.exit_code, "PoolNotFound" in refused.output) == (1, True)

    async def said() -> tuple[str, int]:
        (pool,) = json.loads((await run("warmpool", "status", "web", "-o", "json")).stdout)
        return pool["name"], pool["claimed"]

    await until(said, ("web", 1))  # the VM follows a moment after its claim, and the pool after the VM
    examined = await run("warmpool", "doctor")
    assert examined.output == "no problems found\n", examined.exception
    given = await run("release", "mine")
    assert (given.exit_code, given.output) == (0, "mine is Released\n")


@pytest.mark.parametrize("ended_by", [None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_command_runs_in_a_vm_that_is_released_afterwards(
    simulated: StackPaths,
    desk: Counter,
    running: RunningControllers,
    tmp_path: Path,
    ended_by: signal.Signals | None,
) -> None:
    await desk.filled(1)
    started = tmp_path / "started"
    ending = "sleep 600" if ended_by else "exit 7"
    ssh = f"#!/bin/sh\necho \"$@\" > {started}.new; mv {started}.new {started}; exec /bin/sh -c '{ending}'\n"
    for name, text in (("ssh", ssh), ("virtctl", "#!/bin/sh\n")):
        program(tmp_path / name, text)
    command = Path(sys.executable).with_name("poolhouse")
    options = ["--kubeconfig", str(simulated.kubeconfig), "-n", desk.namespace, "--pool", "web"]
    process = await asyncio.create_subprocess_exec(
        *(str(command), "claim", "mine", "--ssh", "ci", "--exec", "make test", "--rm", *options),
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        # As in a terminal: a signal reaches the command and its child.
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )

    async def has_started() -> bool:
        return started.is_file()

    await until(has_started, True)
    told = started.read_text()
    assert f"ProxyCommand={tmp_path}/virtctl port-forward --namespace {desk.namespace} --stdio=true vm/web-" in told
    assert told.endswith(" make test\n")
    if ended_by:
        os.killpg(process.pid, ended_by)
    code = await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)
    assert code == (128 + ended_by if ended_by else 7)
    await desk.becomes("mine", "Released")


@pytest.mark.parametrize(
    ("interrupt", "options", "left"),
    [
        pytest.param(signal.SIGINT, (), {"mine": "Released"}, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, (), {"mine": "Released"}, id="SIGTERM"),
        pytest.param(signal.SIGHUP, (), {"mine": "Released"}, id="the terminal is closed"),
        pytest.param(signal.SIGINT, ("--keep",), {"mine": "Queued"}, id="kept"),
    ],
)
async def test_a_claim_that_waits_says_why_and_ends_with_its_command(
    simulated: StackPaths,
    desk: Counter,
    running: RunningControllers,
    interrupt: signal.Signals,
    options: tuple[str, ...],
    left: dict[str, str],
) -> None:
    await desk.pool(0, template=template(fail="Stuck"))
    await until(desk.observed, True)  # a claim of a pool that the controllers do not know yet is Pending
    command = Path(sys.executable).with_name("poolhouse")
    place = ["--kubeconfig", str(simulated.kubeconfig), "-n", desk.namespace]
    process = await asyncio.create_subprocess_exec(
        *(str(command), "claim", "mine", "--pool", "web", "--on-empty", "Queue", *options, *place),
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        said = await process.stderr.readline()
        assert said == b"mine: Queued, position 1 in the queue: no VM of the pool is ready for this claim yet\n"
        process.send_signal(interrupt)
        last = await process.stderr.read()
        code = await process.wait()
    assert code == 128 + interrupt
    assert (b"mine is released" in last, b"`poolhouse release mine` cancels it" in last) == (not options, bool(options))
    await until(lambda: _phases(desk), left)


async def _phases(desk: Counter) -> dict[str, str | None]:
    claims, _ = await desk.api.list(CLAIMS, desk.namespace)
    return {each["metadata"]["name"]: each.get("status", {}).get("phase") for each in claims}


async def test_several_claims_are_released_at_once(
    simulated: StackPaths, desk: Counter, running: RunningControllers
) -> None:
    await desk.pool(0, template=template(fail="Stuck"))
    for name in ("a", "b"):
        await desk.claim(name, poolName="web", onEmpty="Queue")

    run = Shell(desk, simulated.kubeconfig).run
    await until(lambda: _phases(desk), {"a": "Queued", "b": "Queued"})
    why = await run("why", "vmclaim/b")
    assert "it waits for a VM of the warm pool web; `poolhouse warmpool why web` explains the pool" in why.output
    assert "`poolhouse why vmclaim/b` explains it" in (await run("why", "b")).output
    released = await run("release", "a", "missing", "b")
    assert released.stdout == "a is Released\nb is Released\n"
    assert (released.exit_code, "missing: " in released.stderr) == (1, True)

    again = await run("release", "a", "missing", "-o", "json", raises=True)
    absent = f'virtualmachineclaims.poolhouse.dev "missing" not found in namespace {desk.namespace}'
    assert json.loads(again.stdout) == [{"name": "a", "phase": "Released"}, {"name": "missing", "error": absent}]
    assert isinstance(again.exception, Failed)
    assert again.exception.shown  # main() prints no second document
    late = await run("claim", "late", "--pool", "web", "--timeout", "0s", "-o", "json", raises=True)
    assert json.loads(late.stdout)["name"] == "late"
    assert isinstance(late.exception, Unreachable)
    assert late.exception.shown
    given = await run("claim", "late", "--pool", "web", "--timeout", "0s")
    assert re.fullmatch(r"Error: the claim late exists already and is \w+; give another name\n", given.stderr)
    finished = await run("claim", "a", "--pool", "web", "--no-wait")
    delete = f"`kubectl delete vmclaim a -n {desk.namespace}`"
    assert f"the claim a exists already and is Released; give another name, or run {delete} first" in finished.stderr
    assert "there is no vm late in namespace" in (tree := (await run("tree", "late")).stderr)
    assert "; there is vmclaim/late" in tree


async def test_a_finished_claim_is_deleted_after_its_time(desk: Counter, running: RunningControllers) -> None:
    await desk.pool(0, claimPolicy={"onEmpty": "Fail", "ttlSecondsAfterFinished": 1})
    await desk.claim("mine", poolName="web")
    await desk.claim("kept", poolName="web", ttlSecondsAfterFinished=3600)

    async def left() -> list[str]:
        return [each["metadata"]["name"] for each in (await desk.api.list(CLAIMS, desk.namespace))[0]]

    await desk.becomes("kept", "Failed")
    await until(left, ["kept"])


class Cut(Faulty):
    """Breaks the connection with the answer to the last of so many writes of a namespace's claims and VMs: the write
    was done, and the writer was killed before it knew."""

    def __init__(self, kubeconfig: Path, namespace: str, writes: int) -> None:
        super().__init__(kubeconfig, Random(0))
        self.namespace = namespace
        self.left = writes
        self.written = False
        """The API server has answered to the last write."""

    def _fault(self, request: web.Request, watching: bool) -> str:
        if not self.away and request.method == "PATCH" and _of_a_claim(request.path, self.namespace):
            self.left -= 1
            self.away = self.left == 0
            return "lost" if self.away else ""
        return super()._fault(request, watching)

    async def _forward(self, request: web.Request, watching: bool, fault: str) -> web.StreamResponse:
        try:
            return await super()._forward(request, watching, fault)
        finally:
            self.written = self.written or fault == "lost"


def _of_a_claim(path: str, namespace: str) -> bool:
    """/apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME[/status]"""
    words = path.split("/")
    return len(words) > 6 and words[5] == namespace and words[6] in (VMS.plural, CLAIMS.plural)


async def test_doctor_deletes_a_vm_without_claim_while_no_controller_runs(
    simulated: StackPaths, desk: Counter, ours: Path
) -> None:
    labels = {meta.WARM_STATE: "InUse", meta.CLAIM_UID: "of-a-claim-that-is-gone"}
    body = manifest(VMS, "left", {**template()["spec"], "runStrategy": "Halted"}, desk.namespace, labels=labels)
    async with await Api.connect(ours, user_agent="tests", timeout_seconds=60) as api:
        await api.create(VMS, body)
    await desk.claim("waiting", poolName="web")

    run = partial(Shell(desk, simulated.kubeconfig).run, "warmpool", "doctor")
    found = await run()
    assert (found.exit_code, "ClaimGone" in found.output, "--fix deletes it" in found.output) == (1, True, True)
    everywhere = json.loads((await run("-A", "-o", "json")).stdout)
    # Other tests share the cluster and may have left VMs.
    wanted = {"namespace": desk.namespace, "problem": "ClaimGone", "name": "left"}
    assert [each for each in everywhere if wanted.items() <= each.items()], everywhere
    fixed = await run("--fix")
    assert (fixed.exit_code, re.search(r"left +deleted", fixed.output) is not None) == (0, True), fixed.output
    await until(lambda: desk.gone("left"), True)
    assert (await run()).output == "no problems found\n"


@pytest.mark.sentence("5.42")
async def test_a_claim_survives_a_kill_after_each_write(desk: Counter, ours: Path, tmp_path: Path) -> None:
    """The writes: the VM is reserved; the claim is bound and Ready; the VM is in use."""
    async with controllers(ours):
        await desk.filled(3)
    await desk.change(paused=True)
    for writes, states in enumerate([("PENDING_POD_PROVISIONING", ""), ("PENDING_POD_PROVISIONING", "Ready")], 1):
        name, line = f"c{writes}", Cut(ours, desk.namespace, writes)
        made = await desk.claim(name, poolName="web")
        async with line.serve(tmp_path / "kubeconfig"), controllers(tmp_path / "kubeconfig"):
            await until(lambda line=line: asyncio.sleep(0, line.written), True)  # type: ignore[misc]
        (taken,) = [vm for vm in await desk.vms() if vm.claim_uid == made["metadata"]["uid"]]
        assert (taken.state, await desk.phase(name)) == states
        async with controllers(ours) as running:
            await until(lambda uid=taken.uid: state_of(desk, uid), "InUse")  # type: ignore[misc]
            status = await desk.becomes(name, "Ready")
            assert (status["vmRef"]["uid"], status["attempts"]) == (taken.uid, 1)
            await rests(
                running.written, 0.5
            )  # no write of this claim may be left when the connection of the next is cut
            assert counted(running, "warmpool_invariant_violations_total") == 0
    assert await desk.ready() == 1


async def state_of(desk: Counter, uid: str) -> str:
    return next((str(vm.state) for vm in await desk.vms() if vm.uid == uid), "")


@pytest_asyncio.fixture
async def guests(simulated: StackPaths, desk: Counter, tmp_path: Path) -> Guests:
    """Guests for a CI system that has only the rights of examples/ci/claimant.yaml."""

    async def kubectl(*arguments: str) -> str:
        command = ["kubectl", "--kubeconfig", str(simulated.kubeconfig), "--namespace", desk.namespace, *arguments]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        assert process.returncode == 0, arguments
        return output.decode().strip()

    await kubectl("apply", "-f", str(CI / "claimant.yaml"))
    token = await kubectl("create", "token", "claimant")
    kubeconfig = kubeconfig_with(token, simulated.kubeconfig, tmp_path / "claimant.kubeconfig", desk.namespace)
    return Guests(tmp_path, kubeconfig)


async def over(desk: Counter) -> Tally[str]:
    """How many claims are in each phase."""
    return Tally(str(status.get("phase")) for status in (await desk.claims()).values())


async def test_jobs_of_gitlab_run_in_vms(
    desk: Counter, running: RunningControllers, guests: Guests, tmp_path: Path
) -> None:
    await desk.filled(2, "runners")
    runner = GitLabRunner(guests, CI / "gitlab-executor", tmp_path / "gitlab")
    failing = {"get_sources": "echo source > file", "build_script": "cat file; read -r line; exit 42"}
    failed = await runner.job(1, failing)
    assert (failed.kind, failed.exit_code) == ("script_failure", 42), failed.log
    assert "source" in failed.log, "the stages of a job run in the same VM"
    guests.lose_next()
    lost = await runner.job(2, {"build_script": "exit 0"})
    assert (lost.kind, lost.exit_code) == ("runner_system_failure", 2), "the VM was lost, so GitLab may retry the job"
    refused = await runner.job(3, {}, {"POOLHOUSE_POOL": "nowhere"})
    assert (refused.kind, refused.log.count("there is no warm pool nowhere")) == ("runner_system_failure", 3)
    await until(lambda: over(desk), {})


async def test_jobs_of_a_github_scale_set_run_in_vms(
    desk: Counter, running: RunningControllers, guests: Guests
) -> None:
    await desk.filled(2, "runners")
    github = GitHub()
    async with served(github):
        jobs = [github.queue("exit 0"), github.queue("exit 3")]
        guests.lose_next()
        listener = await guests.start(
            *(sys.executable, str(CI / "github-scale-set.py"), "--name", "warm", "--pool", "runners", "--max", "2"),
            GITHUB_CONFIG_URL=f"{github.url}/shop",
            GITHUB_TOKEN="a-token",
        )
        try:
            await until(lambda: done(github), {jobs[0]: "succeeded", jobs[1]: "failed"})
            assert len({job["vm"] for job in github.jobs.values()}) == 2, "each job has a VM of its own"
            assert len(github.runners) == 3, "the job of the VM that was lost has another runner"
            assert len(github.removed) == 1, "the runner that never ran is removed"
            github.expire()
            jobs.append(github.queue("exit 0"))
            await until(lambda: done(github), dict(zip(jobs, ("succeeded", "failed", "succeeded"), strict=True)))
            assert github.refreshed == 1
        finally:
            listener.terminate()
            output, _ = await listener.communicate()
        assert listener.returncode == 128 + signal.SIGTERM, output.decode()
        assert github.session == "", "another listener can take over"
    await until(lambda: over(desk), {"Released": 4})


async def done(github: GitHub) -> dict[int, str]:
    return github.results()


def command_of(path: Path, container: str) -> list[str]:
    """The command of a container in the recipe for a pod."""
    (document,) = yaml.safe_load_all(path.read_text())
    spec = document["spec"] if document.get("kind") == "Pod" else document["template"]["spec"]
    (found,) = (each for each in spec["containers"] if each["name"] == container)
    command: list[str] = found["command"]
    return command


async def test_runners_of_actions_runner_controller_run_in_vms(
    desk: Counter, running: RunningControllers, guests: Guests
) -> None:
    await desk.filled(1, "runners")
    github = GitHub()
    async with served(github):
        command = command_of(CI / "arc-values.yaml", "runner")
        outdated = github.configuration("a", exit=7)  # the controller then gives up the runner
        assert (await guests.run(*command, ACTIONS_RUNNER_INPUT_JITCONFIG=outdated))[0] == 7
        endless = "for _ in $(seq 300); do [ ! -e ../../end ] || break; sleep 0.1; done"
        github.jobs[1] = {"id": 1, "script": endless, "state": "assigned"}
        pod = await guests.start(*command, ACTIONS_RUNNER_INPUT_JITCONFIG=github.configuration("b"))
        await until(lambda: done(github), {1: "running"})
        pod.terminate()
        (guests.directory / "end").touch()
        await pod.communicate()
        assert pod.returncode == 128 + signal.SIGTERM
    await until(lambda: over(desk), {"Released": 2})


async def test_agents_of_jenkins_run_in_vms(desk: Counter, running: RunningControllers, guests: Guests) -> None:
    await desk.filled(1, "runners")
    jenkins, command = Jenkins(), command_of(CI / "jenkins-pod.yaml", "jnlp")
    async with served(jenkins):
        given = {
            "JENKINS_URL": f"{jenkins.url}/",
            "JENKINS_AGENT_NAME": "agent-x7",
            "REMOTING_OPTS": "-noReconnectAfter 1d",
        }
        code, output = await guests.run(*command, JENKINS_SECRET=jenkins.secret, **given)
        assert (code, jenkins.connected) == (0, ["agent-x7"]), output
        code, output = await guests.run(*command, JENKINS_SECRET="another", **given)
        assert code == 1, output
    await until(lambda: over(desk), {"Released": 2})
