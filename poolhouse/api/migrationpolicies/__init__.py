"""Determines the MigrationPolicy of a VMI: precedence, effective settings, conflicts, KubeVirt's own policies.

Begin with `precedence`. No function calls a cluster; all arguments are documents or values.
"""
