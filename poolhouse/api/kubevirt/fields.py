"""The fields of KubeVirt's VirtualMachine and of CDI's DataVolume template, in all supported releases together.

The names were read in the OpenAPI documents of KubeVirt 1.5 to 1.9 and of its main branch, and the types in their Go
sources. A field that only some releases have is listed, because an older cluster reports it itself. No field inside a
type of Kubernetes counts as unknown.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, cast

VM_SPEC = "VirtualMachineSpec"
VMI_SPEC = "VirtualMachineInstanceSpec"

_TYPES: Mapping[str, str] = {
    "ACPI": "msdmNameRef slicNameRef",
    "ACPIState": "enabled?=boolean",
    "AccessCredential": "sshPublicKey:SSHPublicKeyAccessCredential userPassword:UserPasswordAccessCredential",
    "AccessCredentialSecretSource": "secretName",
    "BIOS": "useSerial?=boolean",
    "BlockSize": "custom:CustomBlockSize matchVolume:FeatureState",
    "Bootloader": "bios:BIOS efi:EFI",
    "CDIDataVolumeSource": """
        blank:DataVolumeBlankImage gcs:CDIDataVolumeSourceGCS http:CDIDataVolumeSourceHTTP
        imageio:CDIDataVolumeSourceImageIO pvc:CDIDataVolumeSourcePVC registry:CDIDataVolumeSourceRegistry
        s3:CDIDataVolumeSourceS3 snapshot:CDIDataVolumeSourceSnapshot upload:CDIDataVolumeSourceUpload
        vddk:CDIDataVolumeSourceVDDK
    """,
    "CDIDataVolumeSourceGCS": "secretRef url",
    "CDIDataVolumeSourceHTTP": "certConfigMap extraHeaders=string[] secretExtraHeaders=string[] secretRef url",
    "CDIDataVolumeSourceImageIO": "certConfigMap diskId insecureSkipVerify?=boolean secretRef url",
    "CDIDataVolumeSourcePVC": "name namespace",
    "CDIDataVolumeSourceRef": "kind name namespace?",
    "CDIDataVolumeSourceRegistry": "certConfigMap? imageStream? platform:PlatformOptions pullMethod? secretRef? url?",
    "CDIDataVolumeSourceS3": "certConfigMap secretRef url",
    "CDIDataVolumeSourceSnapshot": "name namespace",
    "CDIDataVolumeSourceUpload": "",
    "CDIDataVolumeSourceVDDK": "backingFile extraArgs initImageURL secretRef thumbprint url uuid",
    "CDRomTarget": "bus readonly?=boolean tray",
    "CPU": """
        cores=count dedicatedCpuPlacement=boolean features:CPUFeature[] isolateEmulatorThread=boolean
        maxSockets=count model numa:NUMA realtime:Realtime sockets=count threads=count
    """,
    "CPUFeature": "name policy",
    "Chassis": "asset manufacturer serial sku version",
    "ClaimRequest": "claimName requestName",
    "ClientPassthroughDevices": "",
    "Clock": "timer:Timer timezone? utc:ClockOffsetUTC",
    "ClockOffsetUTC": "offsetSeconds?=integer",
    "CloudInitConfigDriveSource": """
        networkData networkDataBase64 networkDataSecretRef:LocalObjectReference secretRef:LocalObjectReference
        userData userDataBase64
    """,
    "CloudInitNoCloudSource": """
        networkData networkDataBase64 networkDataSecretRef:LocalObjectReference secretRef:LocalObjectReference
        userData userDataBase64
    """,
    "ConfigDriveSSHPublicKeyAccessCredentialPropagation": "",
    "ConfigMapVolumeSource": "name optional?=boolean volumeLabel",
    "ContainerDiskSource": "image imagePullPolicy imagePullSecret path",
    "ContainerPathVolumeSource": "path readOnly?=boolean",
    "CustomBlockSize": "discardGranularity?=count logical=count physical=count",
    "DHCPOptions": "bootFileName ntpServers=string[] privateOptions:DHCPPrivateOptions[] tftpServerName",
    "DHCPPrivateOptions": "option=integer value",
    "DataVolumeBlankImage": "",
    "DataVolumeCheckpoint": "current previous",
    "DataVolumeSource": "hotpluggable=boolean name",
    "DataVolumeSpec": """
        checkpoints:DataVolumeCheckpoint[] contentType finalCheckpoint=boolean preallocation?=boolean
        priorityClassName pvc:PersistentVolumeClaimSpec source:CDIDataVolumeSource
        sourceRef:CDIDataVolumeSourceRef storage:StorageSpec
    """,
    "DataVolumeTemplateDummyStatus": "",
    "DataVolumeTemplateSpec": """
        apiVersion kind metadata:ObjectMeta spec:DataVolumeSpec status:DataVolumeTemplateDummyStatus
    """,
    "DeprecatedInterfaceMacvtap": "",
    "DeprecatedInterfacePasst": "",
    "DeprecatedInterfaceSlirp": "",
    "Devices": """
        autoattachGraphicsDevice?=boolean autoattachInputDevice?=boolean autoattachMemBalloon?=boolean
        autoattachPodInterface?=boolean autoattachSerialConsole?=boolean autoattachVSOCK?=boolean
        blockMultiQueue?=boolean clientPassthrough:ClientPassthroughDevices disableHotplug=boolean disks:Disk[]
        downwardMetrics:DownwardMetrics filesystems:Filesystem[] gpus:GPU[] hostDevices:HostDevice[]
        inputs:Input[] interfaces:Interface[] logSerialConsole?=boolean networkInterfaceMultiqueue?=boolean
        panicDevices:PanicDevice[] rng:Rng sound:SoundDevice tpm:TPMDevice useVirtioTransitional?=boolean
        video:VideoDevice watchdog:Watchdog
    """,
    "Diag288Watchdog": "action",
    "Disk": """
        blockSize:BlockSize bootOrder?=count cache cdrom:CDRomTarget changedBlockTracking?=boolean
        dedicatedIOThread?=boolean disk:DiskTarget errorPolicy? io lun:LunTarget name serial shareable?=boolean
        tag
    """,
    "DiskIOThreads": "supplementalPoolThreadCount?=count",
    "DiskTarget": "bus pciAddress readonly=boolean",
    "DomainSpec": """
        chassis:Chassis clock:Clock cpu:CPU devices:Devices features:Features firmware:Firmware
        ioThreads:DiskIOThreads ioThreadsPolicy? launchSecurity:LaunchSecurity machine:Machine memory:Memory
        rebootPolicy? resources:ResourceRequirements
    """,
    "DownwardAPIVolumeSource": "fields:DownwardAPIVolumeFile[] volumeLabel",
    "DownwardMetrics": "",
    "DownwardMetricsVolumeSource": "",
    "EFI": "persistent?=boolean secureBoot?=boolean",
    "EmptyDiskSource": "capacity:Quantity",
    "EphemeralVolumeSource": "persistentVolumeClaim:PersistentVolumeClaimVolumeSource",
    "FeatureAPIC": "enabled?=boolean endOfInterrupt=boolean",
    "FeatureHyperv": """
        evmcs:FeatureState frequencies:FeatureState ipi:FeatureState reenlightenment:FeatureState
        relaxed:FeatureState reset:FeatureState runtime:FeatureState spinlocks:FeatureSpinlocks
        synic:FeatureState synictimer:SyNICTimer tlbflush:TLBFlush vapic:FeatureState vendorid:FeatureVendorID
        vpindex:FeatureState
    """,
    "FeatureKVM": "hidden=boolean",
    "FeatureSpinlocks": "enabled?=boolean spinlocks?=count",
    "FeatureState": "enabled?=boolean",
    "FeatureVendorID": "enabled?=boolean vendorid",
    "Features": """
        acpi:ACPIState apic:FeatureAPIC hyperv:FeatureHyperv hypervPassthrough:HyperVPassthrough kvm:FeatureKVM
        pvspinlock:FeatureState smm:FeatureState
    """,
    "Filesystem": "name virtiofs:FilesystemVirtiofs",
    "FilesystemVirtiofs": "",
    "Firmware": "acpi:ACPI bootloader:Bootloader kernelBoot:KernelBoot serial uuid",
    "GPU": "claimName deviceName name requestName tag virtualGPUOptions:VGPUOptions",
    "GuestAgentPing": "",
    "HPETTimer": "present?=boolean tickPolicy",
    "HostDevice": "claimName deviceName name requestName tag",
    "HostDisk": "capacity:Quantity path shared?=boolean type",
    "Hugepages": "pageSize",
    "HyperVPassthrough": "enabled?=boolean",
    "HypervTimer": "present?=boolean",
    "I6300ESBWatchdog": "action",
    "Input": "bus name type",
    "InstancetypeMatcher": "inferFromVolume inferFromVolumeFailurePolicy? kind name revisionName",
    "Interface": """
        acpiIndex=integer binding:PluginBinding bootOrder?=count bridge:InterfaceBridge dhcpOptions:DHCPOptions
        macAddress macvtap:DeprecatedInterfaceMacvtap masquerade:InterfaceMasquerade model name
        passt:DeprecatedInterfacePasst passtBinding:InterfacePasstBinding pciAddress portRanges:PortRange[]
        ports:Port[] slirp:DeprecatedInterfaceSlirp sriov:InterfaceSRIOV state tag
    """,
    "InterfaceBridge": "",
    "InterfaceMasquerade": "",
    "InterfacePasstBinding": "",
    "InterfaceSRIOV": "",
    "KVMTimer": "present?=boolean",
    "KernelBoot": "container:KernelBootContainer kernelArgs",
    "KernelBootContainer": "image imagePullPolicy imagePullSecret initrdPath kernelPath",
    "LaunchSecurity": "sev:SEV snp:SEVSNP tdx:TDX",
    "LunTarget": "bus readonly=boolean reservation=boolean",
    "Machine": "type",
    "Memory": "guest:Quantity hugepages:Hugepages maxGuest:Quantity reservedOverhead:ReservedOverhead",
    "MemoryDumpVolumeSource": "claimName hotpluggable=boolean readOnly=boolean",
    "MultusNetwork": "default=boolean networkName",
    "NUMA": "guestMappingPassthrough:NUMAGuestMappingPassthrough",
    "NUMAGuestMappingPassthrough": "",
    "Network": "multus:MultusNetwork name pod:PodNetwork resourceClaim:ClaimRequest",
    "NoCloudSSHPublicKeyAccessCredentialPropagation": "",
    "PITTimer": "present?=boolean tickPolicy",
    "PanicDevice": "model?",
    "PersistentVolumeClaimVolumeSource": "claimName hotpluggable=boolean readOnly=boolean",
    "PlatformOptions": "architecture",
    "PluginBinding": "name",
    "PodNetwork": "vmIPv6NetworkCIDR vmNetworkCIDR",
    "Port": "name port=integer protocol",
    "PortRange": "end=integer protocol start=integer",
    "PreferenceMatcher": "inferFromVolume inferFromVolumeFailurePolicy? kind name revisionName",
    "Probe": """
        exec:ExecAction failureThreshold=integer guestAgentPing:GuestAgentPing httpGet:HTTPGetAction
        initialDelaySeconds=integer periodSeconds=integer successThreshold=integer tcpSocket:TCPSocketAction
        timeoutSeconds=integer
    """,
    "QemuGuestAgentSSHPublicKeyAccessCredentialPropagation": "users=string[]",
    "QemuGuestAgentUserPasswordAccessCredentialPropagation": "",
    "RTCTimer": "present?=boolean tickPolicy track",
    "Realtime": "mask",
    "ReservedOverhead": "addedOverhead:Quantity memLock?",
    "ResourceRequirements": "limits:Quantities overcommitGuestOverhead=boolean requests:Quantities",
    "Rng": "",
    "SEV": "attestation:SEVAttestation dhCert policy:SEVPolicy session",
    "SEVAttestation": "",
    "SEVPolicy": "encryptedState?=boolean",
    "SEVSNP": "",
    "SSHPublicKeyAccessCredential": """
        propagationMethod:SSHPublicKeyAccessCredentialPropagationMethod
        source:SSHPublicKeyAccessCredentialSource
    """,
    "SSHPublicKeyAccessCredentialPropagationMethod": """
        configDrive:ConfigDriveSSHPublicKeyAccessCredentialPropagation
        noCloud:NoCloudSSHPublicKeyAccessCredentialPropagation
        qemuGuestAgent:QemuGuestAgentSSHPublicKeyAccessCredentialPropagation
    """,
    "SSHPublicKeyAccessCredentialSource": "secret:AccessCredentialSecretSource",
    "SecretVolumeSource": "optional?=boolean secretName volumeLabel",
    "ServiceAccountVolumeSource": "serviceAccountName",
    "SoundDevice": "model name",
    "StorageSpec": """
        accessModes=string[] dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference
        resources:VolumeResourceRequirements selector:LabelSelector storageClassName? volumeMode? volumeName
    """,
    "SyNICTimer": "direct:FeatureState enabled?=boolean",
    "SysprepSource": "configMap:LocalObjectReference secret:LocalObjectReference",
    "TDX": "",
    "TLBFlush": "direct:FeatureState enabled?=boolean extended:FeatureState",
    "TPMDevice": "enabled?=boolean persistent?=boolean",
    "Timer": "hpet:HPETTimer hyperv:HypervTimer kvm:KVMTimer pit:PITTimer rtc:RTCTimer",
    "UserPasswordAccessCredential": """
        propagationMethod:UserPasswordAccessCredentialPropagationMethod
        source:UserPasswordAccessCredentialSource
    """,
    "UserPasswordAccessCredentialPropagationMethod": """
        qemuGuestAgent:QemuGuestAgentUserPasswordAccessCredentialPropagation
    """,
    "UserPasswordAccessCredentialSource": "secret:AccessCredentialSecretSource",
    "UtilityVolume": "claimName name readOnly=boolean type?",
    "VGPUDisplayOptions": "enabled?=boolean ramFB:FeatureState",
    "VGPUOptions": "display:VGPUDisplayOptions",
    "VideoDevice": "type",
    "VirtualMachineInstanceResourceClaim": "name resourceClaimName? resourceClaimTemplateName?",
    "VirtualMachineInstanceSpec": """
        accessCredentials:AccessCredential[] affinity:Affinity architecture dnsConfig:PodDNSConfig dnsPolicy
        domain:DomainSpec evictionStrategy? hostname livenessProbe:Probe networks:Network[] nodeSelector:Map
        priorityClassName readinessProbe:Probe resourceClaims:VirtualMachineInstanceResourceClaim[]
        schedulerName serviceAccountName startStrategy? subdomain terminationGracePeriodSeconds?=integer
        tolerations:Toleration[] topologySpreadConstraints:TopologySpreadConstraint[]
        utilityVolumes:UtilityVolume[] volumes:Volume[]
    """,
    "VirtualMachineInstanceTemplateSpec": "metadata:ObjectMeta spec:VirtualMachineInstanceSpec",
    "VirtualMachineSpec": """
        dataVolumeTemplates:DataVolumeTemplateSpec[] instancetype:InstancetypeMatcher
        preference:PreferenceMatcher runStrategy? running?=boolean template:VirtualMachineInstanceTemplateSpec
        updateVolumesStrategy?
    """,
    "Volume": """
        cloudInitConfigDrive:CloudInitConfigDriveSource cloudInitNoCloud:CloudInitNoCloudSource
        configMap:ConfigMapVolumeSource containerDisk:ContainerDiskSource
        containerPath:ContainerPathVolumeSource dataVolume:DataVolumeSource downwardAPI:DownwardAPIVolumeSource
        downwardMetrics:DownwardMetricsVolumeSource emptyDisk:EmptyDiskSource ephemeral:EphemeralVolumeSource
        hostDisk:HostDisk memoryDump:MemoryDumpVolumeSource name
        persistentVolumeClaim:PersistentVolumeClaimVolumeSource secret:SecretVolumeSource
        serviceAccount:ServiceAccountVolumeSource sysprep:SysprepSource
    """,
    "Watchdog": "diag288:Diag288Watchdog i6300esb:I6300ESBWatchdog name",
}
"""by type, its fields.

`NAME` is text, and `NAME=VALUE` a value of another JSON type (`ValueType`). `NAME:TYPE` is an object of a listed type
or a quantity. `[]` at the end means a list. `NAME?` is a pointer in Go: a false, 0 or empty value of the field is not
the same as no value."""

_REQUEST_TYPES: Mapping[str, str] = {
    "HotplugVolumeSource": """
        dataVolume:DataVolumeSource persistentVolumeClaim:PersistentVolumeClaimVolumeSource
    """,
}
"""as above, for the types in requests for subresources"""

_KUBERNETES_TYPES: Mapping[str, str] = {
    "Affinity": "nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAffinity",
    "DownwardAPIVolumeFile": "fieldRef:ObjectFieldSelector mode?=integer path resourceFieldRef:ResourceFieldSelector",
    "ExecAction": "command=string[]",
    "HTTPGetAction": "host httpHeaders=object[] path port=port scheme",
    "LabelSelector": "matchExpressions:LabelSelectorRequirement[] matchLabels:Map",
    "LabelSelectorRequirement": "key operator values=string[]",
    "LocalObjectReference": "name",
    "NodeAffinity": """
        preferredDuringSchedulingIgnoredDuringExecution:PreferredSchedulingTerm[]
        requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
    """,
    "NodeSelector": "nodeSelectorTerms:NodeSelectorTerm[]",
    "NodeSelectorTerm": "matchExpressions:LabelSelectorRequirement[] matchFields:LabelSelectorRequirement[]",
    "ObjectFieldSelector": "apiVersion fieldPath",
    "ObjectMeta": "annotations:Map creationTimestamp finalizers=string[] generateName labels:Map name namespace",
    "PersistentVolumeClaimSpec": """
        accessModes=string[] dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference
        resources:VolumeResourceRequirements selector:LabelSelector storageClassName? volumeAttributesClassName?
        volumeMode? volumeName
    """,
    "PodAffinity": """
        preferredDuringSchedulingIgnoredDuringExecution:WeightedPodAffinityTerm[]
        requiredDuringSchedulingIgnoredDuringExecution:PodAffinityTerm[]
    """,
    "PodAffinityTerm": """
        labelSelector:LabelSelector matchLabelKeys=string[] mismatchLabelKeys=string[]
        namespaceSelector:LabelSelector namespaces=string[] topologyKey
    """,
    "PodDNSConfig": "nameservers=string[] options=object[] searches=string[]",
    "PreferredSchedulingTerm": "preference:NodeSelectorTerm weight=integer",
    "ResourceFieldSelector": "containerName divisor:Quantity resource",
    "TCPSocketAction": "host port=port",
    "Toleration": "effect key operator tolerationSeconds?=integer value",
    "TopologySpreadConstraint": """
        labelSelector:LabelSelector matchLabelKeys=string[] maxSkew=integer minDomains?=integer
        nodeAffinityPolicy? nodeTaintsPolicy? topologyKey whenUnsatisfiable
    """,
    "TypedLocalObjectReference": "apiGroup? kind name",
    "TypedObjectReference": "apiGroup? kind name namespace?",
    "VolumeResourceRequirements": "limits:Quantities requests:Quantities",
    "WeightedPodAffinityTerm": "podAffinityTerm:PodAffinityTerm weight=integer",
}
"""as above, for the types of Kubernetes inside of KubeVirt's"""


ValueType = Literal["string", "boolean", "integer", "count", "port", "object"]
"""A `count` is an unsigned integer, and a `port` a number or the name of a port. An `object` has any fields, or those
of the type that is named beside it."""


@dataclass(frozen=True)
class Field:
    type: str
    """a listed type, `Quantity`, `Quantities` and `Map` for maps of quantities and of texts, or an empty string"""
    is_pointer: bool
    value: ValueType = "object"
    """the JSON type of the value, or of each item of the list"""
    is_list: bool = False


@cache
def declared_fields(type_name: str) -> Mapping[str, Field]:
    """The fields of a type of KubeVirt or Kubernetes; empty for an unlisted type."""
    tables = (_TYPES, _KUBERNETES_TYPES, _REQUEST_TYPES)
    words = next((table[type_name] for table in tables if type_name in table), "").split()
    return dict(_field(word) for word in words)


def _field(word: str) -> tuple[str, Field]:
    left, is_list = word.removesuffix("[]"), word.endswith("[]")
    head, _, type_name = left.partition(":")
    name, _, named = head.partition("=")
    value = cast(ValueType, named or ("object" if type_name else "string"))
    return name.removesuffix("?"), Field(type_name, name.endswith("?"), value, is_list)


@cache
def fields_of(type_name: str) -> Mapping[str, str]:
    """The fields of a type of KubeVirt, with the type of each, or an empty string if it is none of KubeVirt's."""
    return {name: each.type if each.type in _TYPES else "" for name, each in declared_fields(type_name).items()}


@dataclass(frozen=True)
class UnknownField:
    path: tuple[str | int, ...]
    nearest: str
    """the most similar field of the same object, or an empty string"""


def unknown_fields(value: Any, type_name: str, path: tuple[str | int, ...] = ()) -> Iterator[UnknownField]:
    """Fields that no supported release of KubeVirt has."""
    known = fields_of(type_name)
    for name, inner in value.items() if isinstance(value, dict) else ():
        if name not in known:
            nearest = get_close_matches(str(name)[:60], known, 1, 0.7)
            yield UnknownField((*path, str(name)), nearest[0] if nearest else "")
        elif known[name]:
            items: Iterator[tuple[int | None, Any]] = (
                iter(enumerate(inner)) if isinstance(inner, list) else iter([(None, inner)])
            )
            for index, item in items:
                here = (*path, name) if index is None else (*path, name, index)
                yield from unknown_fields(item, known[name], here)
