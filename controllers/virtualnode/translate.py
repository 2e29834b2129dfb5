"""Makes the claim of a Pod, whose application has the Pod's containers, or names every field that no VM can carry out.

The tables have a line for each field of a Pod that a VM carries out or that it need not carry out. Every other field is
refused, also those that later versions of Kubernetes add: a Pod must not run without something that it asks for.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controllers.shared.pod_claims import claim_metadata
from poolhouse.api.apimachinery.go_json import go_json_size
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.checks.claim import OVERRIDE_ANNOTATIONS
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.validation import child_path

PATIENCE_SECONDS = 2**31 - 1
"""`bindTimeoutSeconds` of the claim: a Pod waits as long as it exists, as it would for another node"""
TOKEN_VOLUME = "kube-api-access-"
"""prefix of the volume that the API server adds to each Pod, with credentials for the cluster that no VM gets"""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
METADATA_FIELD = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
VM_RESOURCES = {"cpu", "memory", "ephemeral-storage", meta.WARM_VM}
"""resources that the VM has in any case; the pool's template says how much"""


MAX_APPLICATION_BYTES = 512 * 1024
"""etcd stores objects of up to 1.5 MiB. A claim has its application, the names of the application's fields once more in
`managedFields`, and its status."""


MAX_LISTED = 50


def listed(names: Sequence[str]) -> str:
    """The names for a message, which must not grow without limit."""
    more = f", and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


@dataclass(frozen=True)
class Refused:
    """The paths of all fields that no VM can carry out."""

    paths: tuple[str, ...]

    @property
    def message(self) -> str:
        return f"a warm VM cannot do what these fields ask for: {listed(self.paths)}"


@dataclass(frozen=True)
class TooLarge:
    """An application that does not fit into a claim."""

    size_bytes: int

    @property
    def message(self) -> str:
        return (
            f"the containers, labels and annotations of the Pod have {self.size_bytes} bytes in its claim, "
            f"and at most {MAX_APPLICATION_BYTES} fit: put large values into a ConfigMap or a Secret"
        )


def claim_of(pod: Json) -> Json | Refused | TooLarge:
    """The claim of a Pod, as the controllers create it."""
    metadata, spec = pod["metadata"], pod["spec"]
    translation = _Translation(pod)
    application = translation.fields(spec, POD, "spec")
    if translation.refused:
        return Refused(tuple(translation.refused))
    annotations = metadata.get("annotations") or {}
    application["labels"] = metadata.get("labels") or {}
    application["annotations"] = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    if (size := go_json_size(application)) > MAX_APPLICATION_BYTES:
        return TooLarge(size)
    account = spec.get("serviceAccountName") or "default"
    own = claim_metadata(metadata["name"], metadata["uid"])
    pool = annotations.get(meta.WARM_POOL)
    return {
        "apiVersion": f"{CLAIM.group}/{CLAIM.versions[0]}",
        "kind": CLAIM.kind,
        "metadata": {
            **own,
            "namespace": metadata["namespace"],
            "annotations": {
                **own["annotations"],
                **{key: annotations[key] for key in OVERRIDE_ANNOTATIONS if key in annotations},
                meta.REQUESTER: f"system:serviceaccount:{metadata['namespace']}:{account}",
            },
        },
        "spec": {
            **({"poolName": pool} if pool else {}),
            "bindTimeoutSeconds": PATIENCE_SECONDS,
            "application": application,
        },
    }


@dataclass
class _Translation:
    pod: Json
    refused: list[str] = field(default_factory=list)

    def fields(self, value: Json, table: "Table", path: str) -> Json:
        """The fields that the table takes. The paths of other fields are added to `refused`."""
        taken: Json = {}
        for name, inner in value.items():
            rule: FieldRule = table.get(name, REFUSE)
            if rule is not LEAVE_OUT and not _is_unset(inner):
                translated = rule(self, inner, child_path(path, name))
                if translated is not None:
                    taken[name] = translated
        return taken

    def token_volumes(self) -> set[str]:
        volumes = self.pod["spec"].get("volumes") or ()
        return {each["name"] for each in volumes if _is_token_volume(each)}


def _is_token_volume(volume: Json) -> bool:
    """Whether the volume has nothing but what the API server adds. A user may give another volume such a name."""
    sources = at(volume, "projected", "sources")
    return volume["name"].startswith(TOKEN_VOLUME) and bool(sources) and all(map(_is_token_source, sources))


def _is_token_source(source: Json) -> bool:
    match source:
        case {"serviceAccountToken": {"path": "token", **token}}:
            return not token.get("audience")
        case {"configMap": {"name": "kube-root-ca.crt" | "openshift-service-ca.crt"}}:
            return True
        case {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}:
            return True
    return False


FieldRule = Callable[[_Translation, Any, str], Any]
"""takes a translation, a field's value and its path; returns the value in the application, or None to leave it out"""
Table = Mapping[str, FieldRule]


def _is_unset(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


def TAKE(translation: _Translation, value: Any, path: str) -> Any:
    return value


def LEAVE_OUT(translation: _Translation, value: Any, path: str) -> None: ...


def REFUSE(translation: _Translation, value: Any, path: str) -> None:
    translation.refused.append(path)


def _only(*values: str) -> FieldRule:
    """Leaves out a field with one of these values, which ask for nothing."""
    return lambda translation, value, path: None if value in values else REFUSE(translation, value, path)


def _object(table: Table) -> FieldRule:
    return lambda translation, value, path: translation.fields(value, table, path)


def _nothing_of(table: Table) -> FieldRule:
    """Leaves out an object, but refuses the fields in it that the table does not have."""

    def rule(translation: _Translation, value: Json, path: str) -> None:
        translation.fields(value, table, path)

    return rule


def _each(table: Table) -> FieldRule:
    return lambda translation, value, path: [
        translation.fields(each, table, f"{path}[{index}]") for index, each in enumerate(value)
    ]


def _take(*names: str) -> dict[str, FieldRule]:
    return dict.fromkeys(names, TAKE)


def _leave_out(*names: str) -> dict[str, FieldRule]:
    return dict.fromkeys(names, LEAVE_OUT)


def _environment(translation: _Translation, value: Iterable[Json], path: str) -> list[Json]:
    """The variables. Of several with one name, the last counts."""
    found: dict[str, Json] = {}
    for index, variable in enumerate(value):
        source = variable.get("valueFrom")
        taken = {"name": variable["name"]}
        if not source:
            taken["value"] = variable.get("value") or ""
        elif source.get("fieldRef"):
            place = f"{path}[{index}].valueFrom.fieldRef.fieldPath"
            taken["value"] = _field_of_pod(translation, source["fieldRef"]["fieldPath"], place)
        else:
            taken["valueFrom"] = translation.fields(source, SOURCE, f"{path}[{index}].valueFrom")
        found.pop(variable["name"], None)
        found[variable["name"]] = taken
    return list(found.values())


def _field_of_pod(translation: _Translation, name: str, path: str) -> str:
    """The value of a field that is known before the application runs. Those of the status are not."""
    metadata, spec = translation.pod["metadata"], translation.pod["spec"]
    if match := METADATA_FIELD.fullmatch(name):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    known = {f"metadata.{each}": metadata.get(each, "") for each in ("name", "namespace", "uid")}
    known |= {f"spec.{each}": spec.get(each, "") for each in ("nodeName", "serviceAccountName")}
    if name not in known:
        REFUSE(translation, name, path)
    return str(known.get(name, ""))


def _volumes(translation: _Translation, value: Iterable[Json], path: str) -> list[Json]:
    tokens = translation.token_volumes()
    return [
        translation.fields(each, VOLUME, f"{path}[{index}]")
        # An emptyDir without settings is an empty object, which is a source all the same.
        | ({"emptyDir": {}} if each.get("emptyDir") == {} else {})
        for index, each in enumerate(value)
        if each["name"] not in tokens
    ]


def _mounts(translation: _Translation, value: Iterable[Json], path: str) -> list[Json]:
    tokens = translation.token_volumes()
    return [
        translation.fields(each, MOUNT, f"{path}[{index}]")
        for index, each in enumerate(value)
        if each["name"] not in tokens
    ]


def _resources(translation: _Translation, value: Json, path: str) -> None:
    """Refuses devices, huge pages and other resources that a VM may not have. Names each once: the API server copies
    limits to requests."""
    limits, requests = value.get("limits") or {}, value.get("requests") or {}
    for kind, names in (("limits", limits), ("requests", requests.keys() - limits.keys())):
        for name in sorted(set(names) - VM_RESOURCES):
            REFUSE(translation, name, child_path(f"{path}.{kind}", name))
    if value.get("claims"):
        REFUSE(translation, None, f"{path}.claims")


SOURCE = _take("secretKeyRef", "configMapKeyRef")
VOLUME: Table = {
    **_take("name", "configMap", "secret"),
    "emptyDir": _object({**_take("sizeLimit"), "medium": lambda t, v, p: v if v == "Memory" else REFUSE(t, v, p)}),
}
MOUNT: Table = {
    **_take("name", "mountPath", "subPath", "readOnly"),
    "mountPropagation": _only("None"),
    "recursiveReadOnly": _only("Disabled", "IfPossible"),
}
PROBE: Table = _take(
    *("exec", "httpGet", "tcpSocket", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold"),
    "failureThreshold",
)
_RESTRICTIONS = _leave_out(
    *("runAsUser", "runAsGroup", "runAsNonRoot", "seLinuxOptions", "seccompProfile", "appArmorProfile"),
)
"""the VM is the boundary, so no user IDs and no restrictions apply in it"""
CONTAINER: Table = {
    **_take("name", "image", "command", "args", "workingDir", "imagePullPolicy"),
    "ports": _each(_take("containerPort", "name", "protocol")),
    "env": _environment,
    "envFrom": _each(_take("prefix", "configMapRef", "secretRef")),
    "volumeMounts": _mounts,
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), _object(PROBE)),
    "resources": _resources,
    "securityContext": _nothing_of(
        {
            **_RESTRICTIONS,
            **_leave_out("readOnlyRootFilesystem", "allowPrivilegeEscalation"),
            "capabilities": _nothing_of(_leave_out("drop")),
            "procMount": _only("Default"),
        }
    ),
    **_leave_out("terminationMessagePath", "terminationMessagePolicy", "resizePolicy", "stdin", "stdinOnce", "tty"),
}
POD: Table = {
    "volumes": _volumes,
    "initContainers": _each(CONTAINER),
    "containers": _each(CONTAINER),
    **_take("restartPolicy", "terminationGracePeriodSeconds", "imagePullSecrets"),
    "securityContext": _nothing_of(
        {
            **_RESTRICTIONS,
            **_leave_out("supplementalGroups", "supplementalGroupsPolicy", "fsGroup", "fsGroupChangePolicy"),
            **_leave_out("seLinuxChangePolicy"),
        }
    ),
    "os": _nothing_of({"name": _only("linux")}),
    "resources": _resources,
    # The controllers end a Pod at its deadline.
    **_leave_out("activeDeadlineSeconds", "readinessGates"),
    # The scheduler has read these.
    **_leave_out("nodeName", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName"),
    **_leave_out("schedulingGates", "priority", "priorityClassName", "preemptionPolicy", "overhead"),
    # Names and credentials of the cluster: the VM has a name of its own, and no credentials.
    **_leave_out("serviceAccountName", "serviceAccount", "automountServiceAccountToken", "enableServiceLinks"),
    **_leave_out("hostname", "subdomain", "setHostnameAsFQDN", "dnsPolicy", "hostUsers"),
}
