"""What virt-api writes into a new VM, and what it refuses."""

from poolhouse.api.kubevirt.behaviours.steps import ANY, HALTED, Behaviour, Create, Refusal, Shows, domain

_ADMISSION = "Admission and dry runs of Poolhouse report KubeVirt's own refusals."
_DEFAULTS = "virt-api's webhook runs before that of Poolhouse, which therefore finds these values set."

ADMISSION: tuple[Behaviour, ...] = (
    Behaviour(
        "new-vm-gets-machine-type",
        "virt-api writes architecture and machine type of a VM that names none",
        _DEFAULTS,
        (
            Create(HALTED),
            Shows("VM", {"spec.template.spec.architecture": ANY, "spec.template.spec.domain.machine.type": ANY}),
        ),
    ),
    Behaviour(
        "new-vm-gets-firmware-uuid",
        "virt-api writes a firmware UUID into a new VM",
        _DEFAULTS,
        (Create(HALTED), Shows("VM", {"spec.template.spec.domain.firmware.uuid": ANY})),
        since=(1, 6),
    ),
    Behaviour(
        "new-vm-gets-firmware-serial",
        "virt-api writes a firmware serial into a new VM",
        _DEFAULTS,
        (Create(HALTED), Shows("VM", {"spec.template.spec.domain.firmware.serial": ANY})),
        since=(1, 7),
    ),
    Behaviour(
        "vm-needs-run-strategy",
        "virt-api refuses a VM with neither running nor runStrategy",
        _ADMISSION,
        (Create({"runStrategy": None}, Refusal(422, "RunStrategy must be specified")),),
    ),
    Behaviour(
        "vm-has-one-run-strategy",
        "virt-api refuses a VM with both running and runStrategy",
        _ADMISSION,
        (Create({"runStrategy": "Halted", "running": False}, Refusal(422, "mutually exclusive")),),
    ),
    Behaviour(
        "disk-needs-volume",
        "virt-api refuses a disk without a volume",
        _ADMISSION,
        (
            Create(
                {**HALTED, **domain(devices={"disks": [{"name": "root", "disk": {"bus": "virtio"}}]})},
                Refusal(422, "disks[0].Name 'root' not found."),
            ),
        ),
    ),
    Behaviour(
        "disk-bus-of-pci-address",
        "virt-api refuses a PCI address of a disk that is not virtio",
        "Poolhouse writes PCI addresses of virtio disks only.",
        (
            Create(
                {
                    **HALTED,
                    "template": {
                        "spec": {
                            "domain": {
                                "devices": {
                                    "disks": [{"name": "root", "disk": {"bus": "sata", "pciAddress": "0000:01:00.0"}}]
                                }
                            },
                            "volumes": [{"name": "root", "emptyDisk": {"capacity": "8Mi"}}],
                        }
                    },
                },
                Refusal(422, "setting a PCI address is only possible with bus type virtio."),
            ),
        ),
    ),
    Behaviour(
        "secure-boot-needs-smm",
        "virt-api refuses secure boot without SMM",
        "Poolhouse writes secureBoot: false where SMM is off.",
        (
            Create(
                {**HALTED, **domain(firmware={"bootloader": {"efi": {"secureBoot": True}}})},
                Refusal(422, "SecureBoot requires SMM"),
            ),
        ),
    ),
    Behaviour(
        "no-video-without-graphics",
        "virt-api refuses a video type beside autoattachGraphicsDevice: false",
        "Poolhouse takes its video type back when an author turns graphics off.",
        (
            Create(
                {**HALTED, **domain(devices={"autoattachGraphicsDevice": False, "video": {"type": "vga"}})},
                Refusal(422, "not allowed when autoattachGraphicsDevice is set to false"),
            ),
        ),
        since=(1, 9),
    ),
)
