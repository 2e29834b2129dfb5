"""Migration policies: each VMI carries the name of the one it obeys, and KubeVirt is made to obey the same.

Begin with `board`, which knows who obeys whom and what a change can affect; the order of policies itself is
`migrationpolicies.precedence`. Each winner is stamped on its VMI as a label. Each policy has one of KubeVirt's own
(`migrations.kubevirt.io`) that selects that label: `plan` keeps it in step, and `status` says whether KubeVirt obeys.

It never touches a policy of KubeVirt's that somebody else made, and at rest it writes nothing.
"""
