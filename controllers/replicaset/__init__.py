"""VirtualMachineInstanceReplicaSet: a number of replaceable VMIs from one template.

Start reading at `plan`. A VMI is a member if the set is its controller owner (name and UID). The set adopts matching
VMIs without a controller. The set releases a member whose labels stop matching; the VMI keeps running.

If the cluster has KubeVirt's own CRD of this name, the controller does nothing: see `build`.
"""
