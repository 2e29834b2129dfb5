"""Generates the webhook configurations.

| webhook | for | if the webhook is unavailable |
| --- | --- | --- |
| defaulting (mutating) | VMs and VMIs, without complete VMs of the controllers | the VM is admitted without defaults |
| defaulting-verification (validating) | VMs and VMIs that lack defaults after all webhooks | the VM is admitted |
| pools (mutating) | Poolhouse's kinds, before the API server validates their schema | the object is denied |
| pools-validation (validating) | Poolhouse's kinds, as other webhooks have left them | the object is denied |
| scale (validating) | scale subresources of Poolhouse's kinds | the Scale is admitted |

The webhook of scale subresources fails open. Autoscalers and `kubectl scale` must work while Poolhouse is down, and the
webhook only says earlier what holds anyway: the controllers create no VMs above the replica limit.

The mutating webhook of Poolhouse's kinds runs before schema validation, so that one denial reports every problem. The
API server calls webhooks in the order of the names of their configurations. The names here begin with `zz-`, so that
KubeVirt's webhooks, and webhooks that assign MAC addresses, come first.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS, meta
from poolhouse.api.kinds.kind import Kind

DEFAULTING_CONFIGURATION = "zz-poolhouse-defaulting"
KINDS_CONFIGURATION = "zz-poolhouse-kinds"
MUTATE, VALIDATE = "/mutate", "/validate"

DEFAULTING_WEBHOOK = f"defaulting.{meta.DOMAIN}"
"""the webhook that sets defaults of VMs"""

EXCLUDED_NAMESPACES = ("kube-system", meta.NAMESPACE)
"""Namespaces without defaulting, because a cluster must start without Poolhouse."""
_NOT_DISABLED: Json = {"key": meta.DEFAULTING, "operator": "NotIn", "values": [meta.DISABLED]}

# Match conditions. Finalizers must be removable while the webhook is unavailable. Most writes to a VM change only its
# status or annotations, and need no call. The expressions do not fail if fields are missing. A server-side apply can
# create an object with a deletionTimestamp, which is checked like any other new object.
_NOT_DELETED = {
    "name": "stays",
    "expression": "object == null || oldObject == null || !has(object.metadata.deletionTimestamp)",
}


def _spec_changed(annotations: Iterable[str] = ()) -> Json:
    """A match condition: the request changes the spec or one of the annotations."""
    before, after = (
        f"(has({it}.metadata.annotations) && each in {it}.metadata.annotations"
        f" ? [{it}.metadata.annotations[each]] : [])"
        for it in ("oldObject", "object")
    )
    expression = "oldObject == null || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec"
    if names := ", ".join(f"'{name}'" for name in sorted(annotations)):
        expression += f" || [{names}].exists(each, {before} != {after})"
    return {"name": "changes", "expression": expression}


def _pod_or_spec_changed(annotations: Iterable[str]) -> Json:
    """A match condition: the request changes the spec, one of the annotations, or which Pod controls the object."""
    before, after = (
        f"(has({it}.metadata.ownerReferences) ? {it}.metadata.ownerReferences.filter(each, each.kind == 'Pod'"
        " && has(each.controller) && each.controller) : [])"
        for it in ("oldObject", "object")
    )
    condition = _spec_changed(annotations)
    return {**condition, "expression": f"{condition['expression']} || {before} != {after}"}


def _incomplete() -> Json:
    """A match condition for objects that may lack defaults: VMIs, VMs without a record of their defaults, and VMs with
    a disk or an interface that has no address."""
    path = ("object", "spec", "template", "spec", "domain", "devices")
    devices = ".".join(path)
    present = [_given(".".join(path[:length])) for length in range(2, len(path) + 1)]
    present.append(_given("object.spec.template.spec.domain.machine"))
    recorded = f"has(object.metadata.annotations) && '{meta.DEFAULTED_FIELDS}' in object.metadata.annotations"
    lacking = {
        "disks": f"!{_given('each.cdrom')} && !{_given('each.lun')} && (!{_given('each.disk')}"
        f" || !{_given('each.disk.pciAddress')} && (!{_given('each.disk.bus')} || each.disk.bus == 'virtio'))",
        "interfaces": f"!{_given('each.macAddress')} || !{_given('each.pciAddress')}",
    }
    found = [
        f"{_given(f'{devices}.{name}')} && {devices}.{name}.exists(each, {lacks})" for name, lacks in lacking.items()
    ]
    return {
        "name": "incomplete",
        "expression": " || ".join([f"!({' && '.join(present)} && {recorded})", *(f"({each})" for each in found)]),
    }


def _given(field: str) -> str:
    """An expression that is true if a field has a value. Null and empty text count as absent."""
    return f'(has({field}) && {field} != null && {field} != "")'


OWN_MATCH_CONDITIONS = frozenset(str(each["name"]) for each in (_NOT_DELETED, _spec_changed()))
"""Names of the match conditions of `DEFAULTING_WEBHOOK`. An installation may add others."""


@dataclass(frozen=True)
class Service:
    """The webhook's Service in the cluster."""

    name: str = "poolhouse-webhook"
    namespace: str = meta.NAMESPACE
    port: int = 443


def configurations(
    *,
    url: str | None = None,
    service: Service | None = None,
    ca_bundle: bytes,
    failure_policy: Literal["Ignore", "Fail"] = "Ignore",
    defaulting_timeout_seconds: int = 3,
    timeout_seconds: int = 10,
    kinds: Iterable[Kind] = KINDS,
) -> list[Json]:
    """The webhook configurations. Pass either `url` (the webhook's base URL) or `service`. `ca_bundle` is PEM.
    `failure_policy` applies only to defaulting. The webhooks of Poolhouse's kinds always fail closed."""
    if (url is None) == (service is None):
        raise ValueError("give the webhook's URL or its Service, one of the two")

    def client(path: str) -> Json:
        bundle = base64.b64encode(ca_bundle).decode()
        if url is not None:
            return {"caBundle": bundle, "url": url.rstrip("/") + path}
        assert service is not None
        reached = {"name": service.name, "namespace": service.namespace, "path": path, "port": service.port}
        return {"caBundle": bundle, "service": reached}

    def entry(webhook: str, path: str, shared: Json) -> Json:
        return {**_COMMON, **shared, "name": f"{webhook}.{meta.DOMAIN}", "clientConfig": client(path)}

    def configuration(sort: str, name: str, *entries: Json) -> Json:
        order = {"reinvocationPolicy": "IfNeeded"} if sort == "Mutating" else {}
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{sort}WebhookConfiguration",
            "metadata": {"name": name, "labels": {meta.PART_OF: meta.POOLHOUSE, meta.COMPONENT: "webhook"}},
            "webhooks": [{**each, **order} for each in entries],
        }

    kinds = tuple(kinds)
    ours, scale = _for_kinds(kinds, timeout_seconds), _for_scale(kinds)
    defaulting = _defaulting(failure_policy, defaulting_timeout_seconds)
    verification = _defaulting("Ignore", defaulting_timeout_seconds, _incomplete())
    return [
        configuration("Mutating", DEFAULTING_CONFIGURATION, entry("defaulting", MUTATE, defaulting)),
        configuration("Mutating", KINDS_CONFIGURATION, entry("pools", MUTATE, ours)),
        configuration("Validating", DEFAULTING_CONFIGURATION, entry("defaulting-verification", VALIDATE, verification)),
        configuration(
            "Validating",
            KINDS_CONFIGURATION,
            entry("pools-validation", VALIDATE, ours),
            *([entry("scale", VALIDATE, scale)] if scale["rules"] else []),
        ),
    ]


_COMMON: Json = {"admissionReviewVersions": ["v1"], "sideEffects": "None", "matchPolicy": "Equivalent"}


def _defaulting(failure_policy: str, timeout_seconds: int, *conditions: Json) -> Json:
    return {
        "failurePolicy": failure_policy,
        "timeoutSeconds": timeout_seconds,
        "rules": [_rule("kubevirt.io", ("v1",), ("virtualmachines", "virtualmachineinstances"), "Namespaced")],
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(EXCLUDED_NAMESPACES)},
                _NOT_DISABLED,
            ]
        },
        "objectSelector": {"matchExpressions": [_NOT_DISABLED]},
        "matchConditions": [_NOT_DELETED, _spec_changed(), *conditions],
    }


def _for_kinds(kinds: tuple[Kind, ...], timeout_seconds: int) -> Json:
    annotations = {name for kind in kinds for name in kind.spec_annotations}
    return {
        "failurePolicy": "Fail",
        "timeoutSeconds": timeout_seconds,
        "rules": [_rule(k.group, k.versions, (k.plural,), "Namespaced" if k.namespaced else "Cluster") for k in kinds],
        "matchConditions": [_NOT_DELETED, _pod_or_spec_changed(annotations)],
    }


def _for_scale(kinds: tuple[Kind, ...]) -> Json:
    raised = (
        "oldObject == null || !has(oldObject.spec.replicas)"
        " || (has(object.spec.replicas) && object.spec.replicas > oldObject.spec.replicas)"
    )
    return {
        "failurePolicy": "Ignore",
        "timeoutSeconds": 3,
        "rules": [
            {**_rule(k.group, k.versions, (f"{k.plural}/scale",), "Namespaced"), "operations": ["UPDATE"]}
            for k in kinds
            if k.scale is not None
        ],
        "matchConditions": [{"name": "raises", "expression": raised}],
    }


def configuration_names() -> tuple[tuple[str, str], ...]:
    """Plural of the resource and name of every configuration."""
    found = configurations(service=Service(), ca_bundle=b"")
    return tuple((f"{each['kind'].lower()}s", str(each["metadata"]["name"])) for each in found)


def _rule(group: str, versions: Iterable[str], resources: Iterable[str], scope: str) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": list(versions),
        "operations": ["CREATE", "UPDATE"],
        "resources": list(resources),
        "scope": scope,
    }
