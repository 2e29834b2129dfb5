"""QEMU guests in a real stack: restarts of their host processes, migrations, and the hardware that they see."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from defaulter.contract import HARDWARE_ANNOTATION
from poolhouse.api.kinds.meta import NAMESPACE
from poolhouse.api.kubevirt.versions import STALL_DETECTION
from poolhouse.cli.vm_streams import PLAIN_PROTOCOL, stream_path
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.events import EVENTS
from poolhouse.runtime.resource import KUBEVIRTS, PVCS, UPSTREAM_POLICIES, VMIS, VMS, Resource
from poolhouse.stack.engine.qemu import capabilities
from poolhouse.stack.engine.resources import MIGRATIONS, RESTORES, SNAPSHOTS
from poolhouse.stack.paths import StackPaths
from poolhouse.stack.services import worker_uid
from tests.cluster.guests.console import UP, Console
from tests.cluster.simulated.test_engine import asked, kill, on_another, says, vm, with_disk
from tests.waiting import PATIENCE_SECONDS, eventually

Json = dict[str, Any]

BUSY = {"sim.poolhouse.dev/dirty-memory": "24Mi"}
# With a tenth of a CPU the guest still writes faster than this, and all of it is copied once in the time.
SLOW: Json = {"bandwidthPerMigration": "8Mi", "completionTimeoutPerGiB": 30}
WIDE: Json = {"bandwidthPerMigration": "2Gi", "completionTimeoutPerGiB": 120}
CONVERGING: Json = {"bandwidthPerMigration": "24Mi", "completionTimeoutPerGiB": 240, "allowAutoConverge": True}
SWITCHING: Json = {**SLOW, "allowPostCopy": True}
PAUSING: Json = {**SLOW, "completionTimeoutPerGiB": 15, "allowWorkloadDisruption": True, "maxDowntimeMs": 70}


async def test_a_guest_outlives_engine_and_libvirt_and_migrates_without_a_reboot(api: Api, paths: StackPaths) -> None:
    await api.create(VMS, with_disk(vm("a"), {"http": {"url": "http://nowhere.invalid/alpine.iso"}}))
    await says(api, "a", "Running")
    console = Console(paths, "a")
    await console.shows("second 2")
    first = await api.get(VMIS, "default", "a")
    await kill(paths, "engine")
    await kill(paths, first["status"]["nodeName"])
    await console.counts_on()
    await says(api, "a", "Running")
    again = await api.get(VMIS, "default", "a")
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    await eventually(lambda: asked(api, "a", "migrate"))
    await eventually(lambda: on_another(api, again["status"]["nodeName"]))
    await console.counts_on()
    await console.tells_of_one_start()
    # The streams follow the guest to its new node.
    assert b"second " in await received(api, stream_path("default", "a", "console"), b"second ")
    assert (await received(api, stream_path("default", "a", "vnc"), b"\n")).startswith(b"RFB 003.")


async def received(api: Api, path: str, until: bytes) -> bytes:
    """What a guest sends over a websocket, up to some text."""
    found = b""
    async with asyncio.timeout(PATIENCE_SECONDS), api.websocket(path, PLAIN_PROTOCOL) as socket:
        while until not in found:
            found += await socket.receive_bytes()
    return found


async def test_a_damaged_hardware_record_is_reported(api: Api) -> None:
    labels, annotations = {"poolhouse.dev/defaulting": "disabled"}, {HARDWARE_ANNOTATION: '{"v":1,"digest":"0"}'}
    metadata = {"name": "odd", "namespace": "default", "labels": labels, "annotations": annotations}
    spec = vm("odd")["spec"]["template"]["spec"]
    await api.create(VMIS, _named(VMIS, {"metadata": metadata, "spec": spec}))

    async def failed() -> Json | None:
        status: Json = (await api.get(VMIS, "default", "odd")).get("status") or {}
        return status if status.get("phase") == "Failed" else None

    status = await eventually(failed)
    said = {each["type"]: each.get("message", "") for each in status["conditions"]}
    assert status["reason"] == "SyncFailed"
    assert said["Synchronized"].startswith(f"annotation {HARDWARE_ANNOTATION}: the hardware record is damaged")
    assert said["Synchronized"] in (await eventually(lambda: _told(api, "SyncFailed")))[0]["note"]


@pytest.mark.sentence("3.1", "3.21", "3.22")
async def test_a_guest_that_dirties_memory_migrates_by_its_policy(api: Api, paths: StackPaths) -> None:
    await api.create(VMS, vm("busy", annotations=BUSY))
    console = Console(paths, "busy")
    await console.shows("dirtying 24 MiB")
    impossible = capabilities.why_no_post_copy(worker_uid())

    slow = await moved(api, console, "slow", SWITCHING if impossible else SLOW)
    state = slow["migrationState"]
    assert (slow["phase"], state["mode"], state.get("abortStatus")) == ("Failed", "PreCopy", "Succeeded"), state
    assert state["failureReason"].startswith("Live migration is not completed after 30 seconds")
    # All of its memory was copied in time, and then what it had written since, again and again.
    rounds = re.search(r"left in round (\d+)", state["failureReason"])
    assert rounds is not None
    assert int(rounds[1]) >= 2
    assert slow["from"] == slow["to"]
    if impossible:
        said = {each["type"]: each.get("message") for each in slow["conditions"]}
        assert said["PostCopyPossible"] == impossible
        assert impossible in (await eventually(lambda: _told(api, "PostCopyImpossible")))[0]["note"]

    gates = {"developerConfiguration": {"featureGates": [STALL_DETECTION.name]}}
    await api.patch(KUBEVIRTS, NAMESPACE, "kubevirt", {"spec": {"configuration": gates}})
    source = (await api.get(VMIS, "default", "busy"))["status"]["nodeName"]
    limited = asyncio.create_task(eventually(lambda: has_downtime_limit(paths, source, PAUSING["maxDowntimeMs"])))
    paused = await moved(api, console, "paused", PAUSING)
    assert (paused["phase"], paused["migrationState"]["mode"]) == ("Succeeded", "Paused"), paused
    await limited

    for name, terms in {"wide": WIDE, "converging": CONVERGING}.items():
        assert_moved(await moved(api, console, name, terms), terms, "PreCopy")
    await console.tells_of_one_start()


@pytest.mark.sentence("3.21")
async def test_a_migration_that_does_not_end_in_time_switches_to_post_copy(api: Api, paths: StackPaths) -> None:
    if impossible := capabilities.why_no_post_copy(worker_uid()):
        pytest.skip(impossible)
    await api.create(VMS, vm("switching", annotations=BUSY))
    console = Console(paths, "switching")
    await console.shows("dirtying 24 MiB")
    assert_moved(await moved(api, console, "late", SWITCHING, guest="switching"), SWITCHING, "PostCopy")
    await console.tells_of_one_start()


def assert_moved(done: Json, terms: Json, mode: str) -> None:
    state = done["migrationState"]
    assert (done["phase"], state["mode"]) == ("Succeeded", mode), state
    assert state["migrationConfiguration"].items() >= terms.items()
    assert not {"failed", "failureReason", "abortStatus"} & set(state)
    assert (state["sourceNode"], state["targetNode"]) == (done["from"], done["to"])
    assert done["from"] != done["to"]


async def has_downtime_limit(paths: StackPaths, node: str, milliseconds: int) -> bool:
    """Whether QEMU has this limit for a domain of the node, from which it is migrated. The question would wait for the
    end of the migration on the other node."""
    import libvirt

    def limits() -> set[int]:
        found = set()
        (socket,) = paths.runtime.glob(f"{node}/**/libvirt-sock")
        with contextlib.closing(libvirt.open(f"qemu+unix:///session?socket={socket}")) as connection:
            for domain in connection.listAllDomains():
                with contextlib.suppress(libvirt.libvirtError):  # it may be gone
                    found.add(domain.migrateGetMaxDowntime())
        return found

    return milliseconds in await asyncio.to_thread(limits)


async def moved(api: Api, console: Console, name: str, terms: Json, guest: str = "busy") -> Json:
    """A migration on these terms, when it is over and the guest has counted on; the VMI runs all the time."""
    spec = {**terms, "selectors": {"namespaceSelector": {"kubernetes.io/metadata.name": "default"}}}
    metadata = {"name": name, "namespace": "default"}
    await api.create(UPSTREAM_POLICIES, _named(UPSTREAM_POLICIES, {"metadata": {"name": name}, "spec": spec}))
    before = await api.get(VMIS, "default", guest)
    await api.create(MIGRATIONS, _named(MIGRATIONS, {"metadata": metadata, "spec": {"vmiName": guest}}))

    async def over() -> Json | None:
        status: Json = (await api.get(MIGRATIONS, "default", name)).get("status") or {}
        assert (await api.get(VMIS, "default", guest))["status"]["phase"] == "Running"
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    status = await eventually(over, seconds=300)
    await console.counts_on()
    await api.delete(UPSTREAM_POLICIES, None, name)
    after = await api.get(VMIS, "default", guest)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["migrationState"] == status["migrationState"]
    assert after["status"]["migrationState"]["migrationPolicyName"] == name
    return {**status, "from": before["status"]["nodeName"], "to": after["status"]["nodeName"]}


def _named(resource: Any, document: Json) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **document}


async def _told(api: Api, reason: str) -> list[Json]:
    return [each for each in (await api.list(EVENTS, "default"))[0] if each.get("reason") == reason]


async def qemu_io(path: Path, command: str, *options: str) -> str:
    done = await asyncio.to_thread(
        lambda: subprocess.run(
            ["qemu-io", *options, "-f", "qcow2", "-c", command, str(path)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    )
    return done.stdout + done.stderr


async def disk_of(api: Api, paths: StackPaths, name: str) -> Path:
    """The file of the VM's disk, once its import is complete."""

    async def bound() -> str | None:
        with contextlib.suppress(NotFound):
            claim = await api.get(PVCS, "default", f"{name}-disk")
            return claim["metadata"]["uid"] if (claim.get("status") or {}).get("phase") == "Bound" else None
        return None

    return paths.disks / f"{await eventually(bound)}.qcow2"


async def shows(api: Api, resource: Resource, name: str, field: str) -> Json:
    async def shown() -> Json | None:
        found = await api.get(resource, "default", name)
        return found if (found.get("status") or {}).get(field) is True else None

    found = await eventually(shown)
    assert isinstance(found, dict)
    return found


async def test_a_snapshot_of_a_running_guest_is_restored(api: Api, paths: StackPaths) -> None:
    await api.create(VMS, with_disk(vm("s", runStrategy="Halted"), {"blank": {}}))
    disk = await disk_of(api, paths, "s")
    assert "wrote" in await qemu_io(disk, "write -P 0x41 0 64k")
    await api.patch(VMS, "default", "s", {"spec": {"runStrategy": "Always"}})
    await says(api, "s", "Running")
    console = Console(paths, "s")
    await console.shows("second 1")
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "s"}
    snapshot = {"apiVersion": SNAPSHOTS.api_version, "kind": SNAPSHOTS.kind, "spec": {"source": source}}
    await api.create(SNAPSHOTS, {**snapshot, "metadata": {"name": "before", "namespace": "default"}})
    taken = await shows(api, SNAPSHOTS, "before", "readyToUse")
    assert taken["status"]["indications"] == ["NoGuestAgent", "Online"]
    await console.counts_on()
    await console.tells_of_one_start()
    await api.patch(VMS, "default", "s", {"spec": {"runStrategy": "Halted"}})
    await says(api, "s", "Stopped")
    await eventually(lambda: gone(api, VMIS, "s"))
    assert "wrote" in await qemu_io(disk, "write -P 0x42 0 64k")
    without = {"annotations": {"sim.poolhouse.dev/linux": "false"}}
    await api.patch(VMS, "default", "s", {"metadata": without, "spec": {"runStrategy": "Always"}})
    await says(api, "s", "Running")
    spec = {
        "target": source,
        "virtualMachineSnapshotName": "before",
        "targetReadinessPolicy": "StopTarget",
        "volumeRestorePolicy": "InPlace",
    }
    restore = {"apiVersion": RESTORES.api_version, "kind": RESTORES.kind, "spec": spec}
    await api.create(RESTORES, {**restore, "metadata": {"name": "back", "namespace": "default"}})
    await shows(api, RESTORES, "back", "complete")
    assert (await api.get(VMS, "default", "s"))["spec"]["runStrategy"] == "Halted"
    restored = await disk_of(api, paths, "s")
    assert restored != disk
    read = await qemu_io(restored, "read -P 0x41 0 64k", "-r", "-U")
    assert "read 65536" in read
    assert "verification failed" not in read
    assert len(await asyncio.to_thread(lambda: list((paths.disks / "snapshots").iterdir()))) == 1
    await api.delete(SNAPSHOTS, "default", "before")

    async def no_copies() -> bool:
        return not await asyncio.to_thread(lambda: list((paths.disks / "snapshots").iterdir()))

    await eventually(no_copies)


async def gone(api: Api, resource: Resource, name: str) -> bool:
    try:
        await api.get(resource, "default", name)
    except NotFound:
        return True
    return False


async def test_a_guest_whose_service_stops_is_not_ready_and_then_replaced(api: Api, paths: StackPaths) -> None:
    document = vm("p")
    inner = document["spec"]["template"]
    inner["metadata"] = {"annotations": {"sim.poolhouse.dev/service-seconds": "15"}}
    inner["spec"] |= {
        "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 1},
        "livenessProbe": {
            "tcpSocket": {"port": 80},
            "initialDelaySeconds": 10,
            "periodSeconds": 2,
            "timeoutSeconds": 4,
            "failureThreshold": 4,
        },
        "networks": [{"name": "default", "pod": {}}],
    }
    inner["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}}]
    await api.create(VMS, document)
    seen: list[tuple[str, str, str]] = []

    def stopped(uid: str) -> bool:
        states = [each[1:] for each in seen if each[0] == uid]
        return ("True", "") in states and ("False", "ContainersNotReady") in states[states.index(("True", "")) :]

    async def replaced() -> bool:
        """Whether a guest was ready, then not ready, and another one has its place. On a busy machine the service of
        the first guest may have stopped before a probe reached it; then the second guest shows it."""
        with contextlib.suppress(NotFound):
            found = await api.get(VMIS, "default", "p")
            conditions = {each["type"]: each for each in found.get("status", {}).get("conditions") or ()}
            state = conditions.get("Ready") or {}
            now = found["metadata"]["uid"], state.get("status", ""), state.get("reason", "")
            if now not in seen[-1:]:
                seen.append(now)
        return any(map(stopped, {each[0] for each in seen} - {seen[-1][0] if seen else ""}))

    try:
        await eventually(replaced)
    except AssertionError as error:
        error.add_note(f"seen: {seen}")
        raise

    async def told() -> bool:
        events, _ = await api.list(EVENTS, "default", field_selector="regarding.name=p")
        notes = [str(each.get("note")) for each in events if each.get("reason") == "Unhealthy"]
        return any(note.startswith("Liveness probe failed: ") for note in notes)

    await eventually(told)


@pytest.mark.parametrize(("policy", "another"), [("Terminate", True), ("Reboot", False)])
async def test_a_reboot_of_the_guest_ends_a_vmi_whose_policy_says_so(
    api: Api, paths: StackPaths, policy: str, another: bool
) -> None:
    document = vm("r", annotations={"sim.poolhouse.dev/reboot-seconds": "3"})
    document["spec"]["template"]["spec"]["domain"]["rebootPolicy"] = policy
    await api.create(VMS, document)
    first = await eventually(lambda: any_vmi(api, "r"))
    await Console(paths, "r").shows(UP, 2)
    found = await eventually(lambda: any_vmi(api, "r"))
    assert (found["metadata"]["uid"] != first["metadata"]["uid"]) is another


async def any_vmi(api: Api, name: str) -> Json | None:
    """The VMI, or None between two of them."""
    try:
        return await api.get(VMIS, "default", name)
    except NotFound:
        return None
