"""Admission of warm pools and claims at a real API server, with the webhook and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from controllers.claim.snapshot import CLAIMS
from controllers.shared.pod_claims import claim_metadata
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.kinds.meta import IMAGE_ID, POD_UID, REQUESTER
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Forbidden, Invalid
from poolhouse.runtime.resource import PODS, Resource
from tests.builders import manifest
from tests.cluster.test_admission import Admission, admission, token
from tests.cluster.test_kinds import api, namespace
from tests.kinds import test_claim, test_warmpool
from tests.kinds.documents import changed
from tests.kinds.warm import claim, ec2_pool, warm_pool

Json = dict[str, Any]

__all__ = ["admission", "api", "namespace"]

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
CONTAINER = {"name": "main", "image": "x"}
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}


def here(document: Json, namespace: str) -> Json:
    return changed(document, namespace, "metadata", "namespace")


async def refusal(api: Api, resource: Resource, namespace: str, document: Json) -> ApiError | None:
    try:
        await api.request("POST", resource.path(namespace), body=here(document, namespace), query=STRICT)
    except ApiError as error:
        return error
    return None


# Without the webhook


async def test_schema_and_checks_agree(api: Api, namespace: str) -> None:
    for row in test_warmpool.RIGHT:
        document = WARM_POOL.normalize(row.values[0])
        assert await refusal(api, WARM_POOLS, namespace, document) is None, row.id
    for row in test_warmpool.WRONG:
        refused = await refusal(api, WARM_POOLS, namespace, WARM_POOL.normalize(row.values[0]))
        if isinstance(refused, Invalid):
            fields = {str(cause.get("field", "")).removeprefix(".") for cause in refused.causes}
            ours = list(test_warmpool.told(row.values[0]))
            assert all(any(path.startswith(field) for path in ours) for field in fields - {"<nil>"}), row.id


async def test_the_schema_makes_fields_of_a_claim_immutable(api: Api, namespace: str) -> None:
    for row in test_claim.CHANGES:
        before, after, paths = row.values
        before = here(changed(before, "x-" + str(abs(hash(row.id)))[:8], "metadata", "name"), namespace)
        made = await api.create(CLAIMS, before)
        name = made["metadata"]["name"]
        body = {**made, "spec": after["spec"]}
        in_spec = {path for path in paths if path.startswith("spec")}
        try:
            await api.request("PUT", CLAIMS.path(namespace, name), body=body)
            refused: set[str] = set()
        except Invalid as error:
            refused = {cause["field"] for cause in error.causes}
        assert refused == in_spec, row.id


# With it


async def test_a_stored_claim_has_its_requester_and_overrides(admission: Admission, namespace: str) -> None:
    api = admission.api
    await api.create(CLAIMS, here(claim(annotations={IMAGE_ID: "tiny", REQUESTER: "somebody"}), namespace))
    made = await api.get(CLAIMS, namespace, "mine")
    maker = made["metadata"]["annotations"][REQUESTER]
    assert maker not in ("", "somebody")
    assert made["spec"]["overrides"] == {"image": "tiny"}
    changes = {"metadata": {"annotations": {REQUESTER: "somebody"}}, "spec": {"ttlSeconds": 600}}
    changed_claim = await api.patch(CLAIMS, namespace, "mine", changes)
    assert changed_claim["metadata"]["annotations"][REQUESTER] == maker
    assert changed_claim["spec"]["ttlSeconds"] == 600
    for wrong in ({"metadata": {"annotations": {IMAGE_ID: "other"}}}, {"spec": {"poolName": "db"}}):
        with pytest.raises(Invalid, match="cannot be changed"):
            await api.patch(CLAIMS, namespace, "mine", wrong)
    await api.patch(CLAIMS, namespace, "mine", {"spec": {"release": True}})
    with pytest.raises(Invalid, match="cannot be set back"):
        await api.patch(CLAIMS, namespace, "mine", {"spec": {"release": False}})


async def test_only_who_may_patch_the_status_of_a_pod_changes_the_pod_of_a_claim(
    admission: Admission, namespace: str
) -> None:
    """The API server asks the webhook also about a change of nothing but owner references or annotations."""
    api, secret = admission.api, await token(admission.api, namespace, CLAIMS.plural)
    jane = api.with_token(lambda: secret)
    # The Pod exists, because the garbage collector deletes a claim whose owner does not.
    spec = {"serviceAccountName": "jane", "automountServiceAccountToken": False, "containers": [CONTAINER]}
    own = claim_metadata("web-0", (await api.create(PODS, manifest(PODS, "web-0", spec, namespace)))["metadata"]["uid"])
    own["annotations"][REQUESTER] = f"system:serviceaccount:{namespace}:default"

    async def patch(name: str, caller: Api, **metadata: Any) -> Json:
        return await caller.patch(CLAIMS, namespace, name, {"metadata": metadata})

    await jane.create(CLAIMS, here(claim(), namespace))
    forged = changed(here(claim(), namespace), own, "metadata")
    with pytest.raises(Forbidden, match="may not make a claim that Pod web-0 controls"):
        await jane.create(CLAIMS, here(forged, namespace))
    with pytest.raises(Forbidden, match="may not make a claim that Pod web-0 controls"):
        await patch("mine", jane, ownerReferences=own["ownerReferences"])
    with pytest.raises(Forbidden, match="may not make a claim that names Pod web-0"):
        await patch("mine", jane, annotations=own["annotations"])
    await patch("mine", jane, ownerReferences=[{**own["ownerReferences"][0], "controller": False}])
    made = await api.create(CLAIMS, here(forged, namespace))
    assert made["metadata"]["annotations"][REQUESTER] == own["annotations"][REQUESTER]
    for metadata in ({"ownerReferences": None}, {"annotations": {POD_UID: None}}):
        with pytest.raises(Forbidden, match="may not take a claim from Pod web-0"):
            await patch(own["name"], jane, **metadata)
    await patch(own["name"], jane, labels={"mine": "x"})
    assert "ownerReferences" not in (await patch(own["name"], api, ownerReferences=None))["metadata"]


@pytest.mark.sentence("5.47")
async def test_a_namespace_has_one_default_pool(admission: Admission, namespace: str) -> None:
    api = admission.api
    await api.create(WARM_POOLS, here(warm_pool("first", default=True), namespace))
    with pytest.raises(Invalid, match="first is this namespace's default pool"):
        await api.create(WARM_POOLS, here(warm_pool("second", default=True), namespace))
    await api.create(WARM_POOLS, here(warm_pool("second"), namespace))
    with pytest.raises(Invalid, match="first is this namespace's default pool"):
        await api.patch(WARM_POOLS, namespace, "second", {"spec": {"default": True}})
    await api.patch(WARM_POOLS, namespace, "first", {"spec": {"default": False}})
    await api.patch(WARM_POOLS, namespace, "second", {"spec": {"default": True}})


@pytest.mark.sentence("5.62")
async def test_one_denial_lists_all_problems_of_a_warm_pool(admission: Admission, namespace: str) -> None:
    document = warm_pool("a.b", replicas="2", maxTotal=1, placements=[{"name": "x", "weight": 0}])
    with pytest.raises(Invalid) as refused:
        await admission.api.create(WARM_POOLS, here(document, namespace))
    fields = {cause["field"] for cause in refused.value.causes}
    assert fields == {"metadata.name", "spec.replicas", "spec.placements"}


async def test_a_warm_pool_needs_the_right_to_create_vms(admission: Admission, namespace: str) -> None:
    jane = await token(admission.api, namespace, WARM_POOLS.plural)
    for document, what in ((warm_pool(), "virtualmachines"), (ec2_pool(), "ec2instances")):
        body = here(document, namespace)
        with pytest.raises(Forbidden, match=f"may not create {what}"):
            await admission.api.with_token(lambda: jane).create(WARM_POOLS, body)


async def test_the_examples_are_admitted(admission: Admission, namespace: str) -> None:
    for name in ("warm-pool.yaml", "claim.yaml"):
        for document in yaml.safe_load_all((EXAMPLES / name).read_text()):
            resource = WARM_POOLS if document["kind"] == WARM_POOL.kind else CLAIMS
            await admission.api.request("POST", resource.path(namespace), body=document, query=STRICT)
