"""What the controllers of all kinds use: views of VMs and VMIs, conditions, status writes, write batches, simulation.

The packages of the kinds import this package and not each other. This package imports none of them.
"""
