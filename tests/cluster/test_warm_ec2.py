"""Warm pools of EC2 instances with an agent in each, as in the design document."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import boto3
import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

from controllers.warmpool import controller as pooling
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.orphaning import FINALIZER
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.kinds import meta
from poolhouse.cli.main import poolhouse
from poolhouse.cli.virtual_kubelet import ImportOptions, import_config
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import SECRETS
from tests.builders import manifest
from tests.cli.test_virtual_kubelet import SAMPLE
from tests.cluster.claiming import CLAIMS, Counter
from tests.cluster.instances import REGION, Ec2, ec2
from tests.cluster.pooling import until
from tests.cluster.resting import rests
from tests.cluster.warm_pools import controllers, namespace
from tests.controllers.warmpool.agents import Agent, agent
from tests.controllers.warmpool.builders import PERMITTED
from tests.waiting import eventually

Json = dict[str, Any]

__all__ = ["agent"]


@pytest.fixture(scope="module")
def cloud() -> Iterator[Ec2]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "test")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
        # Each session reads the model of EC2 anew, which takes a quarter of a second of processor time.
        session = boto3.Session()
        environment.setattr(boto3, "Session", lambda: session)
        with ec2() as found:
            yield found


@pytest_asyncio.fixture
async def desk(control_plane: Any, cloud: Ec2) -> AsyncIterator[Counter]:
    async with namespace(control_plane.kubeconfig) as found:
        cloud.namespace = found.namespace
        try:
            yield Counter(found.api, found.namespace)
        finally:
            cloud.namespace = ""
            for resource in (CLAIMS, WARM_POOLS):
                for each in (await found.api.list(resource, found.namespace))[0]:
                    with suppress(NotFound):
                        await found.api.delete(resource, found.namespace, each["metadata"]["name"])
            if left := cloud.ids("pending", "running"):
                cloud.client.terminate_instances(InstanceIds=list(left))


@pytest_asyncio.fixture
async def agents() -> AsyncIterator[Agent]:
    async with agent() as found:
        yield found


async def made(
    desk: Counter, cloud: Ec2, replicas: int, name: str = "mac", *, ec2: Json | None = None, **spec: Any
) -> Json:
    given = {"imageID": cloud.images[0], "instanceType": "m5.large", "subnets": cloud.subnets, **(ec2 or {})}
    spec = {"replicas": replicas, "ec2": given, "health": {"periodSeconds": 1, "timeoutSeconds": 60}, **spec}
    return await desk.api.create(WARM_POOLS, manifest(WARM_POOLS, name, spec, desk.namespace))


def states(cloud: Ec2, pool: str = "mac") -> Callable[[], Any]:
    async def found() -> list[str]:
        return await asyncio.to_thread(cloud.states, pool)

    return found


async def in_use(cloud: Ec2) -> Json:
    """The instance in use. A claim is Ready a moment before its instance is."""

    async def found() -> list[Json]:
        return await asyncio.to_thread(cloud.instances, WarmPool="InUse")

    (instance,) = await eventually(found)
    return instance


@pytest.mark.sentence("5.52", "5.53", "5.56")
async def test_the_sample_of_the_design_document_creates_eleven_instances(
    control_plane: Any, desk: Counter, cloud: Ec2
) -> None:
    # The subnets and images of the sample do not exist in the fake EC2.
    images = dict(zip(("ami-1287634276", "ami-9876789679"), cloud.images, strict=True))
    pools = [
        {**each, "ImageID": images[each["ImageID"]], **({"Subnets": cloud.subnets} if "Subnets" in each else {})}
        for each in SAMPLE
    ]
    config = {"ManagementSubnet": cloud.subnets[0], "WarmPoolConfig": pools}
    found = import_config(config, ImportOptions(namespace=desk.namespace))
    assert found.problems == ()
    for document in found.manifests:
        await desk.api.create(WARM_POOLS, document)
    async with controllers(control_plane.kubeconfig, cloud.settings) as running:
        for number, replicas in enumerate((2, 5, 3, 1), 1):
            await until(states(cloud, f"warmpool-{number}"), ["Ready"] * replicas)
        for number, replicas in enumerate((2, 5, 3, 1), 1):
            await until(lambda n=number: desk.available(f"warmpool-{n}"), replicas)
        there = cloud.ids()
        assert len(there) == 11
        await rests(running.written, 2)
        assert cloud.ids() == there
        assert cloud.ids("terminated") == set()
    for instance in cloud.instances():
        tags = instance["Tags"]
        assert tags["WarmPool"] == "Ready"
        assert instance["SubnetId"] == tags[meta.PLACEMENT]
        number = int(tags[meta.WARM_POOL].removeprefix("warmpool-")) - 1
        # The default of the design document is a Mac; EC2's own default is another type.
        assert instance["InstanceType"] == SAMPLE[number].get("InstanceType", "mac1.metal")


async def test_instances_get_the_user_data_of_a_virtual_kubelet(control_plane: Any, desk: Counter, cloud: Ec2) -> None:
    agent = {"s3Bucket": "agents", "s3Key": "agent-1", "initData": "YWdlbnQ="}
    more = {
        "bootstrapAgent": agent,
        "initData": "dm0=",
        "tags": {"team": "red"},
        "blockDevices": [{"deviceName": "/dev/sda1", "sizeGiB": 12, "type": "gp3"}],
        "metadataOptions": {"httpTokens": "required"},
    }
    async with controllers(control_plane.kubeconfig, cloud.settings):
        await made(desk, cloud, 1, ec2=more)
        await until(states(cloud), ["Ready"])
    (instance,) = cloud.instances()
    assert instance["Tags"]["team"] == "red"
    encoded = cloud.client.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
    found = json.loads(b64decode(b64decode(encoded["UserData"]["Value"])))
    assert (found["vm-init-config"], found["bootstrap-agent-config"]) == ("dm0=", "YWdlbnQ=")
    assert found["bootstrap-agent-download-url"].startswith(f"{cloud.endpoint}/agents/agent-1?")
    (volume,) = cloud.client.describe_volumes(VolumeIds=[instance["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]])[
        "Volumes"
    ]
    assert (volume["Size"], volume["VolumeType"]) == (12, "gp3")


@pytest.mark.sentence("5.11", "5.12", "5.15", "5.20", "5.33", "5.34", "5.36", "5.57", "5.64")
async def test_claims_of_instances(control_plane: Any, desk: Counter, cloud: Ec2, agents: Agent) -> None:
    grpc = {"port": agents.port, "protocol": "GRPC"}
    async with controllers(control_plane.kubeconfig, cloud.settings):
        await made(desk, cloud, 2, default=True, ec2=grpc, claimPolicy=PERMITTED)
        await until(states(cloud), ["Ready", "Ready"])
        waiting = cloud.ids()
        uid = (await desk.claim("mine"))["metadata"]["uid"]
        said = await desk.becomes("mine", "Ready")
        used = await in_use(cloud)
        assert said["instanceRef"] == {"id": used["InstanceId"]}
        assert said["launchType"] == "Warm"
        assert used["InstanceId"] in waiting
        assert said["addresses"][0] == used["PrivateIpAddress"]
        who = {"name": "mine", "namespace": desk.namespace, "uid": uid}
        assert agents.launched == [who]
        tags = used["Tags"]
        assert {
            key: tags[f"KubernetesPod{word}"]
            for key, word in (("name", "Name"), ("namespace", "Namespace"), ("uid", "UUID"))
        } == who
        await until(states(cloud), ["InUse", "Ready", "Ready"])
        await desk.unclaim("mine")
        await until(states(cloud), ["Ready", "Ready"])
        assert agents.terminated == 1
        # The annotations of the design document: no waiting instance fits, so one is launched.
        wanted = {"compute.amazonaws.com/instance-type": "m5.xlarge", "poolhouse.dev/image-id": cloud.images[1]}
        await desk.claim("other", annotations=wanted)
        said = await desk.becomes("other", "Ready")
        assert said["launchType"] == "Cold"
        assert said["launchReason"].startswith("OverrideMismatch")
        made_for_it = await in_use(cloud)
        assert (made_for_it["InstanceType"], made_for_it["ImageId"]) == ("m5.xlarge", cloud.images[1])
        await desk.unclaim("other")
        await until(states(cloud), ["Ready", "Ready"])
        assert cloud.ids("shutting-down", "terminated") >= {used["InstanceId"]}


@pytest.mark.sentence("5.16")
async def test_the_application_of_a_claim(control_plane: Any, desk: Counter, cloud: Ec2, agents: Agent) -> None:
    grpc = {"port": agents.port, "protocol": "GRPC"}
    secret = {"valueFrom": {"secretKeyRef": {"name": "tokens", "key": "ci"}}}
    container = {"name": "build", "image": "builder:1", "args": ["all"], "env": [{"name": "TOKEN", **secret}]}

    async def application_health() -> tuple[str, str]:
        conditions = (await desk.api.get(CLAIMS, desk.namespace, "mine"))["status"]["conditions"]
        return next(((c["status"], c["reason"]) for c in conditions if c["type"] == "ApplicationHealthy"), ("", ""))

    async with controllers(control_plane.kubeconfig, cloud.settings):
        await made(desk, cloud, 1, ec2=grpc, claimPolicy={**PERMITTED, "allowApplication": True})
        await until(states(cloud), ["Ready"])
        await desk.claim("mine", poolName="mac", application={"containers": [container], "restartPolicy": "Never"})
        (waiting,) = cloud.ids()

        async def reason() -> str:
            status = (await desk.api.get(CLAIMS, desk.namespace, "mine")).get("status") or {}
            return next((c["reason"] for c in status.get("conditions") or () if c["type"] == "Bound"), "")

        await until(reason, "ApplicationSourceMissing")
        assert cloud.states("mac") == ["Ready"], "no instance is used up for a claim that cannot start"
        body = {"metadata": {"name": "tokens", "namespace": desk.namespace}, "stringData": {"ci": "s3cret"}}
        await desk.api.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", **body})
        said = await desk.becomes("mine", "Ready")
        assert said["instanceRef"] == {"id": waiting}
        (spec,) = agents.specs
        assert spec["containers"][0]["env"] == [{"name": "TOKEN", "value": "s3cret"}]
        assert (spec["containers"][0]["args"], spec["restartPolicy"]) == (["all"], "Never")
        await until(application_health, ("True", "ApplicationRunning"))
        agents.phase = "Failed"
        await until(application_health, ("False", "ApplicationFailed"))
        agents.phase = "Succeeded"
        await until(application_health, ("True", "ApplicationSucceeded"))


@pytest.mark.sentence("5.35", "5.65")
async def test_an_instance_whose_application_fails_is_terminated(
    control_plane: Any, desk: Counter, cloud: Ec2, agents: Agent
) -> None:
    agents.phase = "Failed"
    async with controllers(control_plane.kubeconfig, cloud.settings):
        await made(desk, cloud, 1, ec2={"port": agents.port, "protocol": "GRPC"}, default=True)
        await until(states(cloud), ["Ready"])
        (first,) = cloud.ids()
        # The short timeout comes after the start of the instance, which may take longer.
        await desk.change("mac", readiness={"timeoutSeconds": 2})
        await until(lambda: desk.observed("mac"), True)
        await desk.claim("mine")
        said = await desk.becomes("mine", "Failed")
        assert said["attempts"] == 2
        await desk.change("mac", readiness={"timeoutSeconds": 300})
        await until(states(cloud), ["Ready"])
        assert first in cloud.ids("shutting-down", "terminated")


@pytest.mark.sentence("5.19", "5.21", "5.28", "5.29")
async def test_an_instance_is_ready_when_its_agent_serves(
    control_plane: Any, desk: Counter, cloud: Ec2, agents: Agent
) -> None:
    agents.serving(False)
    async with controllers(control_plane.kubeconfig, cloud.settings):
        await made(desk, cloud, 1, ec2={"port": agents.port, "protocol": "GRPC"})
        await until(states(cloud), ["PENDING_WARMPOOL_PROVISIONING"])
        agents.serving(True)
        await until(states(cloud), ["Ready"])
        # A deleted pool orphans its instances.
        await desk.change("mac", deletionPolicy="Orphan")
        await until(lambda: finalizers(desk), [FINALIZER])
        await desk.api.delete(WARM_POOLS, desk.namespace, "mac")
        await until(lambda: finalizers(desk), None)
        (left,) = cloud.instances()
        assert left["Tags"][meta.ORPHANED] == "PoolDeleted"
        assert left["Tags"]["WarmPool"] == "Ready"


@pytest.mark.sentence("5.45")
async def test_orphaned_instances_are_adopted(
    control_plane: Any, desk: Counter, cloud: Ec2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.endpoint)
    options = ("--kubeconfig", str(control_plane.kubeconfig), "-n", desk.namespace)

    async def adopt(*words: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, poolhouse, ["warmpool", "adopt", "mac", *words, *options])

    def of_region(*words: str) -> Any:
        return adopt(*words, "--region", REGION)

    async with controllers(control_plane.kubeconfig, cloud.settings):
        await made(desk, cloud, 2, deletionPolicy="Orphan")
        await until(states(cloud), ["Ready", "Ready"])
        await until(lambda: finalizers(desk), [FINALIZER])
        await desk.api.delete(WARM_POOLS, desk.namespace, "mac")
        await until(lambda: finalizers(desk), None)
        orphans = cloud.ids()
        pool = await made(desk, cloud, 0)
        await until(lambda: desk.observed("mac"), True)
        assert "give --region" in (await adopt("--orphaned")).output
        full = await of_region("--orphaned")
        assert (full.exit_code, "raise spec.replicas" in full.stdout) == (1, True), (full.output, full.exception)
        # The pool would launch instances of its own if it were not paused.
        await desk.change("mac", paused=True, replicas=2)
        tried = await of_region("--orphaned", "-o", "json")
        assert {(row["instance"], row["adopted"]) for row in json.loads(tried.stdout)} == {(i, False) for i in orphans}
        done = await of_region(*sorted(orphans), "--yes")
        assert done.exit_code == 0, done.output
        # A pool that has not seen its new instances would launch others.
        await until(lambda: desk.available("mac"), 2)
        await desk.change("mac", paused=False)
        await until(states(cloud), ["Ready", "Ready"])
        await until(lambda: desk.available("mac"), 2)
        assert cloud.ids() == orphans, "none was launched or terminated"
        assert {each["Tags"][meta.POOL_UID] for each in cloud.instances()} == {pool["metadata"]["uid"]}
        again = await of_region(*sorted(orphans), "i-0123456789abcdef0")
        assert again.exit_code == 1
        assert "belongs to the pool already" in again.stdout


async def finalizers(desk: Counter) -> list[str] | None:
    try:
        found = await desk.api.get(WARM_POOLS, desk.namespace, "mac")
    except NotFound:
        return None
    return list(found["metadata"].get("finalizers") or ())


@pytest.mark.sentence("5.17", "5.41", "5.43", "5.60")
async def test_a_restarted_controller_finds_instances_by_their_tags(
    control_plane: Any, desk: Counter, cloud: Ec2
) -> None:
    async with controllers(control_plane.kubeconfig, cloud.settings):
        await made(desk, cloud, 2, default=True)
        await until(states(cloud), ["Ready", "Ready"])
        await desk.claim("mine")
        await desk.becomes("mine", "Ready")
        await until(states(cloud), ["InUse", "Ready", "Ready"])
        there = cloud.ids()
    async with controllers(control_plane.kubeconfig, cloud.settings):
        await until(lambda: desk.available("mac"), 2)
        await desk.claim("next")
        said = await desk.becomes("next", "Ready")
        assert said["instanceRef"]["id"] in there, said
        assert (await desk.phase("mine")) == "Ready"
        await until(states(cloud), ["InUse", "InUse", "Ready", "Ready"])
        assert there <= cloud.ids()
        # A user terminates a waiting instance and one in use.
        waiting = next(iter(cloud.ids(WarmPool="Ready")))
        cloud.client.terminate_instances(InstanceIds=[waiting, said["instanceRef"]["id"]])
        lost = await desk.becomes("next", "Failed")
        assert lost["instanceRef"] == said["instanceRef"]
        assert await desk.reason("next") == "VMLost"
        await until(states(cloud), ["InUse", "Ready", "Ready"])


@pytest.mark.sentence("5.44")
async def test_instances_of_an_old_template_are_orphaned(control_plane: Any, desk: Counter, cloud: Ec2) -> None:
    first, second = cloud.images
    async with controllers(control_plane.kubeconfig, cloud.settings):
        await made(desk, cloud, 1, ec2={"imageID": first}, incompatiblePolicy="Orphan")
        await until(states(cloud), ["Ready"])
        (old,) = cloud.ids()
        await desk.change("mac", ec2={"imageID": second})

        async def images() -> list[str]:
            found = await asyncio.to_thread(cloud.instances)
            return sorted(each["ImageId"] for each in found if not each["Tags"].get(meta.ORPHANED))

        await until(images, [second])
        (orphan,) = (each for each in cloud.instances() if each["InstanceId"] == old)
        assert orphan["Tags"][meta.ORPHANED] == "TemplateChanged"
        await desk.api.delete(WARM_POOLS, desk.namespace, "mac")
        await until(lambda: asyncio.to_thread(cloud.ids), {old})  # the others are deleted with their pool


@pytest.mark.sentence("5.59")
async def test_a_refusal_of_ec2_is_a_condition_and_is_retried(control_plane: Any, desk: Counter, cloud: Ec2) -> None:
    async with controllers(control_plane.kubeconfig, cloud.settings):
        refill = {"backoffSeconds": 1, "maxBackoffSeconds": 1}
        await made(desk, cloud, 1, ec2={"subnets": ["subnet-nobody"]}, refill=refill)
        await until(lambda: desk.condition("Degraded", "mac"), ("True", "FailedCreate"))
        assert "subnet-nobody" in (await desk.status("mac"))["failures"]["lastMessage"]
        await desk.change("mac", ec2={"subnets": cloud.subnets})
        await until(states(cloud), ["Ready"])


@pytest.mark.sentence("5.40")
async def test_a_pool_reports_a_missing_region(control_plane: Any, desk: Counter, cloud: Ec2) -> None:
    async with controllers(control_plane.kubeconfig):
        await made(desk, cloud, 1, default=True)
        await until(lambda: desk.condition("Degraded", "mac"), ("True", "FailedCreate"))
        assert "POOLHOUSE_EC2_REGION" in (await desk.status("mac"))["failures"]["lastMessage"]
        assert cloud.ids() == set()


@pytest.mark.sentence("5.27")
async def test_no_instance_is_terminated_while_ec2_is_unreachable(
    control_plane: Any, desk: Counter, cloud: Ec2, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with controllers(control_plane.kubeconfig, cloud.settings):
        await made(desk, cloud, 2)
        await until(states(cloud), ["Ready", "Ready"])
        # The status is written after the tags.
        await until(lambda: desk.available("mac"), 2)
        there = cloud.ids()
    monkeypatch.setattr(pooling, "UNAVAILABLE_SECONDS", 1.0)
    nowhere = EC2Settings(region=cloud.settings.region, endpoint="http://127.0.0.1:9", period_seconds=0.3)
    async with controllers(control_plane.kubeconfig, nowhere) as running:
        await until(lambda: desk.condition("Degraded", "mac"), ("True", "BackendUnavailable"))
        assert await desk.available("mac") == 2, "the last known number stays"
        assert "PoolEmpty" not in await desk.news()
        await rests(running.written, 1)
    assert cloud.ids() == there
