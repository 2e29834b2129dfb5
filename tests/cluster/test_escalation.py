"""A template gives its author nothing that the author could not create alone: what the cluster refuses of a VM, it
refuses of each kind that makes VMs, before anything is stored.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio

from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import VMS, Resource
from tests.cluster.replicating import the_set
from tests.cluster.test_admission import Admission, admission, eventually, pool, token, vm
from tests.cluster.test_kinds import api, namespace
from tests.kinds.documents import changed
from tests.kinds.warm import warm_pool
from tests.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS

Json = dict[str, Any]

__all__ = ["admission", "api", "namespace"]

GROUP = "admissionregistration.k8s.io"
SIDECARS = "hooks.kubevirt.io/hookSidecars"
INNER = "(object.kind == 'VirtualMachine' ? object.spec.template : object)"
RULES = {
    "sidecars": f"!('{SIDECARS}' in {INNER}.?metadata.?annotations.orValue({{}}))",
    "devices": f"!has({INNER}.spec.domain.devices.hostDevices) || 'gpu-admins' in request.userInfo.groups",
    "accounts": f"!{INNER}.spec.?volumes.orValue([]).exists(v, has(v.serviceAccount))",
    "secrets": f"!{INNER}.spec.?volumes.orValue([]).exists(v, has(v.secret) && v.secret.secretName == 'payroll')",
    "clones": "!has(object.spec.dataVolumeTemplates) || object.spec.dataVolumeTemplates.all(d, "
    "!has(d.spec.source) || !has(d.spec.source.pvc) || d.spec.source.pvc.namespace == object.metadata.namespace)",
}
FORBIDDEN = ("accounts", "secrets")
ROOT = {"name": "root", "containerDisk": {"image": "tiny"}}
CLONE = {"metadata": {"name": "root"}, "spec": {"source": {"pvc": {"namespace": "payroll", "name": "ledger"}}}}
ATTEMPTS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "sidecars": ({SIDECARS: '[{"image": "mine"}]'}, ("metadata", "annotations")),
    "devices": ([{"name": "gpu", "deviceName": "vendor.example/gpu"}], ("spec", "domain", "devices", "hostDevices")),
    "accounts": ([ROOT, {"name": "a", "serviceAccount": {"serviceAccountName": "admin"}}], ("spec", "volumes")),
    "secrets": ([ROOT, {"name": "a", "secret": {"secretName": "payroll"}}], ("spec", "volumes")),
}
"""what the author tries, and where in an instance it stands"""


@pytest_asyncio.fixture
async def strict(api: Api, namespace: str) -> AsyncIterator[None]:
    """The cluster's own policy on VMs and instances, in this namespace; it knows nothing of pools."""
    rules = [
        {"apiGroups": ["kubevirt.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [each]}
        for each in ("virtualmachines", "virtualmachineinstances")
    ]
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    validations = [
        # Most policies say 422, and some say 403 as if it were a matter of rights.
        {
            "expression": rule,
            "message": f"not allowed: {name}",
            "reason": "Forbidden" if name in FORBIDDEN else "Invalid",
        }
        for name, rule in RULES.items()
    ]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules, "namespaceSelector": here},
        "validations": validations,
    }
    binding = {"policyName": namespace, "validationActions": ["Deny"]}
    try:
        await api.create(ADMISSION_POLICIES, {"metadata": {"name": namespace}, "spec": spec})
        await api.create(ADMISSION_POLICY_BINDINGS, {"metadata": {"name": namespace}, "spec": binding})
        await eventually(lambda: _refused(api, tried("accounts", vm(namespace))))
        yield
    finally:
        for resource in (ADMISSION_POLICY_BINDINGS, ADMISSION_POLICIES):
            with suppress(NotFound):
                await api.delete(resource, None, namespace)


async def _refused(api: Api, document: Json) -> bool:
    try:
        await api.create(VMS, document, dry_run=True)
    except ApiError as error:
        return "not allowed" in error.message
    return False


PLACES = {
    "VirtualMachine": ("spec", "template"),
    "VirtualMachinePool": ("spec", "template", "spec", "template"),
    "VirtualMachineWarmPool": ("spec", "template", "spec", "template"),
    "VirtualMachineInstanceReplicaSet": ("spec", "template"),
}
"""where each kind has its instance"""


def tried(attempt: str, document: Json) -> Json:
    """The document with this attempt in it."""
    value, path = ATTEMPTS[attempt]
    found = copy.deepcopy(document)
    inner = found
    for part in (*PLACES[document["kind"]], *path[:-1]):
        inner = inner.setdefault(part, {})
    inner[path[-1]] = value
    return found


def _documents(namespace: str) -> list[Json]:
    return [
        vm(namespace),
        pool(namespace),
        changed(warm_pool(), namespace, "metadata", "namespace"),
        the_set(namespace, 1),
    ]


def _path(document: Json) -> str:
    group, _, version = document["apiVersion"].partition("/")
    plural = document["kind"].lower() + "s"
    return Resource(group, version, plural, document["kind"]).path(document["metadata"]["namespace"])


async def test_a_template_is_refused_for_the_same_reasons_as_a_vm(
    admission: Admission, namespace: str, strict: None
) -> None:
    kinds = ("virtualmachinepools", "virtualmachinewarmpools", "virtualmachineinstancereplicasets")
    jane = await token(admission.api, namespace, "virtualmachines", "virtualmachineinstances", *kinds)

    async def told(document: Json) -> ApiError | None:
        try:
            await admission.api.with_token(lambda: jane).request(
                "POST", _path(document), body=document, query={"dryRun": "All"}
            )
        except ApiError as error:
            return error
        return None

    for document in _documents(namespace):
        assert await told(document) is None, f"a harmless {document['kind']} is hers to create"
        for attempt in ATTEMPTS:
            error = await told(tried(attempt, document))
            assert error is not None, (document["kind"], attempt)
            assert f"not allowed: {attempt}" in error.message, (document["kind"], attempt)
            if document["kind"] != "VirtualMachine":
                assert any(each["field"].startswith("spec.template") for each in error.causes), document["kind"]


async def test_a_disk_is_cloned_from_another_namespace_by_no_pool_either(
    admission: Admission, namespace: str, strict: None
) -> None:
    for document, *path in (
        (vm(namespace), "spec", "dataVolumeTemplates"),
        (pool(namespace), "spec", "template", "spec", "dataVolumeTemplates"),
    ):
        with pytest.raises(ApiError, match="not allowed: clones"):
            await admission.api.request("POST", _path(document), body=changed(document, [CLONE], *path))
