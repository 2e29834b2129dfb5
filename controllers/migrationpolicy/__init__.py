"""Decides which MigrationPolicy each VMI uses, and keeps KubeVirt's own policies in sync.

Begin with `winners`, which finds the VMIs that a change affects; the order of policies is in
`migrationpolicies.precedence`. The controller labels each VMI with its winner. For each policy it keeps one policy of
KubeVirt (`migrations.kubevirt.io`) that selects this label: `plan` decides about it, and `status` reports whether
KubeVirt applies it.

The controller does not change policies of KubeVirt that others created, and writes nothing while nothing changes.
"""
