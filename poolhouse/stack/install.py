"""Installs CRDs, roles, priority levels, webhook configurations and the engine's APIService in each `up`.

Server-side apply removes fields that an earlier version set, and keeps the fields of other field managers.
"""

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from poolhouse.api.apimachinery.timestamps import format_time, known_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS, kubevirt, meta
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.kubevirt import DATA_VOLUME, KUBEVIRT, VM, VMI, VMI_MIGRATION
from poolhouse.api.kinds.kubevirt_snapshots import VM_RESTORE, VM_SNAPSHOT, VM_SNAPSHOT_CONTENT
from poolhouse.api.kinds.meta import is_installed_by_us
from poolhouse.api.kinds.pool import POOL
from poolhouse.manifests import admission_policy, agent_certificates, flow_control, rbac, virtual_node, webhooks
from poolhouse.manifests.crd import crds
from poolhouse.manifests.rbac import READ, WRITE
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import Resource
from poolhouse.stack.certificates import KUBELET_CLIENT
from poolhouse.stack.components import StackError
from poolhouse.stack.engine.admission import data_volumes
from poolhouse.stack.engine.admission import server as admission
from poolhouse.stack.engine.resources import KUBEVIRT_USER, NODE_NAMES, SUBRESOURCE_GROUP, find_condition
from poolhouse.stack.engine.vm.subresources import VERBS
from poolhouse.stack.services import ACCOUNTS

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
        Resource(flow_control.GROUP, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False),
        Resource(flow_control.GROUP, "v1", "flowschemas", "FlowSchema", namespaced=False),
    )
}
ALL_VERBS = (*READ, *WRITE, "deletecollection")
SUBRESOURCES = "v1.subresources.kubevirt.io"
FIELD_MANAGER = "poolhouse-up"
SEEN = "poolhouse.dev/seen-at"
"""annotation of a CRD: when `up` found that the API server did not serve it in time"""
ESTABLISH_SECONDS = 5
WAIT_SECONDS = 180.0
RETRY_SECONDS = 0.1
POOLS = Resource.of(POOL)
INVALID_POOL = {
    "apiVersion": POOLS.api_version,
    "kind": POOLS.kind,
    "metadata": {"name": "poolhouse-probe", "namespace": "default"},
    "spec": {},
}
"""The API server's error for this pool shows whether the webhook or only the CRD's schema refused the pool."""


async def install_kinds(api: Api, node: str) -> None:
    """Installs all that needs no running service. Returns when the API server serves every kind. `node` is the name of
    the virtual node, if there is one."""
    definitions = crds([*await installable_kinds(api), *kubevirt.KUBEVIRT_KINDS])
    labels = {meta.PART_OF: meta.POOLHOUSE}
    await apply(
        api, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": meta.NAMESPACE, "labels": labels}}]
    )
    roles = [
        *_service_roles(node),
        *rbac.user_roles(),
        *rbac.health_role(),
        *kubevirt_roles(),
        *admission_policy.documents(
            webhook=rbac.service_account_user("webhook"),
            controllers=rbac.service_account_user("controllers"),
            copiers=[rbac.service_account_user("engine")],
            virtual_node=node,
        ),
        *data_volumes.policies(),
        *flow_control.for_one_machine(),
    ]
    await apply(api, [*definitions, *roles])
    # One after the other, because the API server establishes CRDs in turn, and each answer has a whole schema.
    for definition in definitions:
        await established(api, definition["metadata"]["name"])


KUBELET_CLIENTS: Json = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": KUBELET_CLIENT, "labels": {meta.PART_OF: meta.POOLHOUSE}},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
    "subjects": [{"apiGroup": RBAC, "kind": "User", "name": KUBELET_CLIENT}],
}
"""lets the API server call the kubelet endpoint of the virtual node"""


def _service_roles(node: str) -> list[Json]:
    """The roles, with all features of the controllers. They issue certificates to agents in the namespace `default`."""
    features = (*rbac.ANALYSIS_JOB_RULES, *(virtual_node.rules(node) if node else ()))
    roles = [
        *rbac.manifests(ACCOUNTS, controllers=features, own=agent_certificates.AUTHORITY_RULES),
        *rbac.namespace_role("controllers", agent_certificates.CERTIFICATE_RULES, "default"),
    ]
    if not node:
        return roles
    return [
        *roles,
        *rbac.namespace_role("controllers", virtual_node.lease_rules(node), virtual_node.NODE_LEASES),
        *rbac.namespace_role("controllers", virtual_node.AUTHENTICATION_RULES, virtual_node.AUTHENTICATION_NAMESPACE),
        KUBELET_CLIENTS,
        *rbac.namespace_role("engine", virtual_node.lease_rules(*NODE_NAMES), virtual_node.NODE_LEASES),
    ]


async def installable_kinds(api: Api) -> list[Kind]:
    """Returns the kinds of Poolhouse whose CRD KubeVirt has not installed."""
    return [kind for kind in KINDS if not kind.yields_to_kubevirt or await _is_ours(api, kind)]


async def _is_ours(api: Api, kind: Kind) -> bool:
    try:
        return is_installed_by_us(await api.get(RESOURCES["CustomResourceDefinition"], None, kind.crd_name))
    except NotFound:
        return True


async def install_webhooks(api: Api, url: str, bundle: bytes) -> None:
    """Installs the webhook configurations. Returns when the API server calls the webhook."""
    await publish_webhooks(api, url, bundle)

    async def problem() -> str | None:
        try:
            await api.create(POOLS, INVALID_POOL, dry_run=True)
        except ApiError as error:
            called = "denied the request" in error.message
            return None if called else f"the API server does not call the webhook: {error}"
        return "the API server does not call the webhook: it accepted an invalid pool"

    await _until_none(problem)


async def publish_webhooks(api: Api, url: str, bundle: bytes) -> None:
    """Applies the configurations for installable kinds only: the webhook does not know KubeVirt's own versions."""
    await apply(api, webhooks.configurations(url=url, ca_bundle=bundle, kinds=await installable_kinds(api)))


async def remove_webhooks(api: Api) -> None:
    """Removes the configurations of an earlier run, because its webhook no longer answers."""
    await _remove(api, webhooks.configurations(url="https://localhost", ca_bundle=b""))


async def install_subresources(api: Api, port: int, bundle: bytes) -> None:
    """Registers the engine's subresources (start, stop, ...). Returns when the APIService is available."""
    await publish_subresources(api, port, bundle)

    async def problem() -> str | None:
        available = _condition(await api.get(RESOURCES["APIService"], None, SUBRESOURCES), "Available")
        message = f"the engine's subresources are not available: {available.get('message')}"
        return None if available.get("status") == "True" else message

    await _until_none(problem)


async def publish_subresources(api: Api, port: int, bundle: bytes) -> None:
    """Applies the APIService and the engine's webhooks, which are those of KubeVirt's virt-api."""
    await apply(api, [*_subresources(port, bundle), *_engine_webhooks(port, bundle)])


async def remove_subresources(api: Api) -> None:
    await _remove(api, [*_subresources(1, b""), *_engine_webhooks(1, b"")])


def _engine_webhooks(port: int, bundle: bytes) -> list[Json]:
    return admission.configurations(f"https://127.0.0.1:{port}", bundle, KUBEVIRT_USER)


async def apply(api: Api, documents: Iterable[Json]) -> None:
    """Applies all documents concurrently. The documents must not depend on each other."""
    await asyncio.gather(
        *(
            api.patch(
                RESOURCES[document["kind"]],
                document["metadata"].get("namespace"),
                document["metadata"]["name"],
                document,
                kind="apply",
                field_manager=FIELD_MANAGER,
                force=True,
            )
            for document in documents
        )
    )


async def _remove(api: Api, documents: Iterable[Json]) -> None:
    for document in documents:
        metadata = document["metadata"]
        with contextlib.suppress(NotFound):
            await api.delete(RESOURCES[document["kind"]], metadata.get("namespace"), metadata["name"])


async def established(api: Api, name: str) -> None:
    """Waits until the API server serves the CRD.

    An API server that ends between the two conditions of a new CRD does not establish it after its restart: it does so
    at an update of the CRD, and its own refresh comes after five minutes. So an overdue CRD is updated.
    """
    crds = RESOURCES["CustomResourceDefinition"]

    async def problem() -> str | None:
        crd = await api.get(crds, None, name)
        if _condition(crd, "Established").get("status") == "True":
            return None
        names = _condition(crd, "NamesAccepted")
        if names.get("status") == "False":
            raise StackError(f"{name} is not served: {names.get('message')}")
        now = datetime.now(UTC)
        if is_overdue(crd, now):
            await api.patch(crds, None, name, {"metadata": {"annotations": {SEEN: format_time(now)}}})
        return f"{name} is not served yet; if the machine is busy, run `poolhouse up` again"

    await _until_none(problem)


def is_overdue(crd: Json, now: datetime) -> bool:
    """Whether the API server accepted the names of the CRD long ago, and `up` has not updated the CRD since."""
    names, seen = _condition(crd, "NamesAccepted"), crd["metadata"].get("annotations", {}).get(SEEN)
    times = [known_time(text) for text in (names.get("lastTransitionTime"), seen) if text]
    limit = now - timedelta(seconds=ESTABLISH_SECONDS)
    return bool(names) and all(time is None or time <= limit for time in times)


def _condition(document: Json, kind: str) -> Mapping[str, Any]:
    return find_condition(document.get("status", {}).get("conditions") or [], kind) or {}


def _subresources(port: int, bundle: bytes) -> list[Json]:
    """Returns the APIService and its Service, which is an ExternalName because Endpoints on loopback are invalid."""
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
                "group": SUBRESOURCE_GROUP,
                "version": "v1",
                "service": {**service, "port": port},
                "caBundle": base64.b64encode(bundle).decode(),
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
            },
        },
    ]


async def _until_none(problem: Callable[[], Awaitable[str | None]]) -> None:
    """Calls `problem` until it returns None. Raises `StackError` with the last problem after the timeout."""
    last: str | None = "the API server does not answer"
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while last := await problem():  # noqa: ASYNC110
                await asyncio.sleep(RETRY_SECONDS)
    except TimeoutError:
        raise StackError(last or "the API server does not answer") from None


def kubevirt_roles() -> list[Json]:
    """Returns the ClusterRoles that KubeVirt installs on a cluster. Namespace owners manage VMs and DataVolumes, and
    read migrations. Only users with a binding to `kubevirt.io:migrate` can create migrations.

    Since KubeVirt 1.5 namespace owners cannot create migrations, because a migration slows down all VMs of a node.
    """
    vms, subresources = (VM.plural, VMI.plural), [f"{plural}/{verb}" for plural in VERBS for verb in VERBS[plural]]
    migrations = [each for each in subresources if each.endswith("/migrate")]
    see_migrations = _rule(VM.group, (VMI_MIGRATION.plural,), READ)
    snapshots = [each.plural for each in (VM_SNAPSHOT, VM_SNAPSHOT_CONTENT, VM_RESTORE)]
    view = [
        _rule(VM.group, vms, READ),
        see_migrations,
        _rule(DATA_VOLUME.group, (DATA_VOLUME.plural,), READ),
        _rule(VM_SNAPSHOT.group, snapshots, READ),
    ]
    admin = [
        _rule(VM.group, vms, ALL_VERBS),
        see_migrations,
        _rule(DATA_VOLUME.group, (DATA_VOLUME.plural,), ALL_VERBS),
        _rule(VM_SNAPSHOT.group, snapshots, ALL_VERBS),
        _rule(SUBRESOURCE_GROUP, (each for each in subresources if each not in migrations), ("update",)),
    ]
    edit = [*admin, _rule(VM.group, (KUBEVIRT.plural,), ("get", "list"))]
    migrate = [_rule(VM.group, (VMI_MIGRATION.plural,), ALL_VERBS), _rule(SUBRESOURCE_GROUP, migrations, ("update",))]
    aggregated = [
        _role(name, rules, {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"})
        for name, rules in (("view", view), ("edit", edit), ("admin", admin))
    ]
    return [*aggregated, _role("migrate", migrate, {})]


def _role(name: str, rules: list[Json], labels: dict[str, str]) -> Json:
    metadata = {"name": f"kubevirt.io:{name}", "labels": {"kubevirt.io": "", **labels}}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}


def _rule(group: str, resources: Iterable[str], verbs: Iterable[str]) -> Json:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
