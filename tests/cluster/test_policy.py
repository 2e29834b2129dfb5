"""Migration policies on the real API server: stamps, the policies that enforce ours, conditions, counts, and rest."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from controllers.migrationpolicy.controller import build
from controllers.migrationpolicy.observe import POLICIES
from controllers.shared.component import ControllerContext
from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.kinds import kubevirt, meta
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.cli.main import poolhouse
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Invalid, NotFound
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.resource import CRDS, KUBEVIRTS, NAMESPACES, UPSTREAM_POLICIES, VMIS, Resource
from tests.builders import manifest, vmi_spec
from tests.cluster.pooling import clear, serve, serve_once
from tests.kinds.policies import policy, upstream
from tests.migrationpolicies.test_precedence import DOCUMENT, VMI
from tests.migrationpolicies.test_precedence import NAMESPACE as LABELS
from tests.waiting import eventually

Json = dict[str, Any]
KINDS = (MIGRATION_POLICY, kubevirt.VMI, kubevirt.UPSTREAM_POLICY, kubevirt.KUBEVIRT)


class Cluster:
    """An API server, and what a test put into it."""

    def __init__(self, api: Api, ours: Api, kubeconfig: Path, controllers: Path, namespace: str) -> None:
        self.api = api
        self.ours = ours
        """with the rights of the controllers, who alone may write a stamp"""
        self.kubeconfig = kubeconfig
        self.controllers = controllers
        self.namespace = namespace

    async def command(self, *arguments: str, code: int = 0) -> str:
        """What `poolhouse policy` prints. Only a command that fails runs as a process, because a process takes a second
        of a core to start."""
        words = ["policy", *arguments, "--kubeconfig", str(self.kubeconfig), "-n", self.namespace]
        if not code:
            done = await asyncio.to_thread(CliRunner().invoke, poolhouse, words)
            assert done.exit_code == 0, done.output
            return done.output
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "poolhouse.cli.main", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        assert process.returncode == code, printed.decode()
        return printed.decode()

    async def instance(self, name: str, labels: Json) -> None:
        await self.ours.create(VMIS, manifest(VMIS, name, vmi_spec({}), self.namespace, labels=labels))

    async def policy(self, name: str, instance: Any = None, namespace: Any = None, **settings: Any) -> Json:
        return await self.api.create(POLICIES, policy(name, instance, namespace, **settings))

    async def label(self, name: str, **labels: str | None) -> None:
        await self.ours.patch(VMIS, self.namespace, name, {"metadata": {"labels": labels}})

    async def stamp(self, name: str) -> str | None:
        found = await self.api.get(VMIS, self.namespace, name)
        stamped: str | None = found["metadata"].get("labels", {}).get(meta.MIGRATION_POLICY)
        return stamped

    async def obeys(self, name: str, winner: str | None) -> None:
        async def holds() -> bool:
            return await self.stamp(name) == winner

        await eventually(holds)

    async def counts(self, name: str, wins: int, losses: int) -> None:
        async def holds() -> bool:
            status = (await self.api.get(POLICIES, None, name)).get("status", {})
            return (status.get("wins"), status.get("losses")) == (wins, losses)

        await eventually(holds)

    async def says(self, name: str, condition: str, reason: str) -> str:
        said = ""

        async def holds() -> bool:
            nonlocal said
            conditions = (await self.api.get(POLICIES, None, name)).get("status", {}).get("conditions", [])
            found = [each for each in conditions if each["type"] == condition]
            said = found[0]["message"] if found else ""
            return bool(found) and found[0]["reason"] == reason

        await eventually(holds)
        return said

    async def enforcer(self, name: str, spec: Json | None) -> None:
        """KubeVirt's policy of this name has this spec, or is not there."""

        async def holds() -> bool:
            try:
                found = await self.api.get(UPSTREAM_POLICIES, None, name)
            except NotFound:
                return spec is None
            return bool(found["spec"] == spec)

        # Garbage collection comes to know of a new kind within half a minute.
        await eventually(holds)


def enforcing(name: str, **settings: Any) -> Json:
    return {**settings, "selectors": {"virtualMachineInstanceSelector": {meta.MIGRATION_POLICY: name}}}


@asynccontextmanager
async def controlling(api: Api, **settings: Any) -> AsyncIterator[None]:
    """The controller, as `main` runs it."""
    events = EventRecorder(api, "poolhouse.dev/tests")
    part = build(ControllerContext(api=api, events=events), **settings)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(events.run())
            for informer in part.informers:
                group.create_task(informer.run())
            for informer in part.informers:
                await informer.synced()
            await part.work()

    task = asyncio.create_task(work())
    try:
        yield
        assert not task.done(), task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest_asyncio.fixture
async def cluster(control_plane: Any) -> AsyncIterator[Cluster]:
    kubeconfig, controllers = control_plane.kubeconfig, control_plane.kubeconfig_of("controllers")
    async with (
        await Api.connect(kubeconfig, user_agent="tests", timeout_seconds=60) as api,
        await Api.connect(controllers, user_agent="tests-controllers", timeout_seconds=60) as ours,
    ):
        await serve_once(api, *KINDS)
        document = manifest(NAMESPACES, generateName="policies-", labels=LABELS)
        namespace = (await api.create(NAMESPACES, document))["metadata"]["name"]
        try:
            yield Cluster(api, ours, kubeconfig, controllers, namespace)
        finally:
            for resource in (POLICIES, UPSTREAM_POLICIES):
                for each in (await api.list(resource))[0]:
                    with suppress(NotFound):
                        await api.delete(resource, None, each["metadata"]["name"])
            await clear(api, namespace)


@pytest_asyncio.fixture
async def controller(cluster: Cluster) -> AsyncIterator[None]:
    async with controlling(cluster.ours):
        yield


@pytest.mark.sentence("3.1", "3.13")
async def test_the_documents_policies_win_one_after_the_other(cluster: Cluster, controller: None) -> None:
    await cluster.instance("vm", VMI)
    for each in DOCUMENT:
        await cluster.policy(each.name, dict(each.selectors.instance), dict(each.selectors.namespace))
    for winner in DOCUMENT[:6]:
        await cluster.obeys("vm", winner.name)
        await cluster.api.delete(POLICIES, None, winner.name)
    await cluster.obeys("vm", None)
    await cluster.counts("t7", 0, 0)


@pytest.mark.sentence("3.20")
async def test_the_manifest_is_taken_as_it_is_written_even_while_no_webhook_is_there(
    cluster: Cluster, controller: None
) -> None:
    settings = {"allowAutoConverge": True, "bandwidthPerMigration": "217Ki", "completionTimeoutPerGiB": 23}
    await cluster.api.patch(NAMESPACES, None, cluster.namespace, {"metadata": {"labels": {"hpc-workloads": "true"}}})
    await cluster.instance("vm", {"workload-type": "db", "operating-system": "fedora"})
    await cluster.policy(
        "my-awesome-policy",
        {"workload-type": "db", "operating-system": ""},
        {"hpc-workloads": True, "priority": ""},
        **settings,
        allowPostCopy=False,
        disableTLS=False,
    )
    await cluster.obeys("vm", "my-awesome-policy")
    await cluster.counts("my-awesome-policy", 1, 0)
    await cluster.enforcer("my-awesome-policy", enforcing("my-awesome-policy", **settings, allowPostCopy=False))
    await cluster.says("my-awesome-policy", "Enforced", "InSync")


async def test_the_api_server_alone_refuses_nonsense(cluster: Cluster) -> None:
    for wrong in (
        policy("p", {"a": "1"}, bandwidthPerMigration="-1"),
        policy("p", {"a": "1"}, completionTimeoutPerGiB=-1),
        policy("x" * 64, {"a": "1"}),
    ):
        try:
            await cluster.api.create(POLICIES, wrong, dry_run=True)
        except Invalid:
            continue
        raise AssertionError(f"{wrong} was taken")


@pytest.mark.sentence("3.4")
async def test_labels_of_vms_and_namespaces_decide_again(cluster: Cluster, controller: None) -> None:
    await cluster.instance("vm", {"app": "web"})
    await cluster.policy("web", {"app": "web"})
    await cluster.policy("lab", {"app": "web"}, {"lab": ""})
    await cluster.obeys("vm", "web")
    await cluster.api.patch(NAMESPACES, None, cluster.namespace, {"metadata": {"labels": {"lab": "x"}}})
    await cluster.obeys("vm", "lab")
    await cluster.counts("lab", 1, 0)
    await cluster.counts("web", 0, 1)
    await cluster.label("vm", app="db")
    await cluster.obeys("vm", None)
    await cluster.counts("web", 0, 0)


async def test_a_label_of_a_policy_that_a_user_changes_is_restored(cluster: Cluster, controller: None) -> None:
    await cluster.instance("vm", {"app": "web", meta.MIGRATION_POLICY: "no-such-policy"})
    await cluster.instance("other", {"app": "db", meta.MIGRATION_POLICY: "web"})
    await cluster.policy("web", {"app": "web"})
    await cluster.obeys("vm", "web")
    await cluster.obeys("other", None)
    await cluster.label("vm", **{meta.MIGRATION_POLICY: None})
    await cluster.obeys("vm", "web")


async def test_a_changed_policy_is_restored_and_deleted_with_its_owner(cluster: Cluster, controller: None) -> None:
    allowed = {"allowPostCopy": True, "allowWorkloadDisruption": True}
    await cluster.policy("web", {"app": "web"}, **allowed)
    await cluster.enforcer("web", enforcing("web", **allowed))
    await cluster.api.patch(UPSTREAM_POLICIES, None, "web", {"spec": dict.fromkeys(allowed, False) | {"multifd": 4}})
    await cluster.enforcer("web", enforcing("web", **allowed, multifd=4))
    await cluster.api.delete(UPSTREAM_POLICIES, None, "web")
    await cluster.enforcer("web", enforcing("web", **allowed))
    await cluster.api.patch(POLICIES, None, "web", {"spec": {"allowPostCopy": None, "allowAutoConverge": True}})
    await cluster.enforcer("web", enforcing("web", allowAutoConverge=True, allowWorkloadDisruption=True))
    await cluster.api.delete(POLICIES, None, "web")
    await cluster.enforcer("web", None)


async def test_a_setting_is_sent_when_kubevirt_has_it(cluster: Cluster, controller: None) -> None:
    await cluster.api.create(KUBEVIRTS, manifest(KUBEVIRTS, "kubevirt", {}, cluster.namespace))
    version = {"status": {"observedKubeVirtVersion": "v1.9.0"}}
    await cluster.api.patch(KUBEVIRTS, cluster.namespace, "kubevirt", version, subresource="status")
    await cluster.policy("web", {"app": "web"}, maxDowntimeMs=500, allowPostCopy=False)
    assert "feature gate MigrationStallDetection" in await cluster.says("web", "Enforced", "Unsupported")
    await cluster.enforcer("web", enforcing("web", allowPostCopy=False))
    configuration = {
        "developerConfiguration": {"featureGates": ["MigrationStallDetection"]},
        "migrations": {"allowWorkloadDisruption": True},
    }
    changed = {"spec": {"configuration": configuration}}
    await cluster.api.patch(KUBEVIRTS, cluster.namespace, "kubevirt", changed)
    settings = {"allowPostCopy": False, "allowWorkloadDisruption": True, "maxDowntimeMs": 500}
    await cluster.enforcer("web", enforcing("web", **settings))
    await cluster.says("web", "Enforced", "InSync")
    await cluster.api.delete(KUBEVIRTS, cluster.namespace, "kubevirt")


@pytest.mark.sentence("3.23")
async def test_an_expired_policy_returns_its_vmis_to_their_former_policy(cluster: Cluster, controller: None) -> None:
    await cluster.instance("vm", {"app": "web"})
    await cluster.policy("web", {"app": "web"})
    await cluster.obeys("vm", "web")
    later = format_time(datetime.now(UTC) + timedelta(hours=1))
    await cluster.policy("event", {"app": "web"}, {"kubernetes.io/metadata.name": ""}, expiresAt=later)
    await cluster.obeys("vm", "event")
    assert later in await cluster.says("event", "Active", "Accepted")
    ends = format_time(datetime.now(UTC) + timedelta(seconds=3))
    await cluster.api.patch(POLICIES, None, "event", {"spec": {"expiresAt": ends}})
    await cluster.obeys("vm", "web")
    assert datetime.now(UTC) >= parse_time(ends)
    assert ends in await cluster.says("event", "Active", "Expired")
    await cluster.enforcer("event", None)
    await cluster.counts("event", 0, 0)
    await cluster.api.patch(POLICIES, None, "event", {"spec": {"expiresAt": later}})
    await cluster.obeys("vm", "event")


async def test_of_two_made_at_the_same_moment_one_is_marked_and_never_applied(
    cluster: Cluster, controller: None
) -> None:
    await cluster.instance("vm", {"app": "web"})
    both = [policy(name, {"app": "web"}) for name in ("one", "two")]
    made = await asyncio.gather(*(cluster.api.create(POLICIES, each) for each in both))
    elder, loser = sorted(
        (each["metadata"] for each in made), key=lambda each: (each["creationTimestamp"], each["name"])
    )
    said = await cluster.says(loser["name"], "Active", "SameSelectors")
    assert f"Policy {elder['name']} " in said
    await cluster.says(loser["name"], "Enforced", "NotActive")
    await cluster.obeys("vm", elder["name"])
    await cluster.enforcer(elder["name"], enforcing(elder["name"]))
    await cluster.enforcer(loser["name"], None)
    await cluster.counts(loser["name"], 0, 0)
    await cluster.api.delete(POLICIES, None, elder["name"])
    await cluster.obeys("vm", loser["name"])
    await cluster.says(loser["name"], "Active", "Accepted")


async def test_a_foreign_policy_that_may_outrank_ours_is_reported_until_it_is_deleted(
    cluster: Cluster, controller: None
) -> None:
    await cluster.policy("web", {"app": "web"})
    await cluster.policy("db", {"app": "db"})
    await cluster.says("web", "Enforced", "InSync")
    await cluster.api.create(UPSTREAM_POLICIES, upstream("theirs", {"app": "web", "os": "fedora"}))
    assert "theirs" in await cluster.says("web", "Enforced", "Overridden")
    await cluster.says("db", "Enforced", "InSync")
    await cluster.api.delete(UPSTREAM_POLICIES, None, "theirs")
    await cluster.says("web", "Enforced", "InSync")


async def test_a_foreign_policy_of_the_same_name_stays_as_it_is(cluster: Cluster, controller: None) -> None:
    theirs = await cluster.api.create(UPSTREAM_POLICIES, upstream("web", {"os": "fedora"}))
    await cluster.policy("web", {"app": "web"})
    await cluster.says("web", "Enforced", "NameConflict")
    assert (await cluster.api.get(UPSTREAM_POLICIES, None, "web"))["spec"] == theirs["spec"]
    await cluster.api.delete(UPSTREAM_POLICIES, None, "web")
    await cluster.says("web", "Enforced", "InSync")
    await cluster.enforcer("web", enforcing("web"))


async def test_a_new_controller_finds_everything_as_it_should_be_and_writes_nothing(cluster: Cluster) -> None:
    async with controlling(cluster.ours):
        for n in range(10):
            await cluster.instance(f"vm-{n}", {"app": "web", "n": str(n % 3)})
        await cluster.policy("web", {"app": "web"}, allowPostCopy=True)
        await cluster.policy("zero", {"app": "web", "n": "0"}, disableTLS=True)
        await cluster.counts("web", 6, 4)
        await cluster.counts("zero", 4, 0)
        await cluster.says("zero", "Enforced", "Unsupported")
        await cluster.says("web", "Enforced", "InSync")
        for n in range(10):
            await cluster.obeys(f"vm-{n}", "web" if n % 3 else "zero")
    before = await versions(cluster)
    registry = CollectorRegistry()
    async with (
        await Api.connect(cluster.controllers, user_agent="tests", metrics=Metrics(registry)) as api,
        controlling(api),
    ):
        await asyncio.sleep(3)
    writes = Counter(
        {
            sample.labels["verb"]: sample.value
            for metric in registry.collect()
            for sample in metric.samples
            if sample.name.endswith("api_requests_total") and sample.labels["verb"] not in ("get", "list", "watch")
        }
    )
    assert not writes
    assert await versions(cluster) == before


async def test_policies_have_crd_not_installed_while_kubevirts_kind_is_missing(cluster: Cluster) -> None:
    async def without(kind: Kind, resource: Resource) -> None:
        await cluster.api.delete(CRDS, None, kind.crd_name)

        async def gone() -> bool:
            try:
                await cluster.api.list(resource)
            except NotFound:
                return True
            return False

        await eventually(gone)

    await without(kubevirt.UPSTREAM_POLICY, UPSTREAM_POLICIES)
    await without(kubevirt.KUBEVIRT, KUBEVIRTS)
    await cluster.instance("vm", {"app": "web"})
    async with controlling(cluster.ours, poll_seconds=0.2):
        await cluster.policy("web", {"app": "web"})
        await cluster.obeys("vm", "web")
        await cluster.says("web", "Enforced", "CRDNotInstalled")
        (note,) = json.loads(await cluster.command("explain", "vm", "-o", "json"))["notes"]
        assert note.startswith("not enforced: This cluster does not serve migrations.kubevirt.io")
        await serve(cluster.api, kubevirt.UPSTREAM_POLICY, kubevirt.KUBEVIRT)
        await cluster.says("web", "Enforced", "InSync")
        await cluster.enforcer("web", enforcing("web"))
        assert json.loads(await cluster.command("explain", "vm", "-o", "json"))["notes"] == []
        await without(kubevirt.UPSTREAM_POLICY, UPSTREAM_POLICIES)
        await cluster.says("web", "Enforced", "CRDNotInstalled")
        await serve(cluster.api, kubevirt.UPSTREAM_POLICY)
        await cluster.says("web", "Enforced", "InSync")
        await cluster.enforcer("web", enforcing("web"))


async def test_the_command_explains_what_is_and_what_would_be(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.instance("vm", VMI)
    for each in DOCUMENT:
        await cluster.policy(each.name, dict(each.selectors.instance), dict(each.selectors.namespace))
    told = json.loads(await cluster.command("explain", "vmi/vm", "-o", "json"))
    assert told["policy"] == "z1"
    assert [each["name"] for each in told["candidates"]] == ["z1", "y2", "x3", "w4", "v5", "u6"]
    assert [each["name"] for each in told["others"]] == ["t7"]
    assert told["settings"]["completionTimeoutPerGiB"] == {"value": 150, "source": "default"}
    assert "'bandwidth' comes before 'gpu'" in await cluster.command("explain", "vm")
    told = json.loads(await cluster.command("explain", "vmi/vm", "--with-label", "gpu=intel", "-o", "json"))
    assert told["policy"] == "w4"
    new = tmp_path / "new.yaml"
    new.write_text(json.dumps(policy("new", {**VMI, "gpu": ""}, {"hpc-workload": True, "priority": ""})))
    told = json.loads(await cluster.command("explain", "vm", "--with-policy", str(new), "-o", "json"))
    assert told["policy"] == "new"
    assert told["supposed"] is True
    told = json.loads(await cluster.command("impact", "-f", str(new), "-o", "json"))
    assert told["changes"] == [{"namespace": cluster.namespace, "name": "vm", "before": "z1", "after": "new"}]
    # Like `kubectl apply`, it keeps the selectors and the other fields that the file does not have.
    new.write_text(json.dumps({**policy("z1"), "spec": {"allowPostCopy": True}}))
    told = json.loads(await cluster.command("explain", "vm", "--with-policy", str(new), "-o", "json"))
    assert (told["policy"], told["settings"]["allowPostCopy"]["value"]) == ("z1", True)
    assert json.loads(await cluster.command("impact", "-f", str(new), "-o", "json"))["changes"] == []
    told = json.loads(await cluster.command("impact", "--without", "z1", "-o", "json"))
    assert told["changes"] == [{"namespace": cluster.namespace, "name": "vm", "before": "z1", "after": "y2"}]
    assert '"nobody" not found' in await cluster.command("explain", "nobody", code=1)
    new.write_text(json.dumps(policy("same", dict(DOCUMENT[5].selectors.instance))))
    assert '"u6"' in await cluster.command("impact", "-f", str(new), code=1)


async def versions(cluster: Cluster) -> dict[str, str]:
    """Of everything that the controller may write."""
    found = {}
    for resource, where in ((POLICIES, None), (UPSTREAM_POLICIES, None), (VMIS, cluster.namespace)):
        for each in (await cluster.api.list(resource, where))[0]:
            found[f"{resource.group}/{each['metadata']['name']}"] = each["metadata"]["resourceVersion"]
    return found
