"""Which MigrationPolicy a VMI gets and why: precedence, effective settings, conflicts, KubeVirt's own policies.

Begin with `precedence`. Nothing here talks to a cluster: all functions take documents or values.
"""
