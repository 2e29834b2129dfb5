"""The kinds on the real API server: what it takes, refuses, fills in and shows."""

from __future__ import annotations

import asyncio
import base64
import random
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from controllers.pool.pools import POOLS
from poolhouse.api.kinds import KINDS, POOL, kubevirt, meta
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.api.kinds.validation import schema_errors
from poolhouse.manifests import admission_policy, rbac, webhooks
from poolhouse.manifests.crd import object_schema
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, ApiError, Forbidden, Invalid
from poolhouse.runtime.resource import CRDS, NAMESPACES, PODS, PVCS, VMIS, VMS, Resource
from tests.builders import manifest, vm_spec
from tests.cluster import pooling
from tests.kinds.documents import BY_HAND, EXAMPLE, ORDERED, changed, machine, pool, read
from tests.kinds.test_pool import RIGHT, WRONG
from tests.kinds.test_replicaset import replica_set
from tests.kinds.test_validation import paths
from tests.waiting import eventually

Json = dict[str, Any]
ALL = tuple(dict.fromkeys((*KINDS, *kubevirt.KUBEVIRT_KINDS, REPLICA_SET)))
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}


def resource_of(document: Json) -> Resource:
    group, _, version = document["apiVersion"].rpartition("/")
    kind = document["kind"]
    plural = kind.lower()[:-1] + "ies" if kind.endswith("y") else kind.lower() + "s"
    return Resource(group, version, plural, kind, namespaced="namespace" in document["metadata"])


async def applied(api: Api, document: Json) -> Json:
    metadata = document["metadata"]
    return await api.patch(
        resource_of(document),
        metadata.get("namespace"),
        metadata["name"],
        document,
        kind="apply",
        field_manager="tests",
        force=True,
    )


async def established(api: Api, name: str) -> list[Json]:
    """The CRD's conditions, once it has made up its mind."""
    found: list[Json] = []

    async def decided() -> bool:
        nonlocal found
        found = (await api.get(CRDS, None, name)).get("status", {}).get("conditions", [])
        return any(c["type"] == "Established" and c["status"] == "True" for c in found)

    await eventually(decided)
    return found


@pytest_asyncio.fixture
async def api(control_plane: Any) -> AsyncIterator[Api]:
    """An API server that knows all kinds."""
    async with await Api.connect(Path(control_plane.kubeconfig), user_agent="tests", timeout_seconds=60) as found:
        await pooling.serve_once(found, *ALL)
        yield found


@pytest_asyncio.fixture
async def namespace(api: Api) -> AsyncIterator[str]:
    made = await api.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "kinds-"}}
    )
    name: str = made["metadata"]["name"]
    yield name
    await pooling.clear(api, name)


async def refusal(api: Api, namespace: str, document: Json) -> ApiError | None:
    """What the API server has against a document, with no webhook of ours asked."""
    document = changed(document, namespace, "metadata", "namespace")
    try:
        await api.request("POST", POOLS.path(namespace), body=document, query=STRICT)
    except ApiError as error:
        return error
    return None


async def test_every_kind_is_established_with_a_structural_schema(api: Api) -> None:
    for kind in ALL:
        conditions = {c["type"]: c["status"] for c in await established(api, kind.crd_name)}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}, kind.crd_name


async def test_manifests_apply_as_they_are_written_but_for_two_places(api: Api, namespace: str) -> None:
    assert await refusal(api, namespace, read(EXAMPLE)) is None
    assert "must not validate the schema" in str(await refusal(api, namespace, read(BY_HAND)))
    assert "orderedPolicies[0]" in str(await refusal(api, namespace, read(ORDERED)))
    assert await refusal(api, namespace, read(BY_HAND.replace("replica:", "replicas:"))) is None


async def test_the_api_server_accepts_each_valid_pool(api: Api, namespace: str) -> None:
    for row in RIGHT:
        assert await refusal(api, namespace, POOL.normalize(row.values[0])) is None, row.id


async def test_our_validation_names_the_fields_that_the_api_server_names(api: Api, namespace: str) -> None:
    for row in WRONG:
        document = POOL.normalize(row.values[0])
        refused = await refusal(api, namespace, document)
        if list(schema_errors(POOL.spec, document["spec"], "spec")):
            assert refused is not None, f"{row.id}: the schema of the API server is wider than ours"
        if isinstance(refused, Invalid):
            fields = {str(cause.get("field", "")).removeprefix(".") for cause in refused.causes}
            if "must not validate the schema" in str(refused):
                continue  # the schema refuses the object that has a wrong field, and misses the right field
            ours = {problem.path for problem in POOL.problems(document)}
            assert fields - {"", "<nil>"} <= ours, row.id


async def test_strict_decoding_leaves_frequent_mistakes_to_admission(api: Api, namespace: str) -> None:
    """Admission names the right field. While it is off, the schema refuses the wrong one."""
    document = pool(replica=3, virtualMachineTemplate={})
    document["metadata"]["namespace"] = namespace
    with pytest.raises(Invalid, match="must not validate the schema"):
        await api.request("POST", POOLS.path(namespace), query=STRICT, body=document)


async def test_any_change_to_a_pool_is_judged_as_the_api_server_judges_it(api: Api, namespace: str) -> None:
    chance = random.Random(7)
    full = pool(
        maxUnavailable="25%",
        paused=False,
        nameGeneration={"appendPostfixToSecretReferences": True},
        autohealing={"startupFailureThreshold": 2},
        updateStrategy={"proactive": {"selectionPolicy": {"basePolicy": "Newest"}}},
        scaleInStrategy={
            "proactive": {
                "statePreservation": "Offline",
                "selectionPolicy": {
                    "orderedPolicies": [
                        {"labelSelector": {"matchLabels": {"a": "b"}}},
                        {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}},
                    ]
                },
            }
        },
    )
    values = [None, True, 0, -1, 3, 2**31, 2**70, 1.5, "", "x", "10%", "Online", [], [1], {}, {"x": 1}, {"x": None}]
    places = [path for path in paths(full["spec"], "spec") if len(path) > 1]
    for _ in range(250):
        document = changed(full, chance.choice(values), *chance.choice(places))
        misfit = list(schema_errors(POOL.spec, document["spec"], "spec"))
        refused = await refusal(api, namespace, document)
        if refused is None:
            # It drops a label whose value is null, and so makes a selector wider than it was written. We don't.
            misfit = [problem for problem in misfit if "is null" not in problem.message]
        assert bool(misfit) == (refused is not None), (document["spec"], misfit, str(refused))


async def test_defaults_are_filled_in(api: Api, namespace: str) -> None:
    document = pool(
        autohealing={}, nameGeneration={}, scaleInStrategy={"proactive": {"selectionPolicy": {}}}, updateStrategy={}
    )
    made = await api.create(POOLS, changed(document, namespace, "metadata", "namespace"), dry_run=True)
    spec = made["spec"]
    del spec["template"]
    assert spec == {
        "replicas": 3,
        "maxUnavailable": "25%",
        "paused": False,
        "progressDeadlineSeconds": 600,
        "revisionHistoryLimit": 10,
        "evictionBudget": "Enabled",
        "autohealing": {
            "startupFailureThreshold": 3,
            "failingStatusSeconds": 300,
            "onlyInMaintenanceWindows": False,
        },
        "nameGeneration": {
            "appendPostfixToSecretReferences": False,
            "appendPostfixToConfigMapReferences": False,
        },
        "scaleInStrategy": {
            "proactive": {"selectionPolicy": {"basePolicy": "Random"}, "statePreservation": "Disabled"}
        },
        "updateStrategy": {},
    }


async def test_a_template_is_stored_as_it_is_written(api: Api, namespace: str) -> None:
    strange = {"metadata": {"labels": {"a": "b"}, "creationTimestamp": None, "future": [1]}, "spec": machine()}
    strange["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0]["disk"]["future"] = {"deep": [None, 1.5]}
    document = changed(pool(template=strange), namespace, "metadata", "namespace")
    made = await api.create(POOLS, document)
    assert made["spec"]["template"] == strange


@pytest.mark.parametrize("choice", [{"opportunistic": {}}, {"unmanaged": {}}])
async def test_another_strategy_takes_the_place_of_the_one_before(api: Api, namespace: str, choice: Json) -> None:
    proactive = {"proactive": {"selectionPolicy": {"orderedPolicies": [{"labelSelector": {}}]}}}
    document = changed(pool(scaleInStrategy=proactive), namespace, "metadata", "namespace")
    await applied(api, document)
    found = await applied(api, changed(document, choice, "spec", "scaleInStrategy"))
    assert found["spec"]["scaleInStrategy"].keys() == choice.keys()


async def test_status_and_scale_are_subresources(api: Api, namespace: str) -> None:
    document = changed(pool(), namespace, "metadata", "namespace")
    await api.create(POOLS, {**document, "status": {"replicas": 7}})
    status = {
        "status": {
            "replicas": 2,
            "readyReplicas": 1,
            "labelSelector": f"{meta.POOL}=my-vm-pool",
            "observedGeneration": 1,
            "conditions": [{"type": "Available", "status": "False", "reason": "NotReady", "message": ""}],
            "healing": {"failing": 1, "vms": [{"name": "my-vm-pool-1", "attempts": 2}]},
        }
    }
    await api.patch(POOLS, namespace, "my-vm-pool", status, subresource="status")
    path = POOLS.path(namespace, "my-vm-pool", "scale")
    scale = await api.request("GET", path)
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 2, "selector": f"{meta.POOL}=my-vm-pool"}
    await api.request("PUT", path, body={**scale, "spec": {"replicas": 5}})
    found = await api.get(POOLS, namespace, "my-vm-pool")
    assert found["spec"]["replicas"] == 5
    assert found["metadata"]["generation"] == 2
    with pytest.raises(Invalid):
        await api.patch(POOLS, namespace, "my-vm-pool", {"status": {"replicas": -1}}, subresource="status")


async def test_scaling_keeps_names_short_enough(api: Api, namespace: str) -> None:
    document = changed(pool("a" * 61, replicas=9), namespace, "metadata", "namespace")
    await api.create(POOLS, document)
    path = POOLS.path(namespace, "a" * 61, "scale")
    scale = await api.request("GET", path)
    with pytest.raises(Invalid, match="63 characters"):
        await api.request("PUT", path, body={**scale, "spec": {"replicas": 10}})


async def test_columns_are_shown(api: Api, namespace: str) -> None:
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    for kind in ALL:
        r = Resource.of(kind)
        path = r.path(namespace if kind.namespaced else None)
        found = await api.request("GET", path, headers={"Accept": table})
        shown = [column["name"] for column in found["columnDefinitions"]]
        assert shown == ["Name", *(column.name for column in kind.columns)]


def _authority(kubeconfig: Path) -> bytes:
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    if "certificate-authority-data" in cluster:
        return base64.b64decode(cluster["certificate-authority-data"])
    return Path(cluster["certificate-authority"]).read_bytes()


async def test_a_replica_set_is_the_same_in_both_versions(api: Api, namespace: str) -> None:
    document = changed(replica_set(), namespace, "metadata", "namespace")
    old, new = (
        Resource(REPLICA_SET.group, version, REPLICA_SET.plural, REPLICA_SET.kind) for version in ("v1alpha2", "v1")
    )
    await api.create(old, document)
    found = await api.get(new, namespace, "myreplicaset")
    assert found["spec"] == {**document["spec"], "paused": False}
    assert (await api.request("GET", new.path(namespace, "myreplicaset", "scale")))["spec"] == {"replicas": 3}


async def taken(api: Api, document: Json) -> None:
    metadata = document["metadata"]
    query = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "tests", "force": "true"}
    path = resource_of(document).path(metadata.get("namespace"), metadata["name"])
    headers = {"Content-Type": "application/apply-patch+yaml"}
    await api.request("PATCH", path, body=document, query=query, headers=headers)


async def test_the_api_server_accepts_the_generated_manifests(api: Api, namespace: str, control_plane: Any) -> None:
    authority = await asyncio.to_thread(_authority, Path(control_plane.kubeconfig))
    services = ("webhook", "controllers", "engine", "defaulter")
    for document in (
        *webhooks.configurations(url="https://127.0.0.1:1", ca_bundle=authority),
        *webhooks.configurations(service=webhooks.Service(), ca_bundle=authority),
        *rbac.manifests(services, namespace),
        *rbac.user_roles(),
        *rbac.health_role(),
    ):
        await taken(api, document)


async def test_labels_of_ours_are_written_by_us_only(api: Api, namespace: str) -> None:
    writer = rbac.service_account_user("controllers")
    policy, binding = admission_policy.policies([writer])
    # In this namespace only: other tests play KubeVirt on the same API server.
    only = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    await applied(api, changed(policy, namespace, "metadata", "name"))
    binding = changed(changed(binding, namespace, "metadata", "name"), namespace, "spec", "policyName")
    await applied(api, changed(binding, only, "spec", "matchResources"))
    vm = manifest(VMS, "vm", machine(), namespace, labels={meta.POOL_UID: "1"})
    await _in_force(api, vm)
    with pytest.raises(Forbidden, match="written by Poolhouse only"):
        await api.create(VMS, vm, dry_run=True)
    hidden = changed(vm, {"labels": {meta.CLAIM_UID: "1"}}, "spec", "template", "metadata")
    with pytest.raises(Forbidden):
        await api.create(VMS, changed(hidden, {}, "metadata", "labels"), dry_run=True)
    ours = {"Impersonate-User": writer, "Impersonate-Group": "system:masters"}
    await api.request("POST", VMS.path(namespace), body=vm, headers=ours)
    await api.patch(VMS, namespace, "vm", {"metadata": {"labels": {"theirs": "x"}}})
    for change in ({meta.POOL_UID: "2"}, {meta.POOL_UID: None}, {meta.WARM_STATE: "Ready"}):
        with pytest.raises(Forbidden):
            await api.patch(VMS, namespace, "vm", {"metadata": {"labels": change}})


async def test_an_account_that_copies_our_labels_to_vmis_cannot_add_them_to_a_vm(api: Api, namespace: str) -> None:
    """KubeVirt's controller restores and clones VMs from documents that a tenant may edit. Here it is the engine, which
    the policy of the fixture knows too."""
    writer, copier = rbac.service_account_user("controllers"), rbac.service_account_user("engine")
    policy, binding = admission_policy.policies([writer], [copier])
    only = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    await applied(api, changed(policy, namespace, "metadata", "name"))
    binding = changed(changed(binding, namespace, "metadata", "name"), namespace, "spec", "policyName")
    await applied(api, changed(binding, only, "spec", "matchResources"))
    forged = {meta.CLAIM_UID: "1", meta.POOL_UID: "1", meta.WARM_STATE: "Allocating"}

    def vm(name: str, labels: Json, hidden: Json | None = None) -> Json:
        spec = changed(machine(), {"labels": hidden or {}}, "template", "metadata")
        return manifest(VMS, name, spec, namespace, labels=labels)

    def vmi(name: str, owner: str) -> Json:
        reference = {"apiVersion": "kubevirt.io/v1", "kind": owner, "name": name, "uid": "1", "controller": True}
        spec = machine()["template"]["spec"]
        return manifest(VMIS, name, spec, namespace, labels=forged, ownerReferences=[reference])

    async def write(user: str, resource: Resource, document: Json, method: str = "POST", name: str = "") -> Any:
        headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        path = f"{resource.path(namespace)}/{name}".rstrip("/")
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        return await api.request(method, path, body=document, headers=headers)

    await _refused(lambda: write(copier, VMS, vm("restored", forged)))
    for document in (vm("restored", forged), vm("restored", {}, forged), vm("cloned", {meta.MIGRATION_POLICY: "p"})):
        with pytest.raises(Forbidden, match="written by Poolhouse only"):
            await write(copier, VMS, document)
    with pytest.raises(Forbidden):
        await write(copier, VMIS, vmi("of-a-set", "VirtualMachineInstanceReplicaSet"))

    await write(writer, VMS, vm("stored", forged, forged))
    await write(copier, VMS, {"metadata": {"annotations": {"restored": "true"}}}, "PATCH", "stored")
    await write(copier, VMIS, vmi("stored", "VirtualMachine"))
    with pytest.raises(Forbidden):
        await write(copier, VMS, {"metadata": {"labels": {meta.CLAIM_UID: "2"}}}, "PATCH", "stored")


async def _in_force(api: Api, refused: Json) -> None:
    """The API server reads its policies a moment after they are written."""
    await _refused(lambda: api.create(VMS, refused, dry_run=True))


async def _refused(call: Callable[[], Awaitable[Any]]) -> None:
    async def held() -> bool:
        try:
            await call()
        except Forbidden:
            return True
        return False

    await eventually(held)


async def test_the_controllers_delete_only_retained_disks(api: Api, namespace: str) -> None:
    user = rbac.service_account_user("controllers")
    policy, binding = admission_policy.disk_policies(user)
    await applied(api, changed(policy, namespace, "metadata", "name"))
    await applied(api, changed(changed(binding, namespace, "metadata", "name"), namespace, "spec", "policyName"))
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name, labels in (("retained", {meta.KEPT_BY: "u"}), ("mine", {"app": "x"})):
        await api.request("POST", claims, body=manifest(PVCS, name, spec, labels=labels))
    ours = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}

    async def delete(name: str, dry_run: str) -> Any:
        return await api.request("DELETE", f"{claims}/{name}", headers=ours, query={"dryRun": dry_run})

    await _refused(lambda: delete("mine", "All"))
    with pytest.raises(Forbidden, match="delete only retained disks"):
        await delete("mine", "All")
    await delete("retained", "All")


async def test_only_who_may_delete_a_disk_marks_it_as_a_retained_one(api: Api, namespace: str) -> None:
    policy, binding = admission_policy.disk_mark_policies()
    await applied(api, changed(policy, namespace, "metadata", "name"))
    await applied(api, changed(changed(binding, namespace, "metadata", "name"), namespace, "spec", "policyName"))
    group = "rbac.authorization.k8s.io"
    for name, verbs in (("writer", ["create", "patch"]), ("owner", ["create", "patch", "delete"])):
        user = f"{name}-{namespace}"
        rules = [{"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": verbs}]
        role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": name, "namespace": namespace}}
        await applied(api, {**role, "rules": rules})
        reference = {"apiGroup": group, "kind": "Role", "name": name}
        subjects = [{"apiGroup": group, "kind": "User", "name": user}]
        await applied(api, {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": subjects})
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}

    async def create(who: str, name: str, metadata: Json) -> Any:
        headers = {"Impersonate-User": f"{who}-{namespace}"}
        return await api.request("POST", claims, body=manifest(PVCS, name, spec, **metadata), headers=headers)

    async def patch(who: str, metadata: Json) -> Any:
        headers = {"Impersonate-User": f"{who}-{namespace}", "Content-Type": "application/merge-patch+json"}
        return await api.request("PATCH", f"{claims}/disk", body={"metadata": metadata}, headers=headers)

    label, time = {"labels": {meta.KEPT_BY: "u"}}, {"annotations": {meta.RETAINED_AT: "2020-01-01T00:00:00Z"}}

    async def rights_are_known() -> bool:
        try:
            await create("writer", "disk", {})
            await create("owner", "other", {})
        except AlreadyExists:
            return True
        except Forbidden:
            return False
        return True

    await eventually(rights_are_known)
    await _refused(lambda: patch("writer", label))
    for mark in (label, time):
        with pytest.raises(Forbidden, match="lets pools delete the disk; you may not delete it"):
            await patch("writer", mark)
        with pytest.raises(Forbidden, match="you may not delete it"):
            await create("writer", "new", mark)
        await patch("owner", mark)
    await patch("writer", {"labels": {"theirs": "x"}})
    with pytest.raises(Forbidden):
        await patch("writer", {"labels": {meta.KEPT_BY: "another"}})
    await patch("writer", {"labels": {meta.KEPT_BY: None}})
    await create("owner", "restored", {**label, **time})


async def test_the_controllers_change_only_one_label_of_launcher_pods(api: Api, namespace: str) -> None:
    user = rbac.service_account_user("controllers")
    policy, binding = admission_policy.pod_policies(user)
    await applied(api, changed(policy, namespace, "metadata", "name"))
    await applied(api, changed(changed(binding, namespace, "metadata", "name"), namespace, "spec", "policyName"))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
    with suppress(AlreadyExists):
        await api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body=account)
    launcher = {meta.KUBEVIRT_CREATED_BY: "u", meta.IN_SERVICE: "true"}
    for name, labels in (("launcher", launcher), ("other", {"app": "x"})):
        container = {"name": "compute", "image": "launcher"}
        spec = {"containers": [container], "automountServiceAccountToken": False}
        body = manifest(PODS, name, spec, labels=labels)
        await api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)

    async def patch(pod: str, change: Json, *, dry_run: bool = False) -> Any:
        headers = {
            "Impersonate-User": user,
            "Impersonate-Group": "system:masters",
            "Content-Type": "application/merge-patch+json",
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        return await api.request(
            "PATCH", path, body=change, headers=headers, query={"dryRun": "All"} if dry_run else {}
        )

    image = {"spec": {"containers": [{"name": "compute", "image": "mine"}]}}
    await _refused(lambda: patch("launcher", image, dry_run=True))
    for label in (None, "true", None):
        found = await patch("launcher", {"metadata": {"labels": {meta.IN_SERVICE: label}}})
        assert found["metadata"]["labels"].get(meta.IN_SERVICE) == label
    for change in ({"labels": {"app": ""}}, {"labels": {meta.KUBEVIRT_CREATED_BY: None}}, {"annotations": {"a": "b"}}):
        with pytest.raises(Forbidden, match="change only the label"):
            await patch("launcher", {"metadata": change})
    with pytest.raises(Forbidden, match="only pods of VMIs"):
        await patch("other", {"metadata": {"labels": {meta.IN_SERVICE: "true"}}})


async def test_the_webhook_creates_vms_in_dry_runs_only(api: Api, namespace: str) -> None:
    user = rbac.service_account_user("webhook")
    policy, binding = admission_policy.dry_run_policies(user)
    await applied(api, changed(policy, namespace, "metadata", "name"))
    await applied(api, changed(changed(binding, namespace, "metadata", "name"), namespace, "spec", "policyName"))

    async def create(name: str, user: str, **query: str) -> Any:
        headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        body = manifest(VMS, name, vm_spec(runStrategy="Halted"), namespace)
        return await api.request("POST", VMS.path(namespace), body=body, headers=headers, query=query)

    number = count()
    await _refused(lambda: create(f"early-{next(number)}", user))
    with pytest.raises(Forbidden, match="in dry runs only"):
        await create("stored", user)
    assert (await create("tried", user, dryRun="All"))["metadata"]["name"] == "tried"
    assert (await create("others", rbac.service_account_user("controllers")))["metadata"]["name"] == "others"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
async def test_kubectl_explains_scales_and_shows(api: Api, namespace: str, control_plane: Any) -> None:
    def kubectl(*arguments: str) -> str:
        command = ["kubectl", f"--kubeconfig={control_plane.kubeconfig}", "-n", namespace, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout

    await api.create(POOLS, changed(pool(), namespace, "metadata", "namespace"))
    explained = await asyncio.to_thread(kubectl, "explain", "vpool.spec")
    for field, schema in object_schema(POOL)["properties"]["spec"]["properties"].items():
        assert field in explained
        assert schema["description"].split()[0] in explained
    deep = await asyncio.to_thread(kubectl, "explain", "vmpool.spec.template.spec.template.spec.domain.devices.disks")
    assert "Name of the volume behind the disk." in deep
    assert "scaled" in await asyncio.to_thread(kubectl, "scale", "vmpool/my-vm-pool", "--replicas=5")
    assert "my-vm-pool" in await asyncio.to_thread(kubectl, "get", "poolhouse")
    wide = await asyncio.to_thread(kubectl, "get", "vmpool", "-o", "wide")
    assert wide.split()[:5] == ["NAME", "DESIRED", "CURRENT", "READY", "UPDATED"]
    assert wide.splitlines()[1].split()[:2] == ["my-vm-pool", "5"]
