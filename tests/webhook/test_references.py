"""What an object names and the services read: its author needs the right to get exactly these objects."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.kinds.meta import REFERENCE_AUTHORS as RECORD
from poolhouse.api.kinds.reference_authors import Author, read_record, record
from tests.kinds.documents import changed
from tests.kinds.warm import claim, warm_pool
from tests.runtime.faulty_server import Request, Script
from tests.webhook.builders import POOL, Json, patched, review
from tests.webhook.conftest import RunningWebhook

KEYS = {"sshPublicKeySecret": "keys"}


def personalized(**personalization: object) -> Json:
    document = claim(poolName="web", personalization=personalization)
    document["metadata"]["namespace"] = "shop"
    return document


def granting_secret(name: str, asked: list[Json]) -> Script:
    async def script(request: Request) -> None:
        asked.append(request.document["spec"])
        allowed = request.document["spec"]["resourceAttributes"].get("name") == name
        await request.answer(201, {"status": {"allowed": allowed}})

    return script


async def test_the_author_may_get_the_secret(webhook: RunningWebhook) -> None:
    asked: list[Json] = []
    webhook.api_server.script = granting_secret("keys", asked)
    assert (await webhook.review(review(personalized(**KEYS))))["allowed"]
    attributes = {"verb": "get", "group": "", "version": "v1", "resource": "secrets"}
    assert asked == [{"user": "jane", "resourceAttributes": {**attributes, "namespace": "shop", "name": "keys"}}]


async def test_another_secret_is_refused(webhook: RunningWebhook) -> None:
    webhook.api_server.script = granting_secret("other", [])
    status = (await webhook.review(review(personalized(**KEYS))))["status"]
    assert status["code"] == 403
    assert "jane may not get Secret keys in namespace shop" in status["message"]


async def test_another_secret_of_an_application_is_refused(webhook: RunningWebhook) -> None:
    asked: list[Json] = []
    webhook.api_server.script = granting_secret("keys", asked)
    document = personalized(**KEYS)
    env = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}
        for name, secret in (("A", "keys"), ("B", "other"), ("C", "other"))
    ]
    document["spec"]["application"] = {"containers": [{"name": "a", "image": "i", "env": env}]}
    status = (await webhook.review(review(document)))["status"]
    (cause,) = status["details"]["causes"]
    assert cause["field"] == "spec.application.containers[0].env[1].valueFrom.secretKeyRef.name"
    assert "jane may not get Secret other in namespace shop" in cause["message"]
    assert sorted(each["resourceAttributes"]["name"] for each in asked) == ["keys", "other"]


@pytest.mark.parametrize(
    ("application", "path", "name"),
    [
        pytest.param(
            {"initContainers": [{"name": "i", "image": "i", "envFrom": [{"configMapRef": {"name": "other"}}]}]},
            "initContainers[0].envFrom[0].configMapRef.name",
            "ConfigMap other",
            id="a ConfigMap of an init container",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "other"}}]},
            "volumes[1].configMap.name",
            "ConfigMap other",
            id="a ConfigMap of a volume",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "secret": {"secretName": "other"}}]},
            "volumes[0].secret.secretName",
            "Secret other",
            id="a Secret of a volume",
        ),
        pytest.param(
            {"imagePullSecrets": [{"name": "keys"}, {"name": "other"}]},
            "imagePullSecrets[1].name",
            "Secret other",
            id="credentials of a registry",
        ),
    ],
)
async def test_all_sources_of_an_application_need_the_right(
    webhook: RunningWebhook, application: Json, path: str, name: str
) -> None:
    webhook.api_server.script = granting_secret("keys", [])
    document = personalized(**KEYS)
    document["spec"]["application"] = {"containers": [{"name": "a", "image": "i"}], **application}
    (cause,) = (await webhook.review(review(document)))["status"]["details"]["causes"]
    assert cause["field"] == f"spec.application.{path}"
    assert f"jane may not get {name} in namespace shop" in cause["message"]


@pytest.mark.parametrize(
    ("owner", "patches_status", "allowed"),
    [
        pytest.param("Pod", True, True, id="a claim that the controllers make for a Pod"),
        pytest.param("Pod", False, False, id="a claim that a user gives to a Pod"),
        pytest.param("Job", True, False, id="a claim of another owner"),
    ],
)
async def test_the_claim_of_a_pod_may_name_what_its_kubelet_could_mount(
    webhook: RunningWebhook, owner: str, patches_status: bool, allowed: bool
) -> None:
    async def script(request: Request) -> None:
        asked = request.document["spec"]["resourceAttributes"]
        status = (asked["verb"], asked["resource"], asked.get("subresource")) == ("patch", "pods", "status")
        await request.answer(201, {"status": {"allowed": status and patches_status}})

    webhook.api_server.script = script
    document = personalized()
    document["metadata"]["ownerReferences"] = [controller_reference("v1", owner, "web-0", "u")]
    volumes = [{"name": "v", "secret": {"secretName": "other"}}]
    document["spec"]["application"] = {"containers": [{"name": "a", "image": "i"}], "volumes": volumes}
    assert (await webhook.review(review(document)))["allowed"] is allowed


@pytest.mark.parametrize("code", [403, 500])
async def test_a_secret_is_refused_if_the_right_is_unknown(webhook: RunningWebhook, code: int) -> None:
    async def failing(request: Request) -> None:
        await request.answer(code, {"kind": "Status", "code": code, "message": "no"})

    webhook.api_server.script = failing
    response = await webhook.review(review(personalized(**KEYS)))
    assert not response["allowed"]
    assert "cannot determine whether you may get the Secret" in response["status"]["message"]


async def test_other_claims_need_no_right(webhook: RunningWebhook) -> None:
    asked: list[Json] = []
    webhook.api_server.script = granting_secret("none", asked)
    assert (await webhook.review(review(personalized(labels={"team": "blue"}))))["allowed"]
    changed = personalized(**KEYS)
    changed["spec"]["ttlSeconds"] = 60
    assert (await webhook.review(review(changed, personalized(**KEYS))))["allowed"], "the field has not changed"
    assert not asked


@pytest.mark.parametrize("name", ["../x", "a b", "\n", "keys\n", "Keys", "-x", "x" * 254, ""])
async def test_a_secret_has_a_valid_name(webhook: RunningWebhook, name: str) -> None:
    response = await webhook.review(review(personalized(sshPublicKeySecret=name)))
    (cause,) = response["status"]["details"]["causes"]
    assert cause["field"] == "spec.personalization.sshPublicKeySecret"


def tracking(document: Json, *flag: str, namespace: str | None = "images", name: str = "fedora") -> Json:
    """The pool with a disk from this DataSource, whose images it follows if a path of the field is given."""
    found = changed(document, "shop", "metadata", "namespace")
    reference = {"kind": "DataSource", "name": name, **({"namespace": namespace} if namespace else {})}
    disks = [
        {"metadata": {"name": "data"}, "spec": {"source": {"blank": {}}}},
        {"metadata": {"name": "root"}, "spec": {"sourceRef": reference}},
    ]
    found = changed(found, disks, "spec", "template", "spec", "dataVolumeTemplates")
    strategy: Any = True
    for field in reversed(flag):
        strategy = {field: strategy}
    return changed(found, strategy, "spec", "updateStrategy") if flag else found


KINDS = [
    pytest.param(POOL, ("proactive", "trackDataSources"), id="pool"),
    pytest.param(warm_pool(), ("trackDataSources",), id="warm pool"),
]


def reviewing(asked: list[Json], *names: str) -> Script:
    """Grants the creation of VMs, and reads of DataSources with these names."""

    async def script(request: Request) -> None:
        if "subjectaccessreviews" not in request.path:
            return await request.answer(201, request.document)
        attributes = request.document["spec"]["resourceAttributes"]
        if attributes["resource"] == "datasources":
            asked.append({"user": request.document["spec"]["user"], **attributes})
        allowed = attributes["resource"] != "datasources" or attributes["name"] in names
        return await request.answer(201, {"status": {"allowed": allowed}})

    return script


@pytest.mark.parametrize(("document", "flag"), KINDS)
async def test_the_author_may_get_a_tracked_data_source_of_another_namespace(
    webhook: RunningWebhook, document: Json, flag: tuple[str, ...]
) -> None:
    asked: list[Json] = []
    webhook.api_server.script = reviewing(asked)
    status = (await webhook.review(review(tracking(document, *flag))))["status"]
    assert status["code"] == 403
    (cause,) = status["details"]["causes"]
    assert cause["field"] == "spec.template.spec.dataVolumeTemplates[1].spec.sourceRef"
    assert cause["message"] == "jane may not get DataSource fedora in namespace images"
    source = {"verb": "get", "group": "cdi.kubevirt.io", "version": "v1beta1", "resource": "datasources"}
    assert asked == [{"user": "jane", **source, "namespace": "images", "name": "fedora"}]
    webhook.api_server.script = reviewing(asked, "fedora")
    assert (await webhook.review(review(tracking(document, *flag))))["allowed"]


@pytest.mark.parametrize(("document", "flag"), KINDS)
async def test_data_sources_that_nothing_reads_need_no_right(
    webhook: RunningWebhook, document: Json, flag: tuple[str, ...]
) -> None:
    asked: list[Json] = []
    webhook.api_server.script = reviewing(asked)
    assert (await webhook.review(review(tracking(document))))["allowed"], "the images are not tracked"
    for namespace in (None, "shop"):
        assert (await webhook.review(review(tracking(document, *flag, namespace=namespace))))["allowed"]
    stored = tracking(document, *flag)
    assert (await webhook.review(review(changed(stored, 7, "spec", "replicas"), stored)))["allowed"], "not changed"
    assert not asked


@pytest.mark.parametrize(("document", "flag"), KINDS)
async def test_a_right_is_asked_for_when_the_reference_changes(
    webhook: RunningWebhook, document: Json, flag: tuple[str, ...]
) -> None:
    webhook.api_server.script = reviewing([], "fedora")
    stored = tracking(document, *flag)
    for after in (tracking(document, *flag, name="windows"), tracking(document, *flag, namespace="secret", name="w")):
        response = await webhook.review(review(after, stored))
        assert response["status"]["code"] == 403, response
    webhook.api_server.script = reviewing([])
    assert not (await webhook.review(review(stored, tracking(document))))["allowed"], "the pool begins to track it"


@pytest.mark.parametrize(("document", "flag"), KINDS)
async def test_a_stored_disk_without_a_name_is_replaced(
    webhook: RunningWebhook, document: Json, flag: tuple[str, ...]
) -> None:
    """The API server stores what the CRD allows while the webhook is away."""
    webhook.api_server.script = reviewing([])
    after = tracking(document, *flag)
    nameless = [{"spec": {"sourceRef": {"kind": "DataSource", "namespace": "images", "name": "fedora"}}}]
    stored = changed(after, nameless, "spec", "template", "spec", "dataVolumeTemplates")
    assert (await webhook.review(review(after, stored)))["allowed"], "it named the DataSource before"


FEDORA, WINDOWS = "DataSource images/fedora", "DataSource images/windows"
BY_JANE, BY_ANN = Author("jane"), Author("ann", ("devs",))


def recorded(document: Json, annotation: str | None) -> Json:
    return document if annotation is None else changed(document, {RECORD: annotation}, "metadata", "annotations")


def by(author: Author, *references: str) -> str:
    return record({}, references, author)


@pytest.mark.parametrize(("document", "flag"), KINDS)
@pytest.mark.parametrize(
    ("sent", "stored", "names", "stored_names", "expected"),
    [
        pytest.param(None, None, "fedora", None, by(BY_JANE, FEDORA), id="creation"),
        pytest.param(by(BY_ANN, FEDORA), None, "fedora", None, by(BY_JANE, FEDORA), id="a forged record, a backup"),
        pytest.param(by(BY_ANN, FEDORA), None, None, None, None, id="a record of no reference"),
        pytest.param(None, by(BY_ANN, FEDORA), "fedora", "fedora", by(BY_ANN, FEDORA), id="a client drops it"),
        pytest.param("x", by(BY_ANN, FEDORA), "fedora", "fedora", by(BY_ANN, FEDORA), id="a client changes it"),
        pytest.param(
            by(BY_ANN, FEDORA), by(BY_ANN, FEDORA), "windows", "fedora", by(BY_JANE, WINDOWS), id="another reference"
        ),
        pytest.param(by(BY_ANN, FEDORA), by(BY_ANN, FEDORA), None, "fedora", None, id="no reference any more"),
        pytest.param(None, None, "fedora", "fedora", None, id="a reference that admission has not seen"),
        pytest.param("x", None, "fedora", "fedora", None, id="forged for a reference that admission has not seen"),
        pytest.param("me", by(BY_ANN, FEDORA), "fedora", "fedora", by(BY_JANE, FEDORA), id="jane takes over"),
        pytest.param("me", None, "fedora", "fedora", by(BY_JANE, FEDORA), id="jane takes over what has no author"),
    ],
)
async def test_admission_records_the_author(
    webhook: RunningWebhook,
    document: Json,
    flag: tuple[str, ...],
    sent: str | None,
    stored: str | None,
    names: str | None,
    stored_names: str | None,
    expected: str | None,
) -> None:
    webhook.api_server.script = reviewing([], "fedora", "windows")

    def a_pool(name: str | None, annotation: str | None) -> Json:
        return recorded(tracking(document, *flag, name=name) if name else tracking(document), annotation)

    is_new = stored_names is None and stored is None
    old = None if is_new else a_pool(stored_names, stored)
    asked = changed(a_pool(names, sent), 7, "spec", "replicas")
    response = await webhook.review(review(asked, old))
    assert response["allowed"], response
    after = patched(asked, response)
    assert (after["metadata"].get("annotations") or {}).get(RECORD) == expected
    ignored = sent not in (None, "me", stored)
    assert any("admission writes it" in each for each in response.get("warnings", ())) is ignored


@pytest.mark.parametrize(("document", "flag"), KINDS)
async def test_a_user_cannot_take_over_a_reference_that_he_may_not_get(
    webhook: RunningWebhook, document: Json, flag: tuple[str, ...]
) -> None:
    asked: list[Json] = []
    webhook.api_server.script = reviewing(asked)
    stored = recorded(tracking(document, *flag), by(BY_ANN, FEDORA))
    response = await webhook.review(review(recorded(stored, "me"), stored))
    assert response["status"]["code"] == 403
    assert [each["name"] for each in asked] == ["fedora"]
    # Annotations that say nothing about the spec are not asked about.
    labelled = changed(stored, "x", "metadata", "annotations", "team")
    assert (await webhook.review(review(labelled, stored)))["allowed"]
    assert len(asked) == 1


@pytest.mark.parametrize(("document", "flag"), KINDS)
async def test_each_reference_has_its_author(webhook: RunningWebhook, document: Json, flag: tuple[str, ...]) -> None:
    asked: list[Json] = []
    webhook.api_server.script = reviewing(asked, "windows")
    stored = recorded(tracking(document, *flag), by(BY_ANN, FEDORA))
    after = copy.deepcopy(stored)
    reference = {"kind": "DataSource", "namespace": "images", "name": "windows"}
    after["spec"]["template"]["spec"]["dataVolumeTemplates"][0]["spec"] = {"sourceRef": reference}
    response = await webhook.review(review(after, stored))
    assert read_record(patched(after, response)["metadata"]["annotations"][RECORD]) == {
        FEDORA: BY_ANN,
        WINDOWS: BY_JANE,
    }
    assert [each["name"] for each in asked] == ["windows"]
