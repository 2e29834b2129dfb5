"""Warm pools: VMs and EC2 instances that the controller prepares before a claim asks for them.

    observe   caches             -> WarmPoolSnapshot   (`controller`)
    plan      (snapshot, now)    -> Plan        steps: health, standby, rollout, scaling, orphaning
    apply     Plan               -> API calls   through a Backend: VMs (`vm_backend`) or EC2 instances (`ec2`)

Start reading at `warm_vm`, the view of one VM. The controller stores its state in labels of the VMs and in the status
of the pool, so a restart loses no decision. `controllers/claim` gives the VMs to claims.
"""
