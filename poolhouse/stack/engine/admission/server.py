"""Answers the API server's AdmissionReviews as virt-api does, and names its webhooks."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.fields import VM_SPEC, VMI_SPEC
from poolhouse.api.kubevirt.wrong_types import WrongType, wrong_types
from poolhouse.runtime.api import Api
from poolhouse.service.request_body import RequestRefused, parse
from poolhouse.stack.engine.admission import evictions, mutation, validation
from poolhouse.stack.engine.admission.spec_rules import Cause

MUTATING, VALIDATING = "virt-api-mutator", "virt-api-validator"
VMS, VMIS = "virtualmachines", "virtualmachineinstances"
SNAPSHOTS, RESTORES = "virtualmachinesnapshots", "virtualmachinerestores"
BODY_LIMIT_BYTES = 8 << 20
TIMEOUT_SECONDS = 10
RUNNING_IS_DEPRECATED = "spec.running is deprecated, please use spec.runStrategy instead."

Review = Callable[[Json, ClusterSettings, bool], Json]
"""Returns the response to a request, without its UID. The last argument: whether KubeVirt itself sent the request."""


def _mutate_vm(request: Json, settings: ClusterSettings, by_kubevirt: bool) -> Json:
    return _patched(request, mutation.default_vm(request["object"], request["operation"], settings))


def _mutate_vmi(request: Json, settings: ClusterSettings, by_kubevirt: bool) -> Json:
    vmi = request["object"]
    if request["operation"] == "CREATE":
        return _patched(request, mutation.default_vmi(vmi, settings))
    old = request.get("oldObject") or {}
    if by_kubevirt or vmi.get("status") == old.get("status"):
        return {"allowed": True}
    # A VMI has no status subresource, so virt-api takes back changes of the status by others.
    status = [{"op": "replace", "path": "/status", "value": old.get("status") or {}}]
    return {"allowed": True, **_patch(status)}


def _validate_vm(request: Json, settings: ClusterSettings, by_kubevirt: bool) -> Json:
    vm, old = request["object"], request.get("oldObject")
    deprecated = at(vm, "spec", "running") is not None
    found = validation.check_vm(vm, settings)
    found += validation.check_data_volume_namespaces(old, vm, typed(str, request, "namespace") or "")
    if old:
        found += validation.check_changed_vm(old, vm)
    return _decided(found, [RUNNING_IS_DEPRECATED] if deprecated else [])


def _validate_snapshot(request: Json, settings: ClusterSettings, by_kubevirt: bool) -> Json:
    return _decided(validation.check_snapshot(request.get("oldObject"), request["object"], "source"))


def _validate_restore(request: Json, settings: ClusterSettings, by_kubevirt: bool) -> Json:
    return _decided(validation.check_snapshot(request.get("oldObject"), request["object"], "target"))


def _validate_new_vmi(request: Json, settings: ClusterSettings, by_kubevirt: bool) -> Json:
    return _decided(validation.check_new_vmi(request["object"], settings, by_kubevirt=by_kubevirt))


def _validate_changed_vmi(request: Json, settings: ClusterSettings, by_kubevirt: bool) -> Json:
    old, new = request.get("oldObject") or {}, request["object"]
    return _decided(validation.check_changed_vmi(old, new, by_kubevirt=by_kubevirt))


WEBHOOKS: Mapping[str, tuple[str, str, str, tuple[str, ...], Review]] = {
    "/virtualmachines-mutate": (MUTATING, "virtualmachines-mutator", VMS, ("CREATE", "UPDATE"), _mutate_vm),
    "/virtualmachineinstances-mutate": (
        MUTATING,
        "virtualmachineinstances-mutator",
        VMIS,
        ("CREATE", "UPDATE"),
        _mutate_vmi,
    ),
    "/virtualmachines-validate": (VALIDATING, "virtualmachine-validator", VMS, ("CREATE", "UPDATE"), _validate_vm),
    "/virtualmachineinstances-validate-create": (
        VALIDATING,
        "virtualmachineinstances-create-validator",
        VMIS,
        ("CREATE",),
        _validate_new_vmi,
    ),
    "/virtualmachineinstances-validate-update": (
        VALIDATING,
        "virtualmachineinstances-update-validator",
        VMIS,
        ("UPDATE",),
        _validate_changed_vmi,
    ),
    "/virtualmachinesnapshots-validate": (
        VALIDATING,
        "virtualmachinesnapshot-validator.snapshot",
        SNAPSHOTS,
        ("CREATE", "UPDATE"),
        _validate_snapshot,
    ),
    "/virtualmachinerestores-validate": (
        VALIDATING,
        "virtualmachinerestore-validator.snapshot",
        RESTORES,
        ("CREATE", "UPDATE"),
        _validate_restore,
    ),
}
"""By path: configuration, name, resource, operations and function of each webhook. Names and paths are virt-api's."""
PATHS = (*WEBHOOKS, evictions.PATH)


SPEC_TYPES: Mapping[str, str] = {VMS: VM_SPEC, VMIS: VMI_SPEC}
"""by resource, the type of the spec"""


class InvalidReview(ValueError):
    """The body is not an AdmissionReview that an API server sends."""


async def answer_eviction(api: Api, body: bytes, settings: ClusterSettings) -> Json:
    """Returns the AdmissionReview for the eviction of a Pod. Raises `InvalidReview`."""
    request = _read_request(body)
    return _reviewed(request, await evictions.review(api, request, settings))


def answer(path: str, body: bytes, settings: ClusterSettings, kubevirt_user: str) -> Json:
    """Returns the AdmissionReview for a review in JSON. `kubevirt_user` is the user name of KubeVirt itself. Raises
    `InvalidReview`."""
    request = _read_request(body)
    by_kubevirt = at(request, "userInfo", "username") == kubevirt_user
    _, _, resource, _, review = WEBHOOKS[path]
    # The functions of the webhooks read a document without looking at the types of its values.
    malformed = _wrong_types(request["object"], resource)
    response = _decided(malformed) if malformed else review(request, settings, by_kubevirt)
    return _reviewed(request, response)


def _reviewed(request: Json, response: Json) -> Json:
    header = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return {**header, "response": {"uid": request["uid"], **response}}


def _read_request(body: bytes) -> Json:
    try:
        review = parse(body)
    except RequestRefused as refused:
        raise InvalidReview(refused.message) from None
    for field, kind in (("uid", str), ("operation", str), ("object", dict)):
        if typed(kind, review, "request", field) is None:
            raise InvalidReview(f"request.{field} must be {'an object' if kind is dict else 'a string'}")
    request: Json = review["request"]
    old = request.get("oldObject")
    if not (isinstance(old, dict) if request["operation"] == "UPDATE" else isinstance(old, dict | None)):
        raise InvalidReview("request.oldObject must be an object")
    return request


def _wrong_types(document: Json, resource: str) -> list[Cause]:
    """Returns why the published schema of the resource refuses the document. KubeVirt's webhooks check it first."""
    metadata, spec, status = (document.get(part) for part in ("metadata", "spec", "status"))
    found = [*wrong_types(metadata, "ObjectMeta", ("metadata",))]
    # The finalizers of an object that is being deleted can be removed, whatever its spec.
    if at(metadata, "deletionTimestamp") is None and resource in SPEC_TYPES:
        found += wrong_types({} if spec is None else spec, SPEC_TYPES[resource], ("spec",))
    found += [WrongType(("status",), "object", status)] if not isinstance(status, dict | None) else []
    return [Cause(each.message, each.field) for each in found]


def configurations(url: str, bundle: bytes, kubevirt_user: str) -> list[Json]:
    """Returns the webhook configurations. `url` is the base URL of the engine, and `bundle` its CA."""
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name, "labels": {meta.PART_OF: meta.POOLHOUSE, meta.COMPONENT: "engine"}},
            "webhooks": [*_webhooks(name, url, bundle, kubevirt_user)],
        }
        for kind, name in (
            ("MutatingWebhookConfiguration", MUTATING),
            ("ValidatingWebhookConfiguration", VALIDATING),
        )
    ]


def _webhooks(configuration: str, url: str, bundle: bytes, kubevirt_user: str) -> Iterator[Json]:
    for path, (name, *_) in WEBHOOKS.items():
        if name == configuration:
            yield _webhook(path, url, bundle, kubevirt_user)
    if configuration == VALIDATING:
        yield evictions.webhook(_client(evictions.PATH, url, bundle))


def _client(path: str, url: str, bundle: bytes) -> Json:
    return {"url": url + path, "caBundle": base64.b64encode(bundle).decode()}


def _webhook(path: str, url: str, bundle: bytes, kubevirt_user: str) -> Json:
    _, name, resource, operations, _ = WEBHOOKS[path]
    webhook: Json = {
        "name": f"{name}.kubevirt.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "clientConfig": _client(path, url, bundle),
        "rules": [
            {
                "apiGroups": ["snapshot.kubevirt.io" if resource in (SNAPSHOTS, RESTORES) else "kubevirt.io"],
                "apiVersions": ["v1beta1" if resource in (SNAPSHOTS, RESTORES) else "v1"],
                "operations": list(operations),
                "resources": [resource],
                "scope": "Namespaced",
            }
        ],
    }
    if resource == VMIS:
        # virt-api allows KubeVirt's own changes of VMIs. Without these calls, a simulated cluster is faster.
        others = {"name": "others", "expression": f"request.userInfo.username != '{kubevirt_user}'"}
        webhook["matchConditions"] = [others]
    return webhook


def _patched(request: Json, document: Json) -> Json:
    """Allows the request, and replaces the whole spec or metadata where they changed, as virt-api does."""
    before = request["object"]
    changes = [
        {"op": "replace", "path": f"/{part}", "value": document[part]}
        for part in ("spec", "metadata")
        if document.get(part) != before.get(part)
    ]
    return {"allowed": True, **_patch(changes)}


def _patch(operations: list[Json]) -> Json:
    if not operations:
        return {}
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"patchType": "JSONPatch", "patch": encoded}


def _decided(causes: list[Cause], warnings: Iterable[str] = ()) -> Json:
    if not causes:
        found: Json = {"allowed": True}
        return {**found, "warnings": list(warnings)} if warnings else found
    listed: list[dict[str, Any]] = [
        {key: value for key, value in (("reason", c.type), ("message", c.message), ("field", c.field)) if value}
        for c in causes
    ]
    status = {
        "status": "Failure",
        "message": ", ".join(cause.message for cause in causes),
        "reason": "Invalid",
        "code": 422,
        "details": {"causes": listed},
    }
    return {"allowed": False, "status": status}
