"""Valid and nearly valid documents: those of the repository, with fields that their kinds have.

KubeVirt's fields are those of `poolhouse.api.kubevirt.fields`, and ours those of the kinds' schemas. Both say which
fields exist; this module adds the values that a field of a name may have.
"""

import copy
import re
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS, by_gvk, meta
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kubevirt.fields import VM_SPEC, VMI_SPEC, declared_fields, fields_of
from tests.fuzz.mutations import NUMBERS, WORDS, scalar
from tests.fuzz.structures import data_source

ROOT = Path(__file__).resolve().parent.parent.parent
MANIFESTS = ("examples", "tests/defaulter/golden", "docs")

NAMES = ("root", "data", "default", "net1", "a", "b")
VALUES: dict[str, tuple[Any, ...]] = {
    "name": NAMES,
    "bus": ("virtio", "sata", "scsi", "usb"),
    "pciAddress": ("0000:02:00.0", "0000:81:01.0", "0000:1f:00.0", "0000:00:1f.2", "0000:00:00.0"),
    "macAddress": ("52:54:00:00:00:01", "02-00-00-00-00-02", "01:00:5e:00:00:01"),
    "model": ("virtio", "e1000e", "rtl8139", "host-model", "host-passthrough", "qemu64", "Skylake-Client", "ich9"),
    "type": ("q35", "pc-q35-7.2", "pc-i440fx-7.2", "virt", "s390-ccw-virtio", "virtio", "vga", "tablet", "pc"),
    "architecture": ("amd64", "arm64", "s390x", "ppc64le"),
    "cache": ("none", "writethrough", "writeback"),
    "io": ("native", "threads", "default"),
    "guest": ("64Mi", "1Gi", "128974848", 2**30, "1"),
    "maxGuest": ("4Gi", "16Gi"),
    "pageSize": ("2Mi", "1Gi"),
    "state": ("up", "down", "absent"),
    "action": ("poweroff", "reset", "shutdown"),
    "policy": ("require", "force", "optional", "disable", "forbid"),
    "tickPolicy": ("delay", "catchup", "merge", "discard"),
    "uuid": ("00000000-0000-4000-8000-000000000001", "5d307ca9-b3ef-428c-8861-06e72d69f223"),
    "serial": ("abc", "a" * 20),
    "runStrategy": ("Always", "Halted", "Manual", "RerunOnFailure", "Once"),
    "requests": ({"memory": "64Mi"}, {"cpu": "2", "memory": "1Gi"}),
    "limits": ({"memory": "64Mi"}, {"cpu": "500m"}),
    "metadata": ({}, {"labels": {"a": "b"}}, {"annotations": {"poolhouse.dev/hardware": "{}"}}),
    "cores": (1, 2, 4, 64),
    "sockets": (1, 2, 8),
    "threads": (1, 2),
    "maxSockets": (1, 4, 16, 512),
    "bootOrder": (1, 2, 3),
    "image": ("quay.io/containerdisks/fedora:41", "a/b@sha256:" + "0" * 64),
    "claimName": ("disk-1", "x"),
    "kernelArgs": ("console=ttyS0",),
    "kind": ("VirtualMachineInstancetype", "VirtualMachineClusterPreference"),
}
_BOOLEANS = re.compile(
    "auto|enabled|present|read|shareable|secure|persistent|hotplug|optional|blockMulti|Multiqueue|running|Placement"
    "|dedicated|isolate|hidden|track|default|use|log|overcommit|preallocation|disable|changed|reservation|extended"
)


@cache
def manifests() -> tuple[Json, ...]:
    """The objects in the repository's examples, pages and golden files."""
    texts = []
    for folder in MANIFESTS:
        texts += [path.read_text() for path in sorted((ROOT / folder).glob("*.yaml"))]
        for page in sorted((ROOT / folder).rglob("*.md")):
            texts += re.findall(r"^```(?:yaml)?\n(apiVersion: .*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    found = []
    for text in texts:
        try:
            found += [each for each in yaml.safe_load_all(text) if isinstance(each, dict) and "kind" in each]
        except yaml.YAMLError:
            continue  # a page may show a part of a manifest
    return tuple(each for each in found if isinstance(each.get("spec"), dict))


def of_kinds(*names: str) -> list[Json]:
    return [each for each in manifests() if each["kind"] in names]


def vm(random: Random) -> Json:
    """A VirtualMachine or VMI with more of KubeVirt's fields."""
    document = copy.deepcopy(random.choice(of_kinds("VirtualMachine", "VirtualMachineInstance")))
    is_vm = document["kind"] == "VirtualMachine"
    _add_fields(random, document["spec"], VM_SPEC if is_vm else VMI_SPEC, random.choice((0, 1, 3, 8)))
    inner = document["spec"].get("template", {}).get("spec", {}) if is_vm else document["spec"]
    if isinstance(inner, dict) and random.random() < 0.5:
        _match_sources(inner)
    metadata = document.setdefault("metadata", {})
    if random.random() < 0.1:
        metadata.pop("name", None)
        metadata["generateName"] = "vm-"
    metadata.setdefault("namespace", "shop")
    return document


def _add_fields(random: Random, value: Json, type_name: str, count: int) -> None:
    """Adds or changes fields of a value and of the objects in it."""
    for _ in range(count):
        here, type_here = value, type_name
        while True:
            fields = fields_of(type_here)
            name = random.choice(sorted(fields)) if fields else ""
            if not name:
                break
            inner = fields[name]
            if not inner:
                here[name] = _leaf(random, name)
                break
            is_list = declared_fields(type_here)[name].is_list
            below = here.get(name)
            if is_list:
                below = below if isinstance(below, list) else []
                if not below or random.random() < 0.3:
                    below.append({"name": random.choice(NAMES)} if "name" in fields_of(inner) else {})
                here[name], below = below, random.choice(below)
            else:
                below = below if isinstance(below, dict) else {}
                here[name] = below
            if not isinstance(below, dict) or random.random() < 0.15:
                break
            here, type_here = below, inner


def _leaf(random: Random, name: str) -> Any:
    if random.random() < 0.05:
        return scalar(random)
    if name in VALUES:
        return copy.deepcopy(random.choice(VALUES[name]))
    if _BOOLEANS.search(name):
        return random.random() < 0.5
    if name.endswith(("Seconds", "Threshold", "Count", "port", "start", "end", "Index")) or name in (
        "logical",
        "value",
    ):
        return random.choice((0, 1, 2, 512, 4096, *NUMBERS[:6]))
    return random.choice(("x", "abc", "a-b.c", *WORDS[:3]))


def _match_sources(spec: Json) -> None:
    """Gives each disk a volume, and each interface a network."""
    devices = spec.get("domain", {}).get("devices", {}) if isinstance(spec.get("domain"), dict) else {}
    sources: tuple[tuple[str, str, Json], ...] = (
        ("disks", "volumes", {"emptyDisk": {"capacity": "1Gi"}}),
        ("interfaces", "networks", {"pod": {}}),
    )
    for kind, key, source in sources if isinstance(devices, dict) else ():
        named = {each.get("name"): each for each in devices.get(kind) or () if isinstance(each, dict)}
        devices[kind] = list(named.values())
        known = {each.get("name"): each for each in spec.get(key) or () if isinstance(each, dict)}
        spec[key] = [known.get(name, {"name": name, **source}) for name in named]


def ours(random: Random, *kinds: Kind) -> Json:
    """An object of one of these kinds, or of all of ours, with more of its schema's fields."""
    kind = random.choice(kinds or KINDS)
    known = of_kinds(kind.kind)
    document = copy.deepcopy(random.choice(known)) if known and random.random() < 0.8 else _new(random, kind)
    declared = by_gvk(str(document.get("apiVersion")), str(document["kind"])) or kind
    for _ in range(random.choice((0, 1, 2, 5))):
        add_by_schema(random, document["spec"], declared.spec_schema)
    document.setdefault("metadata", {}).setdefault("name", "x")
    if declared.namespaced:
        document["metadata"].setdefault("namespace", "shop")
    return document


_OURS = sorted(
    value for value in vars(meta).values() if isinstance(value, str) and "/" in value and not value.startswith("/")
)
_OTHERS: dict[str, Json] = {
    "ControllerRevision": {"apiVersion": "apps/v1", "revision": 3, "data": {"spec": {"template": {"spec": {}}}}},
    "PersistentVolumeClaim": {"apiVersion": "v1", "spec": {"resources": {"requests": {"storage": "1Gi"}}}},
    "VirtualMachineSnapshot": {
        "apiVersion": "snapshot.kubevirt.io/v1beta1",
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web-1"}},
        "status": {"phase": "Succeeded", "readyToUse": True, "error": {"message": "no"}, "conditions": []},
    },
    "VirtualMachineRestore": {
        "apiVersion": "snapshot.kubevirt.io/v1beta1",
        "spec": {"target": {"kind": "VirtualMachine", "name": "web-1"}, "virtualMachineSnapshotName": "a"},
        "status": {"complete": False, "conditions": [{"type": "Ready", "status": "False", "reason": "x"}]},
    },
}


def stored(random: Random, kind: str) -> Json:
    """An object of this kind as an API server may hold it, with labels and annotations of ours."""
    if kind in _OTHERS:
        document = {"kind": kind, "metadata": {"name": "web-1", "namespace": "shop"}, **copy.deepcopy(_OTHERS[kind])}
    elif kind == "DataSource":
        document = data_source(random)
    elif declared := next((each for each in KINDS if each.kind == kind), None):
        document = ours(random, declared)
    else:
        document = {**vm(random), "kind": kind}
        document["status"] = {
            "printableStatus": random.choice(("Running", "Stopped", "ErrImagePull")),
            "phase": random.choice(("Running", "Failed", "Scheduled")),
            "nodeName": "node-1",
            "created": True,
            "ready": random.random() < 0.5,
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "interfaces": [{"ipAddress": "10.0.0.1", "mac": "52:54:00:00:00:01"}],
            "volumeStatus": [{"name": "root", "persistentVolumeClaimInfo": {"claimName": "a"}}],
        }
    owner = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachinePool",
        "name": "web",
        "uid": "u",
        "controller": True,
    }
    document["metadata"] |= {
        "name": random.choice(("web-1", "web-2", "web-x")),
        "uid": "u1",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {key: random.choice(_TEXTS) for key in random.sample(_OURS, 6)},
        "annotations": {
            key: random.choice((*_TEXTS, *WORDS, "{}", "[]", '{"a": [1]}')) for key in random.sample(_OURS, 9)
        },
        "ownerReferences": random.choice(([], [owner])),
    }
    return document


def _new(random: Random, kind: Kind) -> Json:
    spec = _by_schema(random, kind.spec_schema, 0.3, 0)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}, "spec": spec}


def add_by_schema(random: Random, value: Any, schema: Json) -> None:
    while isinstance(value, dict) and (properties := schema.get("properties")):
        name = random.choice(sorted(properties))
        schema = properties[name]
        if name not in value or random.random() < 0.3:
            value[name] = _by_schema(random, schema, 0.3, 3)
            return
        value = value[name]


def _by_schema(random: Random, schema: Json, share: float, depth: int) -> Any:
    """A value that mostly fits a schema; objects have this share of their optional fields."""
    if random.random() < 0.02:
        return scalar(random)
    if "enum" in schema:
        return random.choice(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return random.choice((1, 3, "25%", "100%", "1Gi", "500M", 0, "0%"))
    match schema.get("type"):
        case "object":
            required = schema.get("required", ())
            found = {
                name: _by_schema(random, inner, share / 2 if depth > 3 else share, depth + 1)
                for name, inner in schema.get("properties", {}).items()
                if name in required or (depth < 7 and random.random() < share)
            }
            if "additionalProperties" in schema:
                found |= {
                    key: _by_schema(random, schema["additionalProperties"], share, depth + 1)
                    for key in random.sample(("app", "a/b", "spot", "kubevirt.io/x", "", "x" * 70), random.randrange(3))
                }
            return found
        case "array":
            size = max(schema.get("minItems", 0), random.choice((0, 1, 1, 2, 3)))
            return [_by_schema(random, schema.get("items", {}), share, depth + 1) for _ in range(size)]
        case "integer" | "number":
            least, most = schema.get("minimum", -1), schema.get("maximum", 2**31 - 1)
            return random.choice((least, least + 1, min(most, 3), min(most, 60), most, random.choice(NUMBERS)))
        case "boolean":
            return random.random() < 0.5
        case "string":
            return _text(random, schema)
    return scalar(random)


def _text(random: Random, schema: Json) -> str:
    fitting = [each for each in _TEXTS if "pattern" not in schema or re.search(schema["pattern"], each)]
    return random.choice(fitting) if fitting and random.random() < 0.9 else random.choice(WORDS)


_TEXTS = (
    *("a", "web", "x-1", "x-7", "shop.example", "30s", "1m", "2h", "1Gi", "500M", "UTC", "Europe/Berlin", "0 3 * * 6"),
    *("ami-0abc", "subnet-0abc", "t3.micro", "sg-0abc", "arn:aws:iam::1:instance-profile/x", "10.0.0.1:80", "pool/x"),
    *("quay.io/a/b:c", "https://example.com/x.qcow2", "app=web", "2026-01-01T00:00:00Z", "spec.running", "Mon-Fri"),
)
