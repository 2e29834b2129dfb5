"""Reasons of the events of VirtualMachines."""

from apimachinery.reasons import Reason


class VMEvent(Reason):
    HARDWARE_DECIDED = "HardwareDecided", "The controller filled hardware fields that were empty at creation."
    HARDWARE_UNDECIDED = (
        "HardwareUndecided",
        "The defaulter cannot fill the VM's hardware. The controller retries when the VM changes.",
    )
    DUPLICATE_MAC = "DuplicateMAC", "Another VM has the same MAC address."
