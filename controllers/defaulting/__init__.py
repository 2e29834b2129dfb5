"""Fills the hardware of VMs that were stored while the webhook or the defaulter was unavailable.

Start reading at `plan`, which decides which VMs may be filled, and when. The controller fills a VM that has no VMI or
whose VMI is finishing. KubeVirt creates the next VMI from the filled spec. A running VM is filled at its next stop,
because a change would require a restart.
"""
