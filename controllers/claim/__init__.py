"""Claims: each gets one VM of a warm pool, and no VM has two claims.

`plan` draws the phases of a claim and decides its next step (`steps`). `allocator` selects its pool and its VM, and
decides whose turn it is. `apply` takes the steps; `controller` repeats them until the claim must wait. `snapshot` holds
what this process knows of a claim beyond the stores, and `garbage_collector` deletes VMs whose claim is gone.
"""
