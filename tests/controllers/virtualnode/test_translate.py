"""The claim of a Pod, and the fields that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.shared.pod_claims import ClaimingPod, pod_of
from controllers.virtualnode.translate import Refused, claim_of
from poolhouse.api.kinds import meta
from tests.controllers.virtualnode.pods import TOKEN, TOKEN_MOUNT, TOKEN_SOURCES, Json, pod

OF_WEB = {meta.POD_NAME: "web", meta.POD_UID: "u-1"}


def translated(**parts: Any) -> Json:
    found = claim_of(pod(**parts))
    assert not isinstance(found, Refused), found.message
    return found


def application(**parts: Any) -> Json:
    found: Json = translated(**parts)["spec"]["application"]
    return found


def container(**parts: Any) -> Json:
    found: Json = application(container=parts)["containers"][0]
    return found


def refused(**parts: Any) -> tuple[str, ...]:
    found = claim_of(pod(**parts))
    assert isinstance(found, Refused)
    return found.paths


def test_the_claim_belongs_to_the_pod() -> None:
    claim = translated()
    assert claim["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "web",
            "uid": "u-1",
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
    assert claim["metadata"]["namespace"] == "ns"
    assert claim["metadata"]["annotations"] == {**OF_WEB, meta.REQUESTER: "system:serviceaccount:ns:builder"}
    assert pod_of(claim) == ClaimingPod("web", "u-1")
    assert "poolName" not in claim["spec"]


def test_the_annotations_of_the_pod_choose_the_pool_and_the_instance() -> None:
    chosen = {
        "poolhouse.dev/warm-pool": "mac",
        "poolhouse.dev/image-id": "tiny",
        "compute.amazonaws.com/instance-type": "m5.large",
        "compute.amazonaws.com/tags": "a=b",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    claim = translated(metadata={"annotations": chosen, "labels": {"app": "web"}})
    assert claim["spec"]["poolName"] == "mac"
    assert claim["metadata"]["annotations"] == {
        **OF_WEB,
        "poolhouse.dev/image-id": "tiny",
        "compute.amazonaws.com/instance-type": "m5.large",
        meta.REQUESTER: "system:serviceaccount:ns:builder",
    }
    assert claim["spec"]["application"]["labels"] == {"app": "web"}
    assert "kubectl.kubernetes.io/last-applied-configuration" not in claim["spec"]["application"]["annotations"]


def test_the_author_of_a_pod_cannot_name_another_user() -> None:
    claim = translated(metadata={"annotations": {meta.REQUESTER: "system:serviceaccount:ns:somebody"}})
    assert claim["metadata"]["annotations"][meta.REQUESTER] == "system:serviceaccount:ns:builder"


def test_the_container_is_taken_as_it_is() -> None:
    fields = {
        "args": ["x"],
        "workingDir": "/w",
        "imagePullPolicy": "Always",
        "ports": [{"containerPort": 80, "name": "http", "protocol": "TCP"}],
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s", "optional": True}}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "periodSeconds": 2},
        "livenessProbe": {"exec": {"command": ["true"]}},
        "startupProbe": {"tcpSocket": {"port": 80}, "failureThreshold": 9},
    }
    assert container(**fields) == {"name": "main", "image": "alpine", "command": ["sleep", "1"], **fields}


def test_the_application_has_the_rest_of_the_spec() -> None:
    found = application(
        initContainers=[{"name": "first", "image": "alpine"}],
        restartPolicy="OnFailure",
        terminationGracePeriodSeconds=7,
        imagePullSecrets=[{"name": "registry"}],
    )
    assert found["initContainers"] == [{"name": "first", "image": "alpine"}]
    assert found["restartPolicy"] == "OnFailure"
    assert found["terminationGracePeriodSeconds"] == 7
    assert found["imagePullSecrets"] == [{"name": "registry"}]


def test_a_grace_period_of_zero_is_taken() -> None:
    assert application(terminationGracePeriodSeconds=0)["terminationGracePeriodSeconds"] == 0


def test_volumes_and_mounts_are_taken_without_the_token_of_the_service_account() -> None:
    volumes = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "ram", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "conf", "configMap": {"name": "c", "defaultMode": 420}},
        {"name": "key", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}},
    ]
    mounts = [
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "key", "mountPath": "/k", "subPath": "p", "readOnly": True},
    ]
    found = application(volumes=[*volumes, TOKEN], container={"volumeMounts": [*mounts, TOKEN_MOUNT]})
    assert found["volumes"] == volumes
    assert found["containers"][0]["volumeMounts"] == mounts


@pytest.mark.parametrize(
    "source",
    [
        {"secret": {"name": "s"}},
        {"configMap": {"name": "c"}},
        {"serviceAccountToken": {"path": "token", "audience": "vault"}},
        {"serviceAccountToken": {"path": "vault-token"}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ],
    ids=str,
)
def test_a_volume_with_the_name_of_a_token_and_other_contents_is_refused(source: Json) -> None:
    volume = {"name": "kube-api-access-x", "projected": {"sources": [*TOKEN_SOURCES, source]}}
    assert refused(volumes=[volume]) == ("spec.volumes[0].projected",)
    assert refused(volumes=[{"name": "kube-api-access-x", "projected": {"sources": []}}])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "shop"),
        ("metadata.annotations['a/b']", "c"),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "poolhouse"),
        ("spec.serviceAccountName", "builder"),
    ],
)
def test_fields_of_the_pod_become_values(path: str, value: str) -> None:
    env = [{"name": "X", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}]
    metadata = {"labels": {"app": "shop"}, "annotations": {"a/b": "c"}}
    found = application(metadata=metadata, container={"env": env})["containers"][0]["env"]
    assert found == [{"name": "X", "value": value}]


def test_variables_keep_their_sources_and_the_last_of_a_name_counts() -> None:
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    env = [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": secret}, {"name": "A", "value": "2"}, {"name": "C"}]
    assert container(env=env)["env"] == [
        {"name": "B", "valueFrom": secret},
        {"name": "A", "value": "2"},
        {"name": "C", "value": ""},
    ]


@pytest.mark.parametrize(
    "spec",
    [
        {"hostname": "web-0", "subdomain": "web"},
        {"affinity": {"podAntiAffinity": {}}, "nodeSelector": {"type": "virtual-kubelet"}, "priority": 0},
        {"readinessGates": [{"conditionType": "example.com/ready"}], "activeDeadlineSeconds": 60},
        {"hostNetwork": False, "shareProcessNamespace": False, "ephemeralContainers": []},
        {"securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 0, "seccompProfile": {"type": "X"}}},
        {"os": {"name": "linux"}},
    ],
)
def test_a_vm_need_not_carry_out_these_fields(spec: Json) -> None:
    assert application(**spec) == application()


@pytest.mark.parametrize(
    "fields",
    [
        {
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "privileged": False,
            }
        },
        {"resources": {"limits": {"cpu": "1", "memory": "1Gi", meta.WARM_VM: "1"}, "requests": {"cpu": "1"}}},
        {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "tty": True},
    ],
)
def test_a_vm_need_not_carry_out_these_fields_of_a_container(fields: Json) -> None:
    assert container(**fields) == container()


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ({"hostNetwork": True}, ["spec.hostNetwork"]),
        ({"hostPID": True, "hostIPC": True}, ["spec.hostPID", "spec.hostIPC"]),
        ({"hostAliases": [{"ip": "192.0.2.1"}]}, ["spec.hostAliases"]),
        ({"runtimeClassName": "kata"}, ["spec.runtimeClassName"]),
        ({"resourceClaims": [{"name": "gpu"}]}, ["spec.resourceClaims"]),
        ({"ephemeralContainers": [{"name": "debug"}]}, ["spec.ephemeralContainers"]),
        ({"os": {"name": "windows"}}, ["spec.os.name"]),
        ({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}, ["spec.securityContext.sysctls"]),
        ({"fieldOfALaterVersion": {"a": 1}}, ["spec.fieldOfALaterVersion"]),
        ({"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}, ["spec.volumes[0].hostPath"]),
        ({"volumes": [{"name": "p", "projected": {"sources": [{}]}}]}, ["spec.volumes[0].projected"]),
        ({"volumes": [{"name": "e", "emptyDir": {"medium": "HugePages"}}]}, ["spec.volumes[0].emptyDir.medium"]),
        ({"initContainers": [{"name": "s", "restartPolicy": "Always"}]}, ["spec.initContainers[0].restartPolicy"]),
        (
            {"hostNetwork": True, "volumes": [TOKEN, {"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]},
            ["spec.hostNetwork", "spec.volumes[1].persistentVolumeClaim"],
        ),
    ],
)
def test_all_fields_that_no_vm_can_carry_out_are_named(spec: Json, paths: list[str]) -> None:
    assert refused(**spec) == tuple(paths)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"securityContext": {"privileged": True}}, "securityContext.privileged"),
        ({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}, "securityContext.capabilities.add"),
        ({"resources": {"limits": {"nvidia.com/gpu": "1"}}}, 'resources.limits["nvidia.com/gpu"]'),
        ({"resources": {"requests": {"hugepages-2Mi": "2Mi"}}}, "resources.requests.hugepages-2Mi"),
        ({"resources": {"claims": [{"name": "gpu"}]}}, "resources.claims"),
        ({"lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}, "lifecycle"),
        ({"volumeDevices": [{"name": "d", "devicePath": "/dev/x"}]}, "volumeDevices"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(A)"}]}, "volumeMounts[0].subPathExpr"),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}]},
            "volumeMounts[0].mountPropagation",
        ),
        ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "ports[0].hostPort"),
        ({"livenessProbe": {"grpc": {"port": 1}}}, "livenessProbe.grpc"),
        (
            {"env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
            "env[0].valueFrom.fieldRef.fieldPath",
        ),
        (
            {"env": [{"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]},
            "env[0].valueFrom.resourceFieldRef",
        ),
    ],
)
def test_a_field_of_a_container_is_named_by_its_path(fields: Json, path: str) -> None:
    assert refused(container=fields) == (f"spec.containers[0].{path}",)
