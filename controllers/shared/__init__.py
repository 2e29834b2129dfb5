"""Code for all controllers: views of VMs and VMIs, conditions, status writes, write batches, simulation.

The controller packages import this package, but not each other. This package imports none of them.
"""
