"""VirtualMachinePool: a number of similar VMs, each with its own name and disks.

Begin with `plan`. `scaling` decides which VMs a pool creates and deletes, `rollout` which it
updates, `autohealing` which it replaces. The controller owner reference (name and UID) alone makes a VM a member:
removing it detaches the VM, and setting it attaches the VM again. Labels are for users and selectors.
"""
