"""Decides which MigrationPolicy a VMI uses, and keeps KubeVirt's own policies in sync.

Start reading at `winners`, which finds the VMIs that a change affects. `poolhouse.api.migrationpolicies.precedence`
defines the order of policies. The controller labels a VMI with its winning policy. For each policy, the controller
manages one policy of KubeVirt (`migrations.kubevirt.io`) that selects this label. `plan` decides its changes, and
`status` reports whether KubeVirt applies it.

The controller does not change KubeVirt's policies of other owners, and sends no writes without a change.
"""
