"""VirtualMachinePool: as many similar VMs as it says, each with a name and disks of its own.

Begin with `plan`. A VM belongs to a pool by its controller owner reference (name and UID), and by nothing else:
removing it detaches the VM, putting it back returns it. Labels are for people and selectors; no VM is adopted by them.
"""
