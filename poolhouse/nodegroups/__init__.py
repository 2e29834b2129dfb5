"""The cloud provider of the Kubernetes cluster-autoscaler for clusters whose nodes are VMs of pools.

The autoscaler runs in the cluster on VMs, and asks this provider by gRPC (its cloud provider `externalgrpc`). The
provider changes pools in the cluster below. Begin with `groups.py`, which decides and is pure; `cluster.py` reads and
writes the Kubernetes API, `protocol.py` has the messages, and `server.py` serves them.

The provider deletes no VM. It names the VM in an annotation of its pool and lowers `replicas` in the same write, so the
pool's own limits and lifecycle hooks hold.
"""
