"""Claims: a claim gets one VM of a warm pool, and a VM has at most one claim.

`observe` reads the stores, and what this process remembers of a claim (`memory`), into a `snapshot`. `plan` decides the
next step of the claim (`steps`) and documents its phases. `allocator` selects the pool and the VM of a claim, and
orders waiting claims. `apply` executes the steps, and `controller` repeats them until the claim must wait.
`garbage_collector` deletes VMs whose claim no longer exists.
"""
