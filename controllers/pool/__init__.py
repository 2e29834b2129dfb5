"""VirtualMachinePool: a number of similar VMs, each with its own name and disks.

Start reading at `plan`. `scaling` selects the VMs to create and delete, `rollout` the VMs to update, and `autohealing`
the VMs to replace. A VM is a member if the pool is its controller owner (name and UID). A user can remove or set this
reference to detach or attach a VM. Labels are for users and selectors.
"""
