"""What a cluster must know before Poolhouse can work in it, applied at every `up`.

Server-side apply with one field manager: what an earlier version had and this one hasn't goes away, and what others
wrote stays.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import kinds
from kinds import kubevirt, meta
from kinds.kind import Kind
from kinds.meta import is_installed_by_us
from local.components import StackError
from local.engine.kubevirt_roles import kubevirt_roles
from local.services import ACCOUNTS
from manifests import admission_policy, rbac, webhooks
from manifests.crd import crds
from runtime.api import Api
from runtime.errors import ApiError, NotFound
from runtime.resource import Resource

Document = dict[str, Any]

REGISTRATION = "admissionregistration.k8s.io"
RBAC = "rbac.authorization.k8s.io"
RESOURCES = {
    r.kind: r
    for r in (
        Resource("", "v1", "namespaces", "Namespace", namespaced=False),
        Resource("", "v1", "services", "Service"),
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource(RBAC, "v1", "roles", "Role"),
        Resource(RBAC, "v1", "rolebindings", "RoleBinding"),
        Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False),
        Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False),
        Resource(REGISTRATION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
        Resource(REGISTRATION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
        Resource(REGISTRATION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False),
        Resource(REGISTRATION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False),
    )
}
SUBRESOURCES = "v1.subresources.kubevirt.io"
MANAGER = "poolhouse-up"
WAIT_SECONDS = 180.0
ASK_SECONDS = 0.1
PROBE = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachinePool",
    "metadata": {"name": "poolhouse-probe", "namespace": "default"},
    "spec": {},
}
"""no pool at all: who refuses it, the webhook or the schema, tells whether the API server asks the webhook yet"""


async def install_kinds(api: Api) -> None:
    """Namespace, CRDs, rights and the guard of our labels; returns when every kind is served."""
    definitions = crds([*await installable_kinds(api), *kubevirt.KUBEVIRT_KINDS])
    await apply(api, [_namespace()])
    rights = [
        *rbac.manifests(ACCOUNTS),
        *rbac.user_roles(),
        *kubevirt_roles(),
        *admission_policy.policies(map(rbac.service_account_user, ACCOUNTS)),
    ]
    await apply(api, [*definitions, *rights])
    await asyncio.gather(*(_established(api, definition["metadata"]["name"]) for definition in definitions))


async def installable_kinds(api: Api) -> list[Kind]:
    """The kinds of ours, without those that stand back because somebody else has installed their resource."""
    return [kind for kind in kinds.KINDS if not kind.yields_to_kubevirt or await _free(api, kind)]


async def _free(api: Api, kind: Kind) -> bool:
    try:
        return is_installed_by_us(await api.get(RESOURCES["CustomResourceDefinition"], None, kind.crd_name))
    except NotFound:
        return True


async def install_webhooks(api: Api, url: str, bundle: bytes) -> None:
    """Returns when the API server asks the webhook."""
    await publish_webhooks(api, url, bundle)
    pools = Resource("kubevirt.io", "v1", "virtualmachinepools", "VirtualMachinePool")

    async def unasked() -> str | None:
        try:
            await api.create(pools, PROBE, dry_run=True)
        except ApiError as error:
            return (
                None if "denied the request" in error.message else f"the API server does not ask the webhook: {error}"
            )
        return "the API server does not ask the webhook: it took a pool that is none"

    await _until(unasked)


async def publish_webhooks(api: Api, url: str, bundle: bytes) -> None:
    """Of KubeVirt's own kinds nobody is asked who would refuse what he does not know."""
    await apply(api, webhooks.configurations(url=url, ca_bundle=bundle, kinds=await installable_kinds(api)))


async def remove_webhooks(api: Api) -> None:
    """Those of earlier runs: nobody would answer them."""
    await _remove(api, webhooks.configurations(url="https://localhost", ca_bundle=b""))


async def install_subresources(api: Api, port: int, bundle: bytes) -> None:
    """Start, stop, restart and the like of VMs, which the engine serves; returns when the API server finds it well."""
    await publish_subresources(api, port, bundle)

    async def unavailable() -> str | None:
        state = _condition(await api.get(RESOURCES["APIService"], None, SUBRESOURCES), "Available")
        if state.get("status") == "True":
            return None
        return f"the engine's subresources are not available: {state.get('message')}"

    await _until(unavailable)


async def publish_subresources(api: Api, port: int, bundle: bytes) -> None:
    await apply(api, _subresources(port, bundle))


async def remove_subresources(api: Api) -> None:
    await _remove(api, _subresources(1, b""))


async def apply(api: Api, documents: Iterable[Document]) -> None:
    """All at once; they must not depend on each other."""
    await asyncio.gather(*(_apply(api, document) for document in documents))


async def _apply(api: Api, document: Document) -> None:
    metadata = document["metadata"]
    await api.patch(
        RESOURCES[document["kind"]],
        metadata.get("namespace"),
        metadata["name"],
        document,
        kind="apply",
        field_manager=MANAGER,
        force=True,
    )


async def _remove(api: Api, documents: Iterable[Document]) -> None:
    for document in documents:
        metadata = document["metadata"]
        try:
            await api.delete(RESOURCES[document["kind"]], metadata.get("namespace"), metadata["name"])
        except NotFound:
            continue


async def _established(api: Api, name: str) -> None:
    async def unserved() -> str | None:
        found = await api.get(RESOURCES["CustomResourceDefinition"], None, name)
        if _condition(found, "Established").get("status") == "True":
            return None
        refused = _condition(found, "NamesAccepted")
        sentence = f"{name} is not served: {refused.get('message') or 'not yet'}"
        if refused.get("status") == "False":
            raise StackError(sentence)
        return sentence

    await _until(unserved)


def _condition(document: Document, kind: str) -> dict[str, Any]:
    conditions = document.get("status", {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _namespace() -> Document:
    labels = {meta.PART_OF: meta.POOLHOUSE}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": meta.NAMESPACE, "labels": labels}}


def _subresources(port: int, bundle: bytes) -> list[Document]:
    """A Service that is only a name for loopback: the API server may not be told an address, and refuses Endpoints on
    loopback."""
    labels = {meta.PART_OF: meta.POOLHOUSE, meta.COMPONENT: "engine"}
    service = {"name": "poolhouse-engine", "namespace": meta.NAMESPACE}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**service, "labels": labels},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": SUBRESOURCES, "labels": labels},
            "spec": {
                "group": "subresources.kubevirt.io",
                "version": "v1",
                "service": {**service, "port": port},
                "caBundle": base64.b64encode(bundle).decode(),
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
            },
        },
    ]


async def _until(ask: Callable[[], Awaitable[str | None]]) -> None:
    """Ask until nothing is missing; in the end, what was missing last is why the stack is broken."""
    missing: str | None = "the API server does not answer"
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while missing := await ask() or None:  # noqa: ASYNC110
                await asyncio.sleep(ASK_SECONDS)
    except TimeoutError:
        raise StackError(missing or "the API server does not answer") from None
