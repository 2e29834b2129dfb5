"""The engine stands in for KubeVirt and CDI where no cluster exists.

| package | what it does | in KubeVirt, CDI |
| --- | --- | --- |
| vm, vmi, migration | reconcile VMs, VMIs and migrations, and evacuate nodes | virt-controller, virt-handler |
| datavolume | imports and clones disks | CDI's controllers and importer |
| node | registers the nodes and schedules VMIs | kubelet, scheduler, node labeller |
| virt_api | serves start, stop, restart, pause, migrate | virt-api |
| qemu, simulated | run the domains of VMIs, or only pretend to | virt-launcher |

Begin with `vm.plan` and `vmi.phases`, which decide and do no I/O. The engine honours hardware that the defaulter has
decided and decides none itself. It keeps no state: after a restart it reads the API server and libvirt.
"""
