"""Warm pools: VMs and EC2 instances that are prepared before a claim asks for them.

    observe   caches             -> WarmPoolSnapshot   (`controller`)
    plan      (snapshot, now)    -> Plan        steps: health, standby, rollout, scaling, orphaning
    apply     Plan               -> API calls   through a Backend: VMs (`vm_backend`) or EC2 instances (`ec2`)

Begin with `warm_vm`: the view of one VM. The labels of the VM are the only truth: the controller keeps nothing in
memory that a restart could not read again. `controllers/claim` gives the VMs to claims.
"""
