"""The virtual node: a Node of the cluster whose Pods run on VMs of warm pools.

`capacity.py` counts the VMs that Pods can get, `plan.py` compares the Node with what it should be, and `controller.py`
writes it. The Node's Lease (`poolhouse/runtime/node_lease.py`) shows Kubernetes that controllers work.

`translate.py` makes the claim of a Pod, `pod_plan.py` decides what happens to the Pod next, with the views of `pod.py`
and the status of `pod_status.py`, and `pods.py` does it. The claim does the rest: a Pod never touches a VM itself.
"""
