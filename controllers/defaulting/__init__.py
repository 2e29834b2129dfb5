"""Fills the hardware of VMs that were stored while the webhook or the defaulter did not answer.

Begin with `plan`, which says which VMs may be filled, and when. A VM is filled while it has no VMI, or while
its VMI is finishing: KubeVirt creates the next VMI from the filled spec. The controller does not change a running VM,
because KubeVirt would then require a restart; it fills the VM at its next stop.
"""
