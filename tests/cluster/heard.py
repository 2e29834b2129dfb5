"""When the API server admits by the webhook configurations that are stored now. It hears of them in order: one that is
made last and acts has the others before it.
"""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import CONFIG_MAPS, Resource
from tests.waiting import eventually

GROUP = "admissionregistration.k8s.io"


async def heard(api: Api) -> None:
    """Returns when it is so, of both sorts."""
    for sort in ("Mutating", "Validating"):
        await _heard(api, sort)


async def _heard(api: Api, sort: str) -> None:
    kind = f"{sort}WebhookConfiguration"
    resource = Resource(GROUP, "v1", f"{kind.lower()}s", kind, namespaced=False)
    name, labels = f"heard-{uuid4().hex[:12]}", {"heard": f"{sort}-{uuid4().hex[:12]}"}
    nobody = {
        "name": "heard.test.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "objectSelector": {"matchLabels": labels},
    }

    async def refused() -> bool:
        probe = {"metadata": {"namespace": "default", "name": name, "labels": labels}}
        try:
            await api.create(CONFIG_MAPS, probe, dry_run=True)
        except ApiError as error:
            return "heard.test.dev" in error.message
        return False

    try:
        await api.create(resource, {"metadata": {"name": name}, "webhooks": [nobody]})
        await eventually(refused)
    finally:
        with suppress(NotFound):
            await api.delete(resource, None, name)
