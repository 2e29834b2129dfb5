"""Claims: a claim gets one VM of a warm pool, and a VM has at most one claim.

`plan` decides the next step of a claim (`steps`) and documents its phases. `allocator` selects the pool and the VM of a
claim, and orders waiting claims. `apply` executes the steps, and `controller` repeats them until the claim must wait.
`snapshot` holds the data of this process about a claim. `garbage_collector` deletes VMs whose claim no longer exists.
"""
