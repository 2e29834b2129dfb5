"""Converts the `WarmPoolConfig` of an AWS Virtual Kubelet to warm pools.

All missing and ambiguous values are reported at once. A value that prevents the conversion is a problem; a remark says
which value is used instead.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.checks.warmpool import MAC_BOOT_SECONDS
from poolhouse.api.kinds.validation import child_path, quoted
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.lenient_reader import Reader

LIST = "WarmPoolConfig"
FIELDS = (
    "DesiredCount",
    "Default",
    "KeyPair",
    "ImageID",
    "InstanceType",
    "Subnets",
    "IamInstanceProfile",
    "SecurityGroups",
)
INIT_DATA = "VMConfig.InitData"
INSTANCE_TYPE = "mac1.metal"
Target = Literal["ec2", "vm"]


@dataclass(frozen=True)
class Entry:
    """An entry of the WarmPoolConfig; invalid fields are empty."""

    desired: int = 0
    default: bool = False
    key_pair: str = ""
    image: str = ""
    instance_type: str = INSTANCE_TYPE
    subnets: tuple[str, ...] = ()
    profile: str = ""
    security_groups: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str]:
        """The fields by which the Virtual Kubelet assigns instances to pools."""
        return self.key_pair, self.image, self.instance_type


@dataclass(frozen=True)
class Imported:
    manifests: tuple[Json, ...]
    """manifests of the warm pools; empty if there is a problem"""
    problems: tuple[Problem, ...]
    remarks: tuple[Problem, ...]


@dataclass(frozen=True)
class ImportOptions:
    """Options of the command for values that the file lacks."""

    to: Target = "ec2"
    namespace: str = ""
    prefix: str = "warmpool"
    management_subnet: str = ""
    iam_instance_profile: str = ""


def import_config(config: Any, options: ImportOptions) -> Imported:
    """Converts the content of config.json. Reads only the warm pools and their defaults."""
    reader = Reader()
    whole = _lower_keys(reader.object(config, ""))
    entries = _entries(reader, whole, options)
    _defaults(reader, entries)
    _duplicates(reader, entries)
    shared = _shared(reader, whole, options)
    manifests = []
    for index, entry in enumerate(entries):
        if entry is None:
            continue
        document = _manifest(index, entry, shared, options)
        manifests.append(document)
        if not reader.problems:
            found = WARM_POOL.problems(document)
            reader.problems += [Problem(f"{LIST}[{index}]", f"makes an invalid pool: {p}") for p in found]
    if options.to == "vm":
        reader.remarks += _prerequisites(entries)
    return Imported(() if reader.problems else tuple(manifests), tuple(reader.problems), tuple(reader.remarks))


def _lower_keys(value: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key).lower(): each for key, each in value.items()}


def _entries(reader: Reader, whole: Json, options: ImportOptions) -> list[Entry | None]:
    given = whole.get(LIST.lower())
    if given is None:
        reader.problem(LIST, "is missing; there are no warm pools in this file")
    elif not isinstance(given, list):
        reader.problem(LIST, f"must be a list, not {quoted(given)}")
    elif not given:
        reader.problem(LIST, "is empty; there are no warm pools in this file")
    return [_entry(reader, each, i, whole, options) for i, each in enumerate(given if isinstance(given, list) else ())]


def _entry(reader: Reader, value: Any, index: int, whole: Json, options: ImportOptions) -> Entry | None:
    here = f"{LIST}[{index}]"
    if not isinstance(value, dict):
        reader.problem(here, f"must be an object, not {quoted(value)}")
        return None
    reader.problems += _unknown_fields(value, here)
    known = _lower_keys(value)

    def of(name: str) -> tuple[Any, str]:
        return known.get(name.lower()), f"{here}.{name}"

    desired = reader.number(*of("DesiredCount"))
    if known.get("desiredcount") is None:
        reader.problem(f"{here}.DesiredCount", "is missing; say how many instances are kept ready")
    machine = _lower_keys(reader.object(whole.get("vmconfig"), "VMConfig"))
    entry = Entry(
        desired=desired or 0,
        default=reader.boolean(*of("Default")),
        key_pair=reader.text(*of("KeyPair")),
        image=reader.text(*of("ImageID")) or reader.text(machine.get("defaultami"), "VMConfig.DefaultAMI"),
        instance_type=reader.text(*of("InstanceType")) or INSTANCE_TYPE,
        subnets=reader.texts(*of("Subnets")) or _management_subnet(reader, whole, options),
        profile=reader.text(*of("IamInstanceProfile")) or options.iam_instance_profile,
        security_groups=reader.texts(*of("SecurityGroups"))
        or reader.texts(machine.get("initialsecuritygroups"), "VMConfig.InitialSecurityGroups"),
    )
    _missing_fields(reader, entry, known, here, options)
    if options.to == "vm":
        reader.problems += _unusable_names(entry, here)
    return entry


def _unknown_fields(value: Mapping[Any, Any], here: str) -> Iterator[Problem]:
    names = {name.lower(): name for name in FIELDS}
    for key in value:
        if str(key).lower() in names:
            continue
        similar = get_close_matches(str(key).lower(), names, 1, 0.7)
        hint = f'; did you mean "{names[similar[0]]}"?' if similar else f"; there are {', '.join(FIELDS)}"
        yield Problem(child_path(here, key), f"is not a field here{hint}")


def _unusable_names(entry: Entry, here: str) -> Iterator[Problem]:
    """Yields a problem for each value that cannot be converted to a Kubernetes name."""
    given = {"KeyPair": [entry.key_pair], "ImageID": [entry.image], "InstanceType": [entry.instance_type]}
    for name, texts in {**given, "Subnets": entry.subnets}.items():
        for each in texts:
            if each and not object_name(each):
                message = "has no letter from a to z and no digit, and names in Kubernetes have nothing else"
                yield Problem(f"{here}.{name}", f"{quoted(each)} {message}; rename it in this file")


def _management_subnet(reader: Reader, whole: Json, options: ImportOptions) -> tuple[str, ...]:
    found = reader.text(whole.get("managementsubnet"), "ManagementSubnet") or options.management_subnet
    return (found,) if found else ()


def _missing_fields(reader: Reader, entry: Entry, known: Json, here: str, options: ImportOptions) -> None:
    if not known.get("imageid"):
        if entry.image:
            reader.remark(f"{here}.ImageID", f"is missing; {entry.image} of VMConfig.DefaultAMI is taken")
        else:
            reader.problem(f"{here}.ImageID", "is missing, and there is no VMConfig.DefaultAMI")
    if not known.get("instancetype"):
        reader.remark(f"{here}.InstanceType", f"is missing; the Virtual Kubelet's default {INSTANCE_TYPE} is taken")
    if not known.get("keypair"):
        reader.remark(f"{here}.KeyPair", "is missing; login with a key is impossible")
    if not known.get("subnets"):
        if entry.subnets:
            reader.remark(f"{here}.Subnets", f"is missing; the management subnet {entry.subnets[0]} is taken")
        elif options.to == "ec2":
            message = "is missing, and there is no ManagementSubnet; give --management-subnet, or the controllers'"
            reader.remark(f"{here}.Subnets", f"{message} POOLHOUSE_EC2_SUBNET is taken")
        else:
            reader.remark(f"{here}.Subnets", "is missing; VMs are on the pod network")
    if not entry.profile and options.to == "ec2":
        message = "is missing; instances get no AWS rights, so they cannot fetch the agent: give --iam-instance-profile"
        reader.remark(f"{here}.IamInstanceProfile", message)


def _defaults(reader: Reader, entries: list[Entry | None]) -> None:
    willing = [index for index, entry in enumerate(entries) if entry is not None and entry.default]
    if len(willing) > 1:
        message = ", ".join(f"{LIST}[{index}]" for index in willing)
        reader.problem(LIST, f'exactly one may say "Default": true, and these do: {message}')
    elif not willing and len(entries) == 1 and entries[0] is not None:
        reader.remark(f"{LIST}[0].Default", "is missing; it is the only pool and so the default one")
        entries[0] = Entry(**{**entries[0].__dict__, "default": True})
    elif not willing and entries:
        reader.problem(LIST, 'one must say "Default": true, and none does')


def _duplicates(reader: Reader, entries: list[Entry | None]) -> None:
    first: dict[tuple[str, str, str], int] = {}
    for index, entry in enumerate(entries):
        if entry is None or first.setdefault(entry.identity, index) == index:
            continue
        twin = f"{LIST}[{first[entry.identity]}]"
        reader.remark(
            f"{LIST}[{index}]",
            f"has KeyPair, ImageID and InstanceType of {twin}; the Virtual Kubelet took the instances of one for the "
            "other's, and created and terminated them endlessly. Here each pool has its own",
        )


def _shared(reader: Reader, whole: Json, options: ImportOptions) -> Json:
    """Returns the settings of all pools: health checks and the port of the agent."""
    health = _lower_keys(reader.object(whole.get("healthconfig"), "HealthConfig"))
    agent = _lower_keys(reader.object(whole.get("bootstrapagent"), "BootstrapAgent"))
    found: Json = {}
    period = reader.number(health.get("healthcheckintervalseconds"), "HealthConfig.HealthCheckIntervalSeconds")
    threshold = reader.number(health.get("unhealthythresholdcount"), "HealthConfig.UnhealthyThresholdCount")
    most = reader.number(health.get("unhealthymaxcount"), "HealthConfig.UnhealthyMaxCount")
    wanted = {
        "periodSeconds": period,
        "failureThreshold": threshold,
        "terminateThreshold": max(1, most - (threshold or 0)) if most else None,
    }
    if any(wanted.values()):
        found["health"] = {key: value for key, value in wanted.items() if value}
    bootstrap = {
        "s3Bucket": reader.text(agent.get("s3bucket"), "BootstrapAgent.S3Bucket"),
        "s3Key": reader.text(agent.get("s3key"), "BootstrapAgent.S3Key"),
        "initData": reader.text(agent.get("initdata"), "BootstrapAgent.InitData"),
    }
    init_data = reader.text(_lower_keys(reader.object(whole.get("vmconfig"), "VMConfig")).get("initdata"), INIT_DATA)
    found["user_data"] = _user_data(reader, bootstrap, init_data) if options.to == "ec2" else {}
    if options.to == "vm" and (init_data or any(bootstrap.values())):
        message = "has no effect on VMs; put the agent into the image, or its installation into a cloud-init volume"
        reader.remark("BootstrapAgent" if any(bootstrap.values()) else INIT_DATA, message)
    port = reader.number(agent.get("grpcport"), "BootstrapAgent.GRPCPort")
    if port and options.to == "ec2":
        found["agent"] = {"port": port, "protocol": "GRPC"}
    elif options.to == "ec2":
        message = "is missing; an instance is healthy as soon as it runs, and no application is launched on it"
        reader.remark("BootstrapAgent.GRPCPort", message)
    _region(reader, whole, options)
    return found


def _user_data(reader: Reader, bootstrap: Json, init_data: str) -> Json:
    """The fields of `spec.ec2` from which the controllers make the user data of a Virtual Kubelet."""
    given = {"initData": init_data} if init_data else {}
    missing = [name for name in ("S3Bucket", "S3Key") if not bootstrap[name[0].lower() + name[1:]]]
    if not any(bootstrap.values()):
        return given
    if missing:
        reader.problem(f"BootstrapAgent.{missing[0]}", "is missing; the instances download the agent from there")
        return given
    reader.remark("BootstrapAgent", "the controllers need the right s3:GetObject for the agent, which they pass on")
    return {**given, "bootstrapAgent": {key: value for key, value in bootstrap.items() if value}}


def _region(reader: Reader, whole: Json, options: ImportOptions) -> None:
    region = reader.text(whole.get("region"), "Region")
    if region and options.to == "ec2":
        reader.remark("Region", f"is a setting of the controllers: set POOLHOUSE_EC2_REGION={region}")


def _manifest(index: int, entry: Entry, shared: Json, options: ImportOptions) -> Json:
    metadata = {
        "name": f"{options.prefix}-{index + 1}",
        **({"namespace": options.namespace} if options.namespace else {}),
    }
    spec: Json = {"replicas": entry.desired, "default": entry.default}
    if "health" in shared:
        spec["health"] = shared["health"]
    if options.to == "ec2" and entry.instance_type.startswith("mac"):
        spec["readiness"] = {"timeoutSeconds": 2 * MAC_BOOT_SECONDS}
    if "agent" in shared:
        spec["claimPolicy"] = {"allowPods": True}  # as the pools of a Virtual Kubelet, which serve Pods only
    spec |= (
        _ec2_spec(entry, shared.get("agent", {}) | shared.get("user_data", {}))
        if options.to == "ec2"
        else _vm_spec(entry)
    )
    return {"apiVersion": WARM_POOL.api_version, "kind": WARM_POOL.kind, "metadata": metadata, "spec": spec}


def _ec2_spec(entry: Entry, agent: Json) -> Json:
    given = {
        "imageID": entry.image,
        "instanceType": entry.instance_type,
        "keyPair": entry.key_pair,
        "subnets": list(entry.subnets),
        "iamInstanceProfile": entry.profile,
        "securityGroups": list(entry.security_groups),
        **agent,
    }
    # The design document too orphans instances that do not match a new template.
    return {"incompatiblePolicy": "Orphan", "ec2": {key: value for key, value in given.items() if value}}


def _vm_spec(entry: Entry) -> Json:
    """Returns a VM spec. Converts AWS names to names of a DataSource, an instance type, a Secret and networks."""
    interface = {"name": "default", "bridge" if entry.subnets else "masquerade": {}}
    volumes: list[Json] = [{"name": "root", "dataVolume": {"name": "root"}}]
    disks: list[Json] = [{"name": "root", "disk": {}}]
    instance: Json = {
        "domain": {"devices": {"disks": disks, "interfaces": [interface]}},
        "networks": [{"name": "default", "pod": {}}],
        "volumes": volumes,
    }
    if entry.key_pair:
        volumes.append({"name": "cloud-init", "cloudInitNoCloud": {"userData": "#cloud-config\n"}})
        disks.append({"name": "cloud-init", "disk": {}})
        secret = {
            "source": {"secret": {"secretName": object_name(entry.key_pair)}},
            "propagationMethod": {"noCloud": {}},
        }
        instance["accessCredentials"] = [{"sshPublicKey": secret}]
    source = {"sourceRef": {"kind": "DataSource", "name": object_name(entry.image)}, "storage": {}}
    spec = {
        "instancetype": {"name": object_name(entry.instance_type)},
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": source}],
        "template": {"spec": instance},
    }
    placements = [
        {"name": subnet, "networks": [{"name": "default", "multus": {"networkName": object_name(subnet)}}]}
        for subnet in entry.subnets
    ]
    return {"template": {"spec": spec}, **({"placements": placements} if placements else {})}


def object_name(text: str) -> str:
    """Converts an AWS name to a similar Kubernetes name."""
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip("-.")


def _prerequisites(entries: list[Entry | None]) -> Iterator[Problem]:
    """Yields the objects that the user must create because the VMs refer to them."""
    there = [entry for entry in entries if entry is not None]
    for kind, names in (
        ("DataSource", [entry.image for entry in there]),
        ("VirtualMachineClusterInstancetype", [entry.instance_type for entry in there]),
        ("Secret with the public key", [entry.key_pair for entry in there]),
        ("NetworkAttachmentDefinition", [subnet for entry in there for subnet in entry.subnets]),
    ):
        wanted = dict.fromkeys(found for name in names if (found := object_name(name)))
        if wanted:
            yield Problem("", f"must exist before the pools can create VMs: {kind} {', '.join(wanted)}")
