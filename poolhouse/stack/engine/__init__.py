"""The engine replaces KubeVirt and CDI in the embedded stack.

| package | what it does | in KubeVirt, CDI |
| --- | --- | --- |
| vm, vmi, migration | reconcile VMs, VMIs and migrations, and evacuate nodes | virt-controller, virt-handler |
| vmi.prober | runs liveness and readiness probes | kubelet |
| launcher | creates the Pods that a drain evicts | virt-controller, kubelet |
| snapshot | takes snapshots of VMs and restores them | snapshot and restore controllers of virt-controller |
| datavolume | imports and clones disks | CDI's controllers and importer |
| node | registers the nodes and schedules VMIs | kubelet, scheduler, node labeller |
| virt_api | serves start, stop, restart, pause, migrate | virt-api |
| qemu, simulated | run the domains of VMIs, or simulate them | virt-launcher |

Begin with `vm.plan` and `vmi.phases`, which make the decisions and do no I/O. The engine uses the hardware that the
defaulter has set, and sets none itself. After a restart the engine reads its state from the API server and libvirt.
"""
