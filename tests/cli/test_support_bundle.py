"""What leaves the cluster in a support bundle."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.support_bundle import REDACTED, ObjectList, collect, redacted, support_bundle
from poolhouse.runtime.errors import Forbidden
from poolhouse.runtime.resource import Resource


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            {"volumes": [{"name": "init", "cloudInitNoCloud": {"userData": "password: x"}}]},
            {"volumes": [{"name": "init", "cloudInitNoCloud": {"userData": REDACTED}}]},
            id="cloud-init data is left out, wherever it is",
        ),
        pytest.param(
            {"metadata": {"name": "a", "managedFields": [1], "annotations": {"poolhouse.dev/image-id": "c"}}},
            {"metadata": {"name": "a", "annotations": {"poolhouse.dev/image-id": "c"}}},
            id="managedFields and the last applied configuration are left out",
        ),
        pytest.param(
            {"metadata": {"annotations": {"kubevirt.io/ignitiondata": "{}"}}},
            {"metadata": {"annotations": {"kubevirt.io/ignitiondata": REDACTED}}},
            id="Ignition data is left out",
        ),
        pytest.param(
            {"webhooks": [{"clientConfig": {"caBundle": "QQ==", "url": "u"}}]},
            {"webhooks": [{"clientConfig": {"caBundle": REDACTED, "url": "u"}}]},
            id="certificates are left out",
        ),
        pytest.param(
            {"containers": [{"env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}, {"name": "EMPTY"}]}]},
            {"containers": [{"env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": REDACTED}, {"name": "EMPTY"}]}]},
            id="variables of containers are left out",
        ),
        pytest.param(
            {"env": [{"name": "POOLHOUSE_BURST", "value": "250"}, {"name": "POOLHOUSE_IDENTITY_SEED", "value": "x"}]},
            {
                "env": [
                    {"name": "POOLHOUSE_BURST", "value": "250"},
                    {"name": "POOLHOUSE_IDENTITY_SEED", "value": REDACTED},
                ]
            },
            id="settings of ours are told, the seed is not",
        ),
        pytest.param(
            {"annotations": {"note": "x", "example.com/db": "y", "vm.kubevirt.io/os": "z", "evilkubevirt.io/a": "b"}},
            {
                "annotations": {
                    "note": REDACTED,
                    "example.com/db": REDACTED,
                    "vm.kubevirt.io/os": "z",
                    "evilkubevirt.io/a": REDACTED,
                }
            },
            id="annotations of others are left out",
        ),
        pytest.param(
            {
                "kernelBoot": {
                    "kernelArgs": "console=ttyS0,115200 root=/dev/vda1 luks.password=hunter2 t0=AKIA1234567890ABCDEF ro"
                }
            },
            {
                "kernelBoot": {
                    "kernelArgs": f"console=ttyS0,115200 root=/dev/vda1 luks.password={REDACTED} t0={REDACTED} ro",
                }
            },
            id="kernel arguments that look like secrets",
        ),
        pytest.param(
            {"kernelArgs": 'root=UUID=e4-8b quiet pin=4711  greeting="a hunter2" x.y=z\ttoken'},
            {"kernelArgs": f"root=UUID=e4-8b quiet pin={REDACTED} greeting={REDACTED} x.y={REDACTED} token"},
            id="values of kernel arguments, whatever they look like",
        ),
        pytest.param(
            {"kernelArgs": 'root=iscsi:me:hunter2@10.0.0.1::::a init=/bin/sh "a b=c" é=1 -- hunter2 --pw=hunter2'},
            {
                "kernelArgs": f"root={REDACTED} init=/bin/sh {REDACTED} {REDACTED} -- {REDACTED} --pw={REDACTED}",
            },
            id="kernel arguments with credentials, and what init gets",
        ),
        pytest.param(
            {"env": [{"name": "POOLHOUSE_DEFAULTER_URL", "value": "https://me:hunter2@defaulter:8085"}]},
            {"env": [{"name": "POOLHOUSE_DEFAULTER_URL", "value": f"https://{REDACTED}@defaulter:8085"}]},
            id="credentials in a URL",
        ),
        pytest.param(
            {"env": [{"name": "POOLHOUSE_X", "value": "ghp_16C7e42F292c6912E7710c838347Ae178B4a"}]},
            {"env": [{"name": "POOLHOUSE_X", "value": REDACTED}]},
            id="a setting that looks like a secret",
        ),
        pytest.param(
            {"args": ["--token=abc", "--port=8443", "controllers"]},
            {"args": [f"--token={REDACTED}", "--port=8443", "controllers"]},
            id="arguments of containers",
        ),
        pytest.param(
            {"metadata": {"uid": "e4686d2c-6e8d-4335-b8fd-81bee22f4814"}, "url": "docker://registry/image:1"},
            {"metadata": {"uid": "e4686d2c-6e8d-4335-b8fd-81bee22f4814"}, "url": "docker://registry/image:1"},
            id="identities and images are shown",
        ),
        pytest.param(
            {"source": {"http": {"url": "https://images/a.img", "extraHeaders": ["Authorization: Bearer hunter2"]}}},
            {"source": {"http": {"url": "https://images/a.img", "extraHeaders": REDACTED}}},
            id="headers with which an image is imported",
        ),
        pytest.param(
            {"httpGet": {"httpHeaders": [{"name": "X-Api-Key", "value": "hunter2"}]}},
            {"httpGet": {"httpHeaders": [{"name": "X-Api-Key", "value": REDACTED}]}},
            id="headers of probes",
        ),
        pytest.param(
            {
                "url": "https://me:x@s3/a.img?sig=hunter2&X-Amz-Signature=a%2Fb",
                "message": 'Get "https://s3/?k=hunter2": no',
            },
            {
                "url": f"https://{REDACTED}@s3/a.img?{REDACTED}&{REDACTED}",
                "message": f'Get "https://s3/?{REDACTED}": no',
            },
            id="the parameters of a presigned URL",
        ),
        pytest.param(
            {"url": "https://proxy/https://me:a:b@s3/?sig=hunter2"},
            {"url": f"https://proxy/https://{REDACTED}@s3/?{REDACTED}"},
            id="a URL in the path of another one",
        ),
        pytest.param(
            {"message": 'Post "https://webhook.ns.svc:443/mutate?timeout=10s": refused'},
            {"message": 'Post "https://webhook.ns.svc:443/mutate?timeout=10s": refused'},
            id="how long an API server waits is shown",
        ),
        pytest.param(
            {"message": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nend"},
            {"message": f"{REDACTED}\nend"},
            id="private keys, wherever they are",
        ),
        pytest.param(
            {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            id="where a secret is may be known",
        ),
    ],
)
def test_secrets_stay(before: Json, after: Json) -> None:
    assert redacted(before) == after


@pytest.mark.parametrize(
    ("field", "part"),
    [
        pytest.param("message", ":", id="a user without an end"),
        pytest.param("message", "a:", id="users"),
        pytest.param("message", "://", id="URLs without a host"),
        pytest.param("message", "://a:b", id="URLs without an end"),
        pytest.param("message", "-----BEGIN PRIVATE KEY", id="keys"),
        pytest.param("kernelArgs", '"', id="quotes"),
        pytest.param("kernelArgs", 'a"b', id="words with quotes"),
    ],
)
def test_a_text_of_a_tenant_delays_no_bundle(field: str, part: str) -> None:
    """Else the first of these takes half an hour, and a tenant may write many."""
    text = "https://" + part * (250_000 // len(part))
    assert 0 < len(redacted({field: text})[field]) <= len(text)


def test_vmis_of_replica_sets_are_found_by_their_controller() -> None:
    def made_by(kind: str, controller: bool = True) -> Json:
        return {"metadata": {"ownerReferences": [{"kind": kind, "controller": controller}]}}

    instances = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
    of_sets = ObjectList("x.yaml", instances, controller="VirtualMachineInstanceReplicaSet")
    assert of_sets.includes(made_by("VirtualMachineInstanceReplicaSet"))
    assert not of_sets.includes(made_by("VirtualMachineInstanceReplicaSet", controller=False))
    assert not of_sets.includes(made_by("VirtualMachine"))
    assert not of_sets.includes({"metadata": {}})


def test_the_copy_that_kubectl_keeps_is_left_out_with_what_it_repeats() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": '{"userData": "x"}'}
    assert redacted({"annotations": annotations}) == {"annotations": {}}


class Cluster:
    """Where Poolhouse is, and pods of somebody else."""

    def __init__(self, home: str, *, may_look_everywhere: bool = True, runs: bool = True) -> None:
        self._home, self._may_look_everywhere, self._runs = home, may_look_everywhere, runs

    async def list(
        self, r: Resource, namespace: str | None = None, *, label_selector: str | None = None
    ) -> tuple[list[Json], str]:
        if r.plural in ("deployments", "pods") and namespace is None and not self._may_look_everywhere:
            raise Forbidden("not everywhere", call="list")
        there = r.plural in ("deployments", "pods") and namespace in (None, self._home) and self._runs
        assert r.plural != "pods" or label_selector == "app.kubernetes.io/part-of=poolhouse"
        return ([{"metadata": {"namespace": self._home, "name": "poolhouse-webhook"}}] if there else []), "1"

    async def request(self, method: str, path: str) -> Json:
        return {"gitVersion": "v1.35.0"}

    async def text(self, path: str, *, query: Json) -> str:
        return f"the log at {path}"


@pytest.mark.parametrize(
    ("cluster", "logs", "problems"),
    [
        pytest.param(Cluster("vms"), ["vms"], [], id="wherever it was installed"),
        pytest.param(
            Cluster("poolhouse-system", may_look_everywhere=False), ["poolhouse-system"], [], id="where it usually is"
        ),
        pytest.param(
            Cluster("vms", may_look_everywhere=False),
            [],
            ["pods.yaml: there is no pod of Poolhouse in poolhouse-system"],
            id="elsewhere, and it may not be looked for",
        ),
        pytest.param(
            Cluster("vms", runs=False),
            [],
            ["pods.yaml: there is no pod of Poolhouse in poolhouse-system"],
            id="nothing runs, which is said",
        ),
    ],
)
async def test_the_logs_of_our_services_are_found(cluster: Cluster, logs: list[str], problems: list[str]) -> None:
    pages, said = await collect(cluster, lambda text: None)
    assert [p.text for p in pages if p.path.startswith("logs/")] == [
        f"the log at /api/v1/namespaces/{namespace}/pods/poolhouse-webhook/log" for namespace in logs
    ]
    assert said == problems


async def test_an_embedded_stack_has_no_pods_to_miss() -> None:
    _, problems = await collect(Cluster("vms", runs=False), lambda text: None, in_pods=False)
    assert problems == []


@pytest.mark.parametrize(
    "file", [pytest.param("missing/bundle.tar.gz", id="no directory"), pytest.param(".", id="a directory")]
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_read(tmp_path: Path, file: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {}}]\n")
    result = CliRunner().invoke(support_bundle, ["-f", str(tmp_path / file), "--kubeconfig", str(kubeconfig)])
    assert (result.exit_code, "cannot be written" in result.output) == (1, True), result.output
    assert "reading" not in result.output
