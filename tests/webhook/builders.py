"""Builds requests, VMs and API servers with what a test does not state itself."""

from __future__ import annotations

import base64
import json
from typing import Any

from poolhouse.api.kinds.resource_types import POOLS
from poolhouse.runtime.resource import VMS
from tests.builders import manifest, vm_spec
from tests.runtime.faulty_server import Request, Script
from tests.webhook.json_patch import apply
from webhook.review import AdmissionRequest

Json = dict[str, Any]

BARE = {"metadata": {"labels": {"app": "web"}}, "spec": vm_spec({"domain": {"devices": {}}}, running=True)}
POOL: Json = manifest(POOLS, "web", {"replicas": 3, "template": BARE}, "shop")


async def unreadable_vmi(namespace: str, name: str) -> Json | None:
    return {}


def vm(*disks: Json, annotations: Json | None = None, meta: Json | None = None, **domain: Any) -> Json:
    """A VirtualMachine whose VMI template has this domain."""
    spec = {"domain": {"devices": {"disks": list(disks)}, **domain}}
    metadata: Json = {"name": "web", "namespace": "shop", "annotations": annotations, **(meta or {})}
    return manifest(VMS, spec=vm_spec(spec, labels={"app": "web"}, running=True), **metadata)


def disk(name: str = "root", **target: Any) -> Json:
    return {"name": name, "disk": target}


def request(document: Json | None, old: Json | None = None, **changed: Any) -> AdmissionRequest:
    document_or_old = document or old or {}
    metadata = document_or_old.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    given: Json = {
        "uid": "1b0d",
        "operation": "CREATE" if old is None else "UPDATE",
        "api_version": document_or_old.get("apiVersion", "v1"),
        "kind": document_or_old.get("kind", "Unknown"),
        "namespace": metadata.get("namespace", "shop"),
        "name": metadata.get("name", ""),
        "object": document,
        "old": old,
        "user": {"username": "jane"},
    }
    return AdmissionRequest(**{**given, **changed})


def review(document: Json | None, old: Json | None = None, **changed: Any) -> Json:
    """The AdmissionReview that an API server sends."""
    asked = request(document, old)
    group, _, version = asked.api_version.rpartition("/")
    body: Json = {
        "uid": asked.uid,
        "operation": asked.operation,
        "kind": {"group": group, "version": version, "kind": asked.kind},
        "resource": {"group": group, "version": version, "resource": asked.kind.lower() + "s"},
        "namespace": asked.namespace,
        "name": asked.name,
        "object": document,
        "oldObject": old,
        "userInfo": asked.user,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**body, **changed}}


def patched(document: Json, response: Json) -> Any:
    return apply(document, json.loads(base64.b64decode(response["patch"]))) if "patch" in response else document


async def granting(request: Request) -> None:
    """An API server that allows everything and stores nothing."""
    if "review" in request.path:
        return await request.answer(201, {"status": {"allowed": True}})
    return await request.answer(201, request.document)


def api_server(
    code: int = 201, body: Any = None, headers: dict[str, str] | None = None, *, may: bool | None = True
) -> Script:
    """Answers access reviews with `may`, unless it is None, and all other requests with `code` and `body`."""

    async def script(request: Request) -> None:
        if may is not None and request.path.endswith("selfsubjectaccessreviews"):
            return await request.answer(201, {"status": {"allowed": may}})
        return await request.answer(code, request.document if body is None else body, headers)

    return script
