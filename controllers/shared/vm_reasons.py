"""Reasons of the events of VirtualMachines."""

from poolhouse.api.apimachinery.reasons import Reason


class VMEvent(Reason):
    HARDWARE_DECIDED = "HardwareDecided", "The controller filled hardware fields that were empty at creation."
    HARDWARE_UNDECIDED = (
        "HardwareUndecided",
        "The defaulter cannot fill the VM's hardware. The controller retries when the VM changes.",
    )
    GUEST_KEPT = (
        "GuestKept",
        "The controller wrote MAC addresses and other values of the guest into the spec of a VM that stops.",
    )
    FAILED_DOMAIN_READ = (
        "FailedDomainRead",
        "The controller cannot read the PCI addresses of a running guest. It retries with growing pauses.",
    )
    DUPLICATE_MAC = "DuplicateMAC", "Another VM has the same MAC address."
