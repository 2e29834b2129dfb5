"""Admission of replica sets: what their first instance would be refused for, they are refused for."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.replicaset.observe import REPLICA_SETS
from defaulter.contract import Problem
from poolhouse.runtime.errors import Forbidden, Invalid, NotFound
from poolhouse.runtime.resource import VMIS
from tests.cluster.replicating import LABELS, the_set
from tests.cluster.test_admission import Admission, admission, token
from tests.cluster.test_kinds import api, namespace
from tests.kinds.documents import changed

__all__ = ["admission", "api", "namespace"]

Json = dict[str, Any]


async def test_a_template_that_would_be_refused_is_refused_with_the_set(admission: Admission, namespace: str) -> None:
    admission.defaulter.refuses = lambda document: [
        Problem(path="spec.domain.machine.type", message="there is no such machine")
    ]
    with pytest.raises(Invalid) as refusal:
        await admission.api.create(REPLICA_SETS, the_set(namespace, 2))
    (cause,) = refusal.value.causes
    assert cause["field"] == "spec.template.spec.domain.machine.type"
    with pytest.raises(NotFound):
        await admission.api.get(REPLICA_SETS, namespace, "web")


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
async def test_a_set_gets_all_its_problems_in_one_answer(admission: Admission, namespace: str, version: str) -> None:
    bad = {**the_set(namespace, -1, selector={"matchLabels": {"app": "db"}}), "apiVersion": f"kubevirt.io/{version}"}
    with pytest.raises(Invalid) as refusal:
        await admission.api.request(
            "POST", f"/apis/kubevirt.io/{version}/namespaces/{namespace}/{REPLICA_SETS.plural}", body=bad
        )
    assert {cause["field"] for cause in refusal.value.causes} == {"spec.replicas", "spec.selector.matchLabels"}


async def test_a_set_gives_its_author_no_more_rights(admission: Admission, namespace: str) -> None:
    jane = await token(admission.api, namespace, REPLICA_SETS.plural)
    _, told = await admission.dry_run(the_set(namespace, 1), jane)
    assert not told["allowed"]
    (problem,) = told["problems"]
    assert problem["path"] == "spec.template"
    assert f"may not create {VMIS.plural} in namespace {namespace}" in problem["message"]
    with pytest.raises(Forbidden):
        await admission.api.with_token(lambda: jane).create(REPLICA_SETS, the_set(namespace, 1))


async def test_a_dry_run_shows_the_set_as_it_would_be_stored(admission: Admission, namespace: str) -> None:
    jane = await token(admission.api, namespace, REPLICA_SETS.plural, VMIS.plural)
    yaml = changed(the_set(namespace, 1), {"spare": True, **LABELS}, "spec", "template", "metadata", "labels")
    _, told = await admission.dry_run(yaml, jane)
    assert told["object"]["spec"]["template"]["metadata"]["labels"] == {"spare": "true", **LABELS}
    assert told["object"]["spec"]["paused"] is False
    with pytest.raises(NotFound):
        await admission.api.get(REPLICA_SETS, namespace, "web")
