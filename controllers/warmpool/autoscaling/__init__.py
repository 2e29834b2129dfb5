"""Decides how many VMs of a warm pool wait.

    history      what the controller knows about the demand for one pool, and its form in the pool's status
    quantiles    how many VMs the next boot time needs, from the history
    decision     the number of VMs, its reason and the next known change
    simulation   replays claims in virtual time against a policy, for `poolhouse warmpool advise`, tests and benchmarks

No module reads a clock or the cluster. Times are seconds since 1970.
"""
