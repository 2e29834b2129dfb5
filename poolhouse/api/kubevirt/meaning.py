"""Says whether two templates mean the same to KubeVirt and CDI, however they are spelt.

`canonical` returns one form for all spellings of a value, by the types of KubeVirt's fields:

- Equal quantities are equal: `1Ti` and `1024Gi`, `1` and `"1000m"`. A size of huge pages is text in KubeVirt.
- Null and an empty list count as absent, and null in a list as an empty item. So do false, 0, empty text and an empty
  map in a field that is no pointer in Go, because Go decodes them to the same value as an absent field.
- An empty object counts as absent if KubeVirt makes no difference (`_WITHOUT_EFFECT`). Other empty objects are choices,
  such as `masquerade: {}`.
- A value that KubeVirt or CDI uses for an absent field counts as absent (`_DEFAULTS`). In a VM without a preference,
  so do the values of fields that a preference could fill (`_DEFAULTS_WITHOUT_PREFERENCE`).
- The order of a list counts, except in lists whose items have a key (`_KEYED`) and in sets.
- `running: true` is `runStrategy: Always`, and `running: false` is `runStrategy: Halted`.
- MAC addresses and UUIDs have one notation, and the kind of an instance type or preference one name.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from poolhouse.api.apimachinery import mac_address
from poolhouse.api.apimachinery.quantity import to_fraction
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kubevirt.fields import VM_SPEC, Field, declared_fields

VM_TEMPLATE = "VirtualMachineTemplateSpec"
"""The template of a pool or warm pool: metadata, and the spec of a VirtualMachine."""
VMI_TEMPLATE = "VirtualMachineInstanceTemplateSpec"
POOL_CONTENT = "PoolContent"
"""What determines the VMs of a pool: its `template`, and fields without a type."""
DATA_VOLUME_SPEC = "DataVolumeSpec"

_TEMPLATES: Mapping[str, Mapping[str, Field]] = {
    POOL_CONTENT: {"template": Field(VM_TEMPLATE, False)},
    VM_TEMPLATE: {"metadata": Field("ObjectMeta", False), "spec": Field("VirtualMachineSpec", False)},
}

_WITHOUT_EFFECT = frozenset(
    {
        # No pointers in Go.
        "ACPIState",
        "DataVolumeSpec",
        "Devices",
        "DomainSpec",
        "ObjectMeta",
        "ResourceRequirements",
        "VirtualMachineInstanceSpec",
        "VolumeResourceRequirements",
        # virt-api, instance types and preferences fill an empty object as they fill an absent one, and the domain is
        # the same (pkg/defaults, pkg/instancetype and converter/compute of KubeVirt).
        "Affinity",
        "Bootloader",
        "CPU",
        "Chassis",
        "Clock",
        "DHCPOptions",
        "DiskTarget",
        "Features",
        "Firmware",
        "Machine",
        "Memory",
        "NodeAffinity",
        "PodAffinity",
        "PodDNSConfig",
    }
)
"""types whose empty object means the same as no object"""

_DEFAULTS: Mapping[tuple[str, str], Any] = {
    ("CDRomTarget", "readonly"): True,
    ("CDRomTarget", "tray"): "closed",
    ("CDIDataVolumeSourceRegistry", "pullMethod"): "pod",
    ("CPUFeature", "policy"): "require",
    ("ConfigMapVolumeSource", "optional"): False,
    ("DataVolumeSpec", "contentType"): "kubevirt",
    ("EFI", "persistent"): False,
    ("FeatureAPIC", "enabled"): True,
    ("FeatureSpinlocks", "enabled"): True,
    ("FeatureState", "enabled"): True,
    ("FeatureVendorID", "enabled"): True,
    ("HPETTimer", "present"): True,
    ("HTTPGetAction", "path"): "/",
    ("HTTPGetAction", "scheme"): "HTTP",
    ("HostDisk", "shared"): False,
    ("HypervTimer", "present"): True,
    ("I6300ESBWatchdog", "action"): "reset",
    ("InstancetypeMatcher", "inferFromVolumeFailurePolicy"): "Reject",
    ("KVMTimer", "present"): True,
    ("ObjectFieldSelector", "apiVersion"): "v1",
    ("PITTimer", "present"): True,
    ("PersistentVolumeClaimSpec", "volumeMode"): "Filesystem",
    ("Port", "protocol"): "TCP",
    ("PreferenceMatcher", "inferFromVolumeFailurePolicy"): "Reject",
    ("Probe", "failureThreshold"): 3,
    ("Probe", "periodSeconds"): 10,
    ("Probe", "successThreshold"): 1,
    ("Probe", "timeoutSeconds"): 1,
    ("RTCTimer", "present"): True,
    ("SecretVolumeSource", "optional"): False,
    ("SyNICTimer", "enabled"): True,
    ("TPMDevice", "enabled"): True,
    ("Toleration", "operator"): "Equal",
    ("TopologySpreadConstraint", "minDomains"): 1,
    ("TopologySpreadConstraint", "nodeAffinityPolicy"): "Honor",
    ("TopologySpreadConstraint", "nodeTaintsPolicy"): "Ignore",
    ("VirtualMachineInstanceSpec", "dnsPolicy"): "ClusterFirst",
}
"""Values that an absent field means, whatever the rest of the VM says"""

_DEFAULTS_WITHOUT_PREFERENCE: Mapping[tuple[str, str], Any] = {
    ("ACPIState", "enabled"): True,
    ("Devices", "autoattachGraphicsDevice"): True,
    ("Devices", "autoattachInputDevice"): False,
    ("Devices", "autoattachMemBalloon"): True,
    ("Devices", "autoattachPodInterface"): True,
    ("Devices", "autoattachSerialConsole"): True,
    ("Devices", "autoattachVSOCK"): False,
    ("Devices", "blockMultiQueue"): False,
    ("Devices", "networkInterfaceMultiqueue"): False,
    ("Devices", "useVirtioTransitional"): False,
    ("Disk", "dedicatedIOThread"): False,
    ("Disk", "shareable"): False,
    ("TPMDevice", "persistent"): False,
    ("VirtualMachineInstanceSpec", "terminationGracePeriodSeconds"): 30,
}
"""Values that an absent field means unless a preference fills it. A preference fills absent fields only, so that with
one such a value differs from no value."""

_IGNORED: Mapping[str, frozenset[str]] = {
    VM_TEMPLATE: frozenset({"apiVersion", "kind", "status"}),
    VMI_TEMPLATE: frozenset({"apiVersion", "kind", "status"}),
    "DataVolumeTemplateSpec": frozenset({"apiVersion", "kind", "status"}),
    "ObjectMeta": frozenset({"creationTimestamp"}),
}
"""fields that never have an effect in a template"""

_KEYED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("VirtualMachineSpec", "dataVolumeTemplates"): ("metadata", "name"),
    ("VirtualMachineInstanceSpec", "resourceClaims"): ("name",),
    ("VirtualMachineInstanceSpec", "utilityVolumes"): ("name",),
}
"""lists whose items have a name and no order, with the path of the name"""

_SETS = frozenset(
    {
        ("LabelSelector", "matchExpressions"),
        ("LabelSelectorRequirement", "values"),
        ("NodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"),
        ("NodeSelector", "nodeSelectorTerms"),
        ("NodeSelectorTerm", "matchExpressions"),
        ("NodeSelectorTerm", "matchFields"),
        ("PersistentVolumeClaimSpec", "accessModes"),
        ("PodAffinity", "preferredDuringSchedulingIgnoredDuringExecution"),
        ("PodAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
        ("PodAffinityTerm", "namespaces"),
        ("QemuGuestAgentSSHPublicKeyAccessCredentialPropagation", "users"),
        ("StorageSpec", "accessModes"),
        ("VirtualMachineInstanceSpec", "tolerations"),
        ("VirtualMachineInstanceSpec", "topologySpreadConstraints"),
    }
)
"""lists whose items have no order"""

_EMPTY_ITEMS: Mapping[str, Any] = {"object": {}, "string": ""}
"""the value that Go decodes null to in a list, by the type of the items"""

_RUN_STRATEGIES = {True: "Always", False: "Halted"}

_NOTATIONS: Mapping[tuple[str, str], Callable[[str], str]] = {
    ("Firmware", "uuid"): str.lower,
    ("Interface", "macAddress"): mac_address.normalize,
    ("InstancetypeMatcher", "kind"): lambda kind: kind.lower().removesuffix("s"),
    ("PreferenceMatcher", "kind"): lambda kind: kind.lower().removesuffix("s"),
}
"""texts that KubeVirt or libvirt reads in several notations, with what returns one of them"""

_CLUSTER_KINDS = {
    "InstancetypeMatcher": "virtualmachineclusterinstancetype",
    "PreferenceMatcher": "virtualmachineclusterpreference",
}
"""what a matcher without a kind means, unless KubeVirt infers the kind from a volume"""


def mean_the_same(one: Any, other: Any, type_name: str) -> bool:
    return text_of(canonical(one, type_name)) == text_of(canonical(other, type_name))


@dataclass(frozen=True)
class ChangedField:
    name: str
    type: str
    """a type of `poolhouse/api/kubevirt/fields.py`, or an empty string"""
    before: Any
    """the value as it is spelt, without what a VM without a preference need not say"""
    after: Any


def changed_fields(before: Json, after: Json, type_name: str) -> Iterator[ChangedField]:
    """The fields of an object that do not mean the same in both, sorted by name."""
    fields = fields_of(type_name)
    if type_name == VM_SPEC and all(_takes_defaults(each) for each in (before, after)):
        before, after = (_without_defaults(each, VM_SPEC) for each in (before, after))
    old, new = (_object(each, type_name) for each in (before, after))
    for name in sorted({*old, *new}):
        if text_of(old.get(name)) != text_of(new.get(name)):
            yield ChangedField(name, fields[name].type if name in fields else "", before.get(name), after.get(name))


def _takes_defaults(vm_spec: Json) -> bool:
    """Whether `_DEFAULTS_WITHOUT_PREFERENCE` holds. On s390x KubeVirt disables ACPI that nobody asks for."""
    has_preference = canonical(vm_spec.get("preference"), "PreferenceMatcher") is not None
    return not has_preference and at(vm_spec, "template", "spec", "architecture") != "s390x"


def _without_defaults(value: Any, type_name: str) -> Any:
    """The value without the fields of `_DEFAULTS_WITHOUT_PREFERENCE` that say what their absence says."""
    if isinstance(value, list):
        return [_without_defaults(each, type_name) for each in value]
    if not isinstance(value, dict):
        return value
    fields = fields_of(type_name)
    return {
        name: _without_defaults(each, fields[name].type) if name in fields else each
        for name, each in value.items()
        if (type_name, name) not in _DEFAULTS_WITHOUT_PREFERENCE
        or text_of(each) != text_of(_DEFAULTS_WITHOUT_PREFERENCE[type_name, name])
    }


def text_of(value: Any) -> str:
    """The JSON text of a value, with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def canonical(value: Any, type_name: str = "") -> Any:
    """The value in the one form of all its spellings, or None if it means the same as no value.

    Without a type, only null, empty lists and whole floats are unified. Fields that no type lists are treated so too.
    """
    match value:
        case dict():
            return _object(value, type_name) or (None if type_name in _WITHOUT_EFFECT else {})
        case list():
            return [canonical(each, type_name) for each in value] or None
        case float() if value.is_integer():
            return int(value)
    return value


def _object(value: Json, type_name: str) -> Json:
    fields = fields_of(type_name)
    if type_name == VM_SPEC and _takes_defaults(value):
        value = _without_defaults(value, VM_SPEC)
    ignored = _IGNORED.get(type_name, frozenset())
    found = {}
    for name, each in value.items():
        if name not in ignored and (inner := _field(each, type_name, name, fields.get(name))) is not None:
            found[name] = inner
    if type_name == VM_SPEC and isinstance(found.get("running"), bool) and "runStrategy" not in found:
        found["runStrategy"] = _RUN_STRATEGIES[found.pop("running")]
    if "kind" in found and "inferFromVolume" not in found and found["kind"] == _CLUSTER_KINDS.get(type_name):
        found.pop("kind")
    if type_name == "ContainerDiskSource" and found.get("imagePullPolicy") == _pull_policy(found.get("image")):
        found.pop("imagePullPolicy")
    return found


def _pull_policy(image: Any) -> str:
    """The policy that KubeVirt writes for a container disk without one."""
    is_latest = str(image).endswith(":latest") or not {":", "@"} & {*str(image)}
    return "Always" if is_latest else "IfNotPresent"


def fields_of(type_name: str) -> Mapping[str, Field]:
    """The declared fields of a type, by name; none for an unknown type."""
    return _TEMPLATES.get(type_name) or declared_fields(type_name)


def _field(value: Any, owner: str, name: str, field: Field | None) -> Any:
    if field is None:
        return canonical(value)
    if field.is_list and isinstance(value, list):
        value = [_EMPTY_ITEMS.get(field.value) if each is None else each for each in value]
    match field.type:
        case "Quantity":
            return _quantity(value)
        case "Quantities" | "Map" if isinstance(value, dict):
            present = {key: each for key, each in value.items() if each is not None}
            return {
                key: _quantity(each) if field.type == "Quantities" else each for key, each in present.items()
            } or None
    return _unless_default(canonical(value, field.type), owner, name, field)


def _unless_default(found: Any, owner: str, name: str, field: Field) -> Any:
    """The canonical value of the field, or None if it says what the field's absence says."""
    if (owner, name) in _DEFAULTS and found is not None and text_of(found) == text_of(_DEFAULTS[owner, name]):
        return None
    if isinstance(found, list):
        return _without_order(found, owner, name)
    if (owner, name) in _NOTATIONS and isinstance(found, str):
        found = _NOTATIONS[owner, name](found)
    is_zero = isinstance(found, str | int | float) and not found
    return None if is_zero and not field.is_pointer else found


def _without_order(items: list[Any], owner: str, name: str) -> list[Any]:
    key = _KEYED.get((owner, name))
    if key is not None and all(isinstance(at(each, *key), str) for each in items):
        return sorted(items, key=lambda each: str(at(each, *key)))
    return sorted(items, key=text_of) if (owner, name) in _SETS else items


def _quantity(value: Any) -> Any:
    """A quantity as the text of a fraction; any other value as it is."""
    number = to_fraction(value)
    return canonical(value) if number is None else f"={number}"
