"""The stand-in for KubeVirt and CDI where there is no cluster, and so small that it stays one.

Begin with `plan` (a VirtualMachine: what to do about it) and `phases` (a VirtualMachineInstance: what becomes of it);
both are pure. `machines`, `vmis`, `disks` and `fleet` read, ask them, and write. Guests are either QEMU's, through
`driver` (the only file that imports libvirt), or `simulated`: the same phases with nothing behind them.

What it refuses to do: decide hardware (the defaulter does; here it is only honoured), schedule by capacity, or keep
anything of its own: after a restart all is found again in the API server and in libvirt.
"""
