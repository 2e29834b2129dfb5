"""Warm pools: VMs that are ready before they are asked for, and the claims that take them.

Begin with `machine`: what is known of one warm machine, all of it read from its own labels. `queues` finds machines by
state; `machines` is the narrow interface to whatever holds them, `vm` holds them as VirtualMachines. `pool` keeps each
pool filled; `claim` gives machines away. `build` puts it all together.

The labels are the only truth: nothing here is remembered that a restart could not read again.
"""
