"""A pool gets new images of a DataSource only while its author may read the DataSource, by the real API server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest_asyncio

from controllers.pool.pools import POOLS
from controllers.shared.data_sources import DATA_SOURCES
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds.meta import REFERENCE_AUTHORS
from poolhouse.api.kinds.reference_authors import read_record
from poolhouse.runtime import access_review
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, NAMESPACES
from tests.cluster import pooling
from tests.cluster.test_admission import Admission, admission, token
from tests.cluster.test_kinds import api, namespace
from tests.resources import ROLE_BINDINGS
from tests.waiting import eventually, until

Json = dict[str, Any]

__all__ = ["admission", "api", "namespace"]


@dataclass
class Images:
    """The DataSource `debian` in a namespace where jane may read DataSources."""

    api: Api
    namespace: str
    user: Json

    async def point_at(self, claim: str) -> None:
        await self.api.patch(DATA_SOURCES, self.namespace, "debian", {"spec": {"source": {"pvc": {"name": claim}}}})

    async def nobody_may_read(self) -> None:
        await self.api.delete(ROLE_BINDINGS, self.namespace, "reader")
        await until(self.jane_may_read, False)

    async def jane_may_read(self) -> bool:
        review = access_review.subject_access_review(self.user, "get", DATA_SOURCES, self.namespace, "debian")
        return access_review.is_allowed(
            await self.api.request("POST", access_review.SUBJECT_ACCESS_REVIEWS, body=review)
        )


@pytest_asyncio.fixture
async def images(api: Api, namespace: str) -> Images:
    name = (await api.create(NAMESPACES, {"metadata": {"generateName": "images-"}}))["metadata"]["name"]
    source = {"apiVersion": DATA_SOURCES.api_version, "kind": DATA_SOURCES.kind, "metadata": {"name": "debian"}}
    source["metadata"]["namespace"] = name
    await api.create(DATA_SOURCES, {**source, "spec": {"source": {"pvc": {"name": "debian-1"}}}})
    rules = [{"apiGroups": [DATA_SOURCES.group], "resources": [DATA_SOURCES.plural], "verbs": ["get"]}]
    path = f"/apis/{ROLE_BINDINGS.group}/v1/namespaces/{name}/roles"
    await api.request("POST", path, body={"metadata": {"name": "reader"}, "rules": rules})
    # By a group, which the record of the author must have.
    subject = {"kind": "Group", "name": f"system:serviceaccounts:{namespace}", "apiGroup": ROLE_BINDINGS.group}
    role = {"apiGroup": ROLE_BINDINGS.group, "kind": "Role", "name": "reader"}
    metadata = {"name": "reader", "namespace": name}
    await api.create(ROLE_BINDINGS, {"metadata": metadata, "roleRef": role, "subjects": [subject]})
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    found = Images(api, name, {"username": f"system:serviceaccount:{namespace}:jane", "groups": groups})
    await eventually(found.jane_may_read)
    return found


def a_pool(place: pooling.Place, images: Images) -> Json:
    template = pooling.template(running=False)
    reference = {"kind": "DataSource", "namespace": images.namespace, "name": "debian"}
    storage = {"resources": {"requests": {"storage": "1Gi"}}}
    template["spec"]["dataVolumeTemplates"][0]["spec"] = {"sourceRef": reference, "storage": storage}
    strategy = {"proactive": {"trackDataSources": True}}
    return place.document(1, template=template, updateStrategy=strategy)


async def revisions(place: pooling.Place) -> int:
    return len((await place.api.list(CONTROLLER_REVISIONS, place.namespace))[0])


async def image_of(place: pooling.Place, vm: str) -> str | None:
    found = (await place.vms()).get(vm)
    return at(found, "spec", "dataVolumeTemplates", 0, "spec", "source", "pvc", "name")


async def test_the_author_loses_the_right(
    admission: Admission, namespace: str, images: Images, control_plane: Any
) -> None:
    api, place = admission.api, pooling.Place(admission.api, namespace)
    jane = await token(api, namespace, "virtualmachines", "virtualmachinepools")
    author = f"system:serviceaccount:{namespace}:jane"

    async def recorded() -> str:
        found = read_record((await place.seen())["metadata"]["annotations"][REFERENCE_AUTHORS])
        return found[f"DataSource {images.namespace}/debian"].username

    async def refused() -> Any:
        return (await place.condition("ReferencesRefused")).get("status")

    async def annotate(value: str | None) -> None:
        await api.patch(POOLS, namespace, "web", {"metadata": {"annotations": {REFERENCE_AUTHORS: value}}})

    forged = a_pool(place, images)
    forged["metadata"]["annotations"] = {REFERENCE_AUTHORS: "forged"}
    await api.with_token(lambda: jane).create(POOLS, forged)
    assert await recorded() == author
    async with pooling.controller(Path(control_plane.kubeconfig)):
        await until(lambda: image_of(place, "web-1"), "debian-1")
        await until(lambda: revisions(place), 1)
    await images.nobody_may_read()
    await images.point_at("debian-2")
    async with pooling.controller(Path(control_plane.kubeconfig)):  # the answer about the first image would still count
        await until(refused, "True")
        message = (await place.condition("ReferencesRefused"))["message"]
        assert f"{author}, who wrote the reference, may no longer get DataSource {images.namespace}/debian" in message
        await annotate(None)
        await place.change(replicas=2)
        await until(lambda: image_of(place, "web-2"), "debian-1")
        assert await recorded() == author, "neither a client that drops the record nor one that scales is the author"
        assert await revisions(place) == 1
        await annotate("me")
        assert await recorded() != author
        await until(refused, "False")
        await place.change(replicas=3)
        await until(lambda: image_of(place, "web-3"), "debian-2")
        assert await revisions(place) == 2


async def test_a_client_that_applies_its_manifest_sees_no_difference(
    admission: Admission, namespace: str, images: Images
) -> None:
    """As GitOps tools and `kubectl diff` do."""
    api, place = admission.api, pooling.Place(admission.api, namespace)
    document = a_pool(place, images)

    async def apply(manager: str, *, dry_run: bool = False) -> Json:
        return await api.patch(POOLS, namespace, "web", document, kind="apply", field_manager=manager, dry_run=dry_run)

    made = await apply("git")
    assert REFERENCE_AUTHORS in made["metadata"]["annotations"]
    assert REFERENCE_AUTHORS not in str(made["metadata"]["managedFields"]), "no manager owns the record"
    for applied in (await apply("git", dry_run=True), await apply("git"), await apply("kubectl")):
        assert applied["spec"] == made["spec"]
        assert applied["metadata"]["annotations"] == made["metadata"]["annotations"]
        assert applied["metadata"]["generation"] == made["metadata"]["generation"]


async def test_an_apply_that_creates_a_pool_in_deletion_is_checked(
    admission: Admission, namespace: str, images: Images
) -> None:
    document = a_pool(pooling.Place(admission.api, namespace), images)
    document["metadata"]["annotations"] = {REFERENCE_AUTHORS: "forged"}
    document["metadata"] |= {"deletionTimestamp": "2036-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3600}
    made = await admission.api.patch(POOLS, namespace, "web", document, kind="apply", field_manager="git", dry_run=True)
    assert "deletionTimestamp" in made["metadata"]
    assert list(read_record(made["metadata"]["annotations"][REFERENCE_AUTHORS])) == [
        f"DataSource {images.namespace}/debian"
    ]
