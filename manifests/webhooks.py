"""The webhook configurations: who is asked about what, and what happens when nobody answers.

Two entries for KubeVirt's VMs, which fail open, because a VM must never wait for us: one decides hardware, the other
comes after every webhook and says when somebody changed it. Our own kinds fail closed, twice: once as a mutating entry,
which comes before the schema, so that one answer carries every problem, wrong types included; and once as a validating
one, which sees what other webhooks made of the object.

The names begin with `zz-` because the API server asks in the order of names, and KubeVirt and others that give out MAC
addresses come first.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from apimachinery.unstructured import Json
from kinds import KINDS, meta
from kinds.kind import Kind

DEFAULTING_CONFIGURATION = "zz-poolhouse-defaulting"
KINDS_CONFIGURATION = "zz-poolhouse-kinds"
MUTATE, VALIDATE = "/mutate", "/validate"

DEFAULTING_WEBHOOK = f"defaulting.{meta.DOMAIN}"
"""the entry that decides hardware"""

EXCLUDED_NAMESPACES = ("kube-system", meta.NAMESPACE)
"""namespaces whose VMs are nobody's to default: a cluster must come up without us"""
_NOT_DISABLED: Json = {"key": meta.DEFAULTING, "operator": "NotIn", "values": [meta.DISABLED]}

# A finalizer must come off while we are away, and most writes to a VM (KubeVirt's, of status and of annotations) change
# no hardware: none of them costs a call. CEL has no error to fail on here, whatever is missing.
_STAYS = {"name": "stays", "expression": "object == null || !has(object.metadata.deletionTimestamp)"}


def _changes(annotations: Iterable[str] = ()) -> Json:
    """Something is wanted otherwise: the spec, or these annotations, which are part of it."""
    before, after = (
        f"(has({it}.metadata.annotations) && each in {it}.metadata.annotations"
        f" ? [{it}.metadata.annotations[each]] : [])"
        for it in ("oldObject", "object")
    )
    expression = "oldObject == null || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec"
    if names := ", ".join(f"'{name}'" for name in sorted(annotations)):
        expression += f" || [{names}].exists(each, {before} != {after})"
    return {"name": "changes", "expression": expression}


OWN_MATCH_CONDITIONS = frozenset(str(each["name"]) for each in (_STAYS, _changes()))
"""names of the conditions of `DECIDES` that are ours; others are added at installation"""


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
    """The configurations to apply. Exactly one of `url` (the webhook's base URL) and `service`; `ca_bundle` is PEM.

    `failure_policy` is for defaulting alone: our own kinds are never taken unseen.
    """
    if (url is None) == (service is None):
        raise ValueError("give the webhook's URL or its Service, one of the two")

    def client(path: str) -> Json:
        bundle = base64.b64encode(ca_bundle).decode()
        if url is not None:
            return {"caBundle": bundle, "url": url.rstrip("/") + path}
        assert service is not None
        reached = {"name": service.name, "namespace": service.namespace, "path": path, "port": service.port}
        return {"caBundle": bundle, "service": reached}

    common: Json = {"admissionReviewVersions": ["v1"], "sideEffects": "None", "matchPolicy": "Equivalent"}
    defaulting = {
        **common,
        "name": DEFAULTING_WEBHOOK,
        "clientConfig": client(MUTATE),
        "failurePolicy": failure_policy,
        "timeoutSeconds": defaulting_timeout_seconds,
        "reinvocationPolicy": "IfNeeded",
        "rules": [_rule("kubevirt.io", ("v1",), ("virtualmachines", "virtualmachineinstances"), "Namespaced")],
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(EXCLUDED_NAMESPACES)},
                _NOT_DISABLED,
            ]
        },
        "objectSelector": {"matchExpressions": [_NOT_DISABLED]},
        "matchConditions": [_STAYS, _changes()],
    }
    verification = {key: value for key, value in defaulting.items() if key != "reinvocationPolicy"}
    verification |= {
        "name": f"defaulting-verification.{meta.DOMAIN}",
        "clientConfig": client(VALIDATE),
        "failurePolicy": "Ignore",
    }
    kinds = tuple(kinds)
    ours = {
        **common,
        "failurePolicy": "Fail",
        "timeoutSeconds": timeout_seconds,
        "rules": [_rule(k.group, k.versions, (k.plural,), "Namespaced" if k.namespaced else "Cluster") for k in kinds],
        "matchConditions": [_STAYS, _changes({name for kind in kinds for name in kind.spec_annotations})],
    }
    mutating = {
        **ours,
        "name": f"pools.{meta.DOMAIN}",
        "clientConfig": client(MUTATE),
        "reinvocationPolicy": "IfNeeded",
    }
    validating = {**ours, "name": f"pools-validation.{meta.DOMAIN}", "clientConfig": client(VALIDATE)}
    return [
        _configuration("Mutating", DEFAULTING_CONFIGURATION, defaulting),
        _configuration("Mutating", KINDS_CONFIGURATION, mutating),
        _configuration("Validating", DEFAULTING_CONFIGURATION, verification),
        _configuration("Validating", KINDS_CONFIGURATION, validating),
    ]


def configuration_names() -> tuple[tuple[str, str], ...]:
    """Of all configurations: the resource's plural and the name."""
    found = configurations(service=Service(), ca_bundle=b"")
    return tuple((f"{each['kind'].lower()}s", str(each["metadata"]["name"])) for each in found)


def _configuration(sort: str, name: str, webhook: Json) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{sort}WebhookConfiguration",
        "metadata": {"name": name, "labels": {meta.PART_OF: meta.POOLHOUSE, meta.COMPONENT: "webhook"}},
        "webhooks": [webhook],
    }


def _rule(group: str, versions: Iterable[str], resources: Iterable[str], scope: str) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": list(versions),
        "operations": ["CREATE", "UPDATE"],
        "resources": list(resources),
        "scope": scope,
    }
