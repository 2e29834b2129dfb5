"""Reasons of admission, in the annotation `poolhouse.dev/undefaulted` and in labels of metrics."""

from poolhouse.api.apimachinery.reasons import Reason


class FailOpenReason(Reason):
    """Why a VM was admitted without all hardware fields. A value of the annotation `poolhouse.dev/undefaulted`."""

    DEFAULTER_UNAVAILABLE = "DefaulterUnavailable", "The defaulter gave no answer."
    DEFAULTER_OVERLOADED = "DefaulterOverloaded", "Too many requests waited for the defaulter."
    HARDWARE_UNDECIDED = (
        "HardwareUndecided",
        "The defaulter works, but cannot decide the hardware of this VM. libvirt decides it on the node.",
    )
    DEFAULTER_CIRCUIT_OPEN = (
        "DefaulterCircuitOpen",
        "The defaulter failed several times in a row; the webhook waits before it calls the defaulter again.",
    )
    INVALID_DEFAULTER_RESPONSE = (
        "InvalidDefaulterResponse",
        "The defaulter's answer changed fields that a defaulter must not change; the webhook ignored it.",
    )
    ADDED_WHILE_RUNNING = (
        "AddedWhileRunning",
        "A device was added to a running VM. libvirt chooses its address, which is written when the VM has stopped.",
    )
    PREFERENCE_UNKNOWN = (
        "PreferenceUnknown",
        "The VM's preference cannot be read. KubeVirt chooses the hardware that depends on it when the VM starts.",
    )


class DriftReason(Reason):
    """How another webhook changed the hardware of a VM after the defaulting webhook."""

    HARDWARE_UNDEFAULTED = "HardwareUndefaulted", "Another webhook added hardware that has undefaulted fields."
    HARDWARE_CHANGED = "HardwareChanged", "Another webhook changed a hardware field that has a default."


class AdmissionReason(Reason):
    """Reasons of decisions that differ from the usual checks."""

    SKIPPED = "Skipped", "The request changes nothing that the webhook checks."
    TOLERATED = "Tolerated", "The object has problems that the stored object has too; they are warnings."
