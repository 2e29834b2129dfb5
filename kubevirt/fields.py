"""The fields of KubeVirt's VirtualMachine and of CDI's DataVolume template, in all supported releases together.

The names were read in the OpenAPI documents of KubeVirt 1.5 to 1.9 and of its main branch, and the types in their Go
sources. A field that only some releases have is listed, because an older cluster reports it itself. No field inside a
type of Kubernetes counts as unknown.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

VM_SPEC = "VirtualMachineSpec"
VMI_SPEC = "VirtualMachineInstanceSpec"

_TYPES: Mapping[str, str] = {
    "ACPI": "msdmNameRef slicNameRef",
    "ACPIState": "enabled?",
    "AccessCredential": "sshPublicKey:SSHPublicKeyAccessCredential userPassword:UserPasswordAccessCredential",
    "AccessCredentialSecretSource": "secretName",
    "BIOS": "useSerial?",
    "BlockSize": "custom:CustomBlockSize matchVolume:FeatureState",
    "Bootloader": "bios:BIOS efi:EFI",
    "CDIDataVolumeSource": """
        blank:DataVolumeBlankImage gcs:CDIDataVolumeSourceGCS http:CDIDataVolumeSourceHTTP
        imageio:CDIDataVolumeSourceImageIO pvc:CDIDataVolumeSourcePVC registry:CDIDataVolumeSourceRegistry
        s3:CDIDataVolumeSourceS3 snapshot:CDIDataVolumeSourceSnapshot upload:CDIDataVolumeSourceUpload
        vddk:CDIDataVolumeSourceVDDK
    """,
    "CDIDataVolumeSourceGCS": "secretRef url",
    "CDIDataVolumeSourceHTTP": "certConfigMap extraHeaders secretExtraHeaders secretRef url",
    "CDIDataVolumeSourceImageIO": "certConfigMap diskId insecureSkipVerify? secretRef url",
    "CDIDataVolumeSourcePVC": "name namespace",
    "CDIDataVolumeSourceRef": "kind name namespace?",
    "CDIDataVolumeSourceRegistry": "certConfigMap? imageStream? platform:PlatformOptions pullMethod? secretRef? url?",
    "CDIDataVolumeSourceS3": "certConfigMap secretRef url",
    "CDIDataVolumeSourceSnapshot": "name namespace",
    "CDIDataVolumeSourceUpload": "",
    "CDIDataVolumeSourceVDDK": "backingFile extraArgs initImageURL secretRef thumbprint url uuid",
    "CDRomTarget": "bus readonly? tray",
    "CPU": """
        cores dedicatedCpuPlacement features:CPUFeature isolateEmulatorThread maxSockets model numa:NUMA
        realtime:Realtime sockets threads
    """,
    "CPUFeature": "name policy",
    "Chassis": "asset manufacturer serial sku version",
    "ClaimRequest": "claimName requestName",
    "ClientPassthroughDevices": "",
    "Clock": "timer:Timer timezone? utc:ClockOffsetUTC",
    "ClockOffsetUTC": "offsetSeconds?",
    "CloudInitConfigDriveSource": """
        networkData networkDataBase64 networkDataSecretRef:LocalObjectReference secretRef:LocalObjectReference
        userData userDataBase64
    """,
    "CloudInitNoCloudSource": """
        networkData networkDataBase64 networkDataSecretRef:LocalObjectReference secretRef:LocalObjectReference
        userData userDataBase64
    """,
    "ConfigDriveSSHPublicKeyAccessCredentialPropagation": "",
    "ConfigMapVolumeSource": "name optional? volumeLabel",
    "ContainerDiskSource": "image imagePullPolicy imagePullSecret path",
    "ContainerPathVolumeSource": "path readOnly?",
    "CustomBlockSize": "discardGranularity? logical physical",
    "DHCPOptions": "bootFileName ntpServers privateOptions:DHCPPrivateOptions tftpServerName",
    "DHCPPrivateOptions": "option value",
    "DataVolumeBlankImage": "",
    "DataVolumeCheckpoint": "current previous",
    "DataVolumeSource": "hotpluggable name",
    "DataVolumeSpec": """
        checkpoints:DataVolumeCheckpoint contentType finalCheckpoint preallocation? priorityClassName
        pvc:PersistentVolumeClaimSpec source:CDIDataVolumeSource sourceRef:CDIDataVolumeSourceRef
        storage:StorageSpec
    """,
    "DataVolumeTemplateDummyStatus": "",
    "DataVolumeTemplateSpec": """
        apiVersion kind metadata:ObjectMeta spec:DataVolumeSpec status:DataVolumeTemplateDummyStatus
    """,
    "DeprecatedInterfaceMacvtap": "",
    "DeprecatedInterfacePasst": "",
    "DeprecatedInterfaceSlirp": "",
    "Devices": """
        autoattachGraphicsDevice? autoattachInputDevice? autoattachMemBalloon? autoattachPodInterface?
        autoattachSerialConsole? autoattachVSOCK? blockMultiQueue? clientPassthrough:ClientPassthroughDevices
        disableHotplug disks:Disk downwardMetrics:DownwardMetrics filesystems:Filesystem gpus:GPU
        hostDevices:HostDevice inputs:Input interfaces:Interface logSerialConsole? networkInterfaceMultiqueue?
        panicDevices:PanicDevice rng:Rng sound:SoundDevice tpm:TPMDevice useVirtioTransitional?
        video:VideoDevice watchdog:Watchdog
    """,
    "Diag288Watchdog": "action",
    "Disk": """
        blockSize:BlockSize bootOrder? cache cdrom:CDRomTarget changedBlockTracking? dedicatedIOThread?
        disk:DiskTarget errorPolicy? io lun:LunTarget name serial shareable? tag
    """,
    "DiskIOThreads": "supplementalPoolThreadCount?",
    "DiskTarget": "bus pciAddress readonly",
    "DomainSpec": """
        chassis:Chassis clock:Clock cpu:CPU devices:Devices features:Features firmware:Firmware
        ioThreads:DiskIOThreads ioThreadsPolicy? launchSecurity:LaunchSecurity machine:Machine memory:Memory
        rebootPolicy? resources:ResourceRequirements
    """,
    "DownwardAPIVolumeSource": "fields:DownwardAPIVolumeFile volumeLabel",
    "DownwardMetrics": "",
    "DownwardMetricsVolumeSource": "",
    "EFI": "persistent? secureBoot?",
    "EmptyDiskSource": "capacity:Quantity",
    "EphemeralVolumeSource": "persistentVolumeClaim:PersistentVolumeClaimVolumeSource",
    "FeatureAPIC": "enabled? endOfInterrupt",
    "FeatureHyperv": """
        evmcs:FeatureState frequencies:FeatureState ipi:FeatureState reenlightenment:FeatureState
        relaxed:FeatureState reset:FeatureState runtime:FeatureState spinlocks:FeatureSpinlocks
        synic:FeatureState synictimer:SyNICTimer tlbflush:TLBFlush vapic:FeatureState vendorid:FeatureVendorID
        vpindex:FeatureState
    """,
    "FeatureKVM": "hidden",
    "FeatureSpinlocks": "enabled? spinlocks?",
    "FeatureState": "enabled?",
    "FeatureVendorID": "enabled? vendorid",
    "Features": """
        acpi:ACPIState apic:FeatureAPIC hyperv:FeatureHyperv hypervPassthrough:HyperVPassthrough
        kvm:FeatureKVM pvspinlock:FeatureState smm:FeatureState
    """,
    "Filesystem": "name virtiofs:FilesystemVirtiofs",
    "FilesystemVirtiofs": "",
    "Firmware": "acpi:ACPI bootloader:Bootloader kernelBoot:KernelBoot serial uuid",
    "GPU": "claimName deviceName name requestName tag virtualGPUOptions:VGPUOptions",
    "GuestAgentPing": "",
    "HPETTimer": "present? tickPolicy",
    "HostDevice": "claimName deviceName name requestName tag",
    "HostDisk": "capacity:Quantity path shared? type",
    "Hugepages": "pageSize",
    "HyperVPassthrough": "enabled?",
    "HypervTimer": "present?",
    "I6300ESBWatchdog": "action",
    "Input": "bus name type",
    "InstancetypeMatcher": "inferFromVolume inferFromVolumeFailurePolicy? kind name revisionName",
    "Interface": """
        acpiIndex binding:PluginBinding bootOrder? bridge:InterfaceBridge dhcpOptions:DHCPOptions macAddress
        macvtap:DeprecatedInterfaceMacvtap masquerade:InterfaceMasquerade model name
        passt:DeprecatedInterfacePasst passtBinding:InterfacePasstBinding pciAddress portRanges:PortRange
        ports:Port slirp:DeprecatedInterfaceSlirp sriov:InterfaceSRIOV state tag
    """,
    "InterfaceBridge": "",
    "InterfaceMasquerade": "",
    "InterfacePasstBinding": "",
    "InterfaceSRIOV": "",
    "KVMTimer": "present?",
    "KernelBoot": "container:KernelBootContainer kernelArgs",
    "KernelBootContainer": "image imagePullPolicy imagePullSecret initrdPath kernelPath",
    "LaunchSecurity": "sev:SEV snp:SEVSNP tdx:TDX",
    "LunTarget": "bus readonly reservation",
    "Machine": "type",
    "Memory": "guest:Quantity hugepages:Hugepages maxGuest:Quantity reservedOverhead:ReservedOverhead",
    "MemoryDumpVolumeSource": "claimName hotpluggable readOnly",
    "MultusNetwork": "default networkName",
    "NUMA": "guestMappingPassthrough:NUMAGuestMappingPassthrough",
    "NUMAGuestMappingPassthrough": "",
    "Network": "multus:MultusNetwork name pod:PodNetwork resourceClaim:ClaimRequest",
    "NoCloudSSHPublicKeyAccessCredentialPropagation": "",
    "PITTimer": "present? tickPolicy",
    "PanicDevice": "model?",
    "PersistentVolumeClaimVolumeSource": "claimName hotpluggable readOnly",
    "PlatformOptions": "architecture",
    "PluginBinding": "name",
    "PodNetwork": "vmIPv6NetworkCIDR vmNetworkCIDR",
    "Port": "name port protocol",
    "PortRange": "end protocol start",
    "PreferenceMatcher": "inferFromVolume inferFromVolumeFailurePolicy? kind name revisionName",
    "Probe": """
        exec:ExecAction failureThreshold guestAgentPing:GuestAgentPing httpGet:HTTPGetAction
        initialDelaySeconds periodSeconds successThreshold tcpSocket:TCPSocketAction timeoutSeconds
    """,
    "QemuGuestAgentSSHPublicKeyAccessCredentialPropagation": "users",
    "QemuGuestAgentUserPasswordAccessCredentialPropagation": "",
    "RTCTimer": "present? tickPolicy track",
    "Realtime": "mask",
    "ReservedOverhead": "addedOverhead:Quantity memLock?",
    "ResourceRequirements": "limits:Quantities overcommitGuestOverhead requests:Quantities",
    "Rng": "",
    "SEV": "attestation:SEVAttestation dhCert policy:SEVPolicy session",
    "SEVAttestation": "",
    "SEVPolicy": "encryptedState?",
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
    "SecretVolumeSource": "optional? secretName volumeLabel",
    "ServiceAccountVolumeSource": "serviceAccountName",
    "SoundDevice": "model name",
    "StorageSpec": """
        accessModes dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference
        resources:VolumeResourceRequirements selector:LabelSelector storageClassName? volumeMode? volumeName
    """,
    "SyNICTimer": "direct:FeatureState enabled?",
    "SysprepSource": "configMap:LocalObjectReference secret:LocalObjectReference",
    "TDX": "",
    "TLBFlush": "direct:FeatureState enabled? extended:FeatureState",
    "TPMDevice": "enabled? persistent?",
    "Timer": "hpet:HPETTimer hyperv:HypervTimer kvm:KVMTimer pit:PITTimer rtc:RTCTimer",
    "UserPasswordAccessCredential": """
        propagationMethod:UserPasswordAccessCredentialPropagationMethod
        source:UserPasswordAccessCredentialSource
    """,
    "UserPasswordAccessCredentialPropagationMethod": """
        qemuGuestAgent:QemuGuestAgentUserPasswordAccessCredentialPropagation
    """,
    "UserPasswordAccessCredentialSource": "secret:AccessCredentialSecretSource",
    "UtilityVolume": "claimName name readOnly type?",
    "VGPUDisplayOptions": "enabled? ramFB:FeatureState",
    "VGPUOptions": "display:VGPUDisplayOptions",
    "VideoDevice": "type",
    "VirtualMachineInstanceResourceClaim": "name resourceClaimName? resourceClaimTemplateName?",
    "VirtualMachineInstanceSpec": """
        accessCredentials:AccessCredential affinity:Affinity architecture dnsConfig:PodDNSConfig dnsPolicy
        domain:DomainSpec evictionStrategy? hostname livenessProbe:Probe networks:Network nodeSelector:Map
        priorityClassName readinessProbe:Probe resourceClaims:VirtualMachineInstanceResourceClaim
        schedulerName serviceAccountName startStrategy? subdomain terminationGracePeriodSeconds?
        tolerations:Toleration topologySpreadConstraints:TopologySpreadConstraint utilityVolumes:UtilityVolume
        volumes:Volume
    """,
    "VirtualMachineInstanceTemplateSpec": "metadata:ObjectMeta spec:VirtualMachineInstanceSpec",
    "VirtualMachineSpec": """
        dataVolumeTemplates:DataVolumeTemplateSpec instancetype:InstancetypeMatcher
        preference:PreferenceMatcher runStrategy? running? template:VirtualMachineInstanceTemplateSpec
        updateVolumesStrategy?
    """,
    "Volume": """
        cloudInitConfigDrive:CloudInitConfigDriveSource cloudInitNoCloud:CloudInitNoCloudSource
        configMap:ConfigMapVolumeSource containerDisk:ContainerDiskSource
        containerPath:ContainerPathVolumeSource dataVolume:DataVolumeSource
        downwardAPI:DownwardAPIVolumeSource downwardMetrics:DownwardMetricsVolumeSource
        emptyDisk:EmptyDiskSource ephemeral:EphemeralVolumeSource hostDisk:HostDisk
        memoryDump:MemoryDumpVolumeSource name persistentVolumeClaim:PersistentVolumeClaimVolumeSource
        secret:SecretVolumeSource serviceAccount:ServiceAccountVolumeSource sysprep:SysprepSource
    """,
    "Watchdog": "diag288:Diag288Watchdog i6300esb:I6300ESBWatchdog name",
}
"""by type, its fields as `NAME`, or as `NAME:TYPE` if the field holds an object or objects of a type, or a quantity.

`NAME?` is a pointer in Go: a false, 0 or empty value of the field is not the same as no value."""

_KUBERNETES_TYPES: Mapping[str, str] = {
    "Affinity": "nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAffinity",
    "DownwardAPIVolumeFile": "fieldRef mode? path resourceFieldRef:ResourceFieldSelector",
    "ExecAction": "command",
    "HTTPGetAction": "host httpHeaders path port scheme",
    "LabelSelector": "matchExpressions matchLabels:Map",
    "LocalObjectReference": "name",
    "NodeAffinity": "preferredDuringSchedulingIgnoredDuringExecution requiredDuringSchedulingIgnoredDuringExecution",
    "ObjectMeta": "annotations:Map creationTimestamp finalizers generateName labels:Map name namespace",
    "PersistentVolumeClaimSpec": """
        accessModes dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference
        resources:VolumeResourceRequirements selector:LabelSelector storageClassName?
        volumeAttributesClassName? volumeMode? volumeName
    """,
    "PodAffinity": "preferredDuringSchedulingIgnoredDuringExecution requiredDuringSchedulingIgnoredDuringExecution",
    "PodDNSConfig": "nameservers options searches",
    "ResourceFieldSelector": "containerName divisor:Quantity resource",
    "TCPSocketAction": "host port",
    "Toleration": "effect key operator tolerationSeconds? value",
    "TopologySpreadConstraint": """
        labelSelector:LabelSelector matchLabelKeys maxSkew minDomains? nodeAffinityPolicy? nodeTaintsPolicy?
        topologyKey whenUnsatisfiable
    """,
    "TypedLocalObjectReference": "apiGroup? kind name",
    "TypedObjectReference": "apiGroup? kind name namespace?",
    "VolumeResourceRequirements": "limits:Quantities requests:Quantities",
}
"""as above, for the types of Kubernetes inside of KubeVirt's"""


@dataclass(frozen=True)
class Field:
    type: str
    """a listed type, `Quantity`, `Quantities` and `Map` for maps of quantities and of texts, or an empty string"""
    is_pointer: bool


@cache
def declared_fields(type_name: str) -> Mapping[str, Field]:
    """The fields of a type of KubeVirt or Kubernetes; empty for an unlisted type."""
    words = (_TYPES.get(type_name) or _KUBERNETES_TYPES.get(type_name) or "").split()
    pairs = (word.partition(":") for word in words)
    return {name.removesuffix("?"): Field(inner, name.endswith("?")) for name, _, inner in pairs}


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


def format_steps(path: tuple[str | int, ...]) -> str:
    """The path in the form of API servers: `spec.domain.devices.disks[0].name`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
