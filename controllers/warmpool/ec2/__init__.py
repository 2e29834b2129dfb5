"""Warm VMs that are AWS EC2 instances.

`tags` stores on an instance what labels and annotations store on a VM. `backend` implements the interface that VMs are
managed through. `poller` lists the instances of this cluster; `instance_cache` keeps them. Only `client` imports boto3
and only `agent` imports gRPC.

EC2 has no compare-and-swap: the last write of a tag wins. Four rules together keep an instance from two claims:

- One process leads, by a Lease, and it has a lock for each instance: nothing else in it writes between the read of an
  instance's revision and the write of the next one.
- Each write carries the next revision, and is not sent if the instance has another revision than the decision was
  based on. A former leader that wakes up finds what its successor has written.
- The decision is made in Kubernetes: `status.instanceRef` of a claim is written with the claim's resourceVersion, and
  no application is launched before. A claim that finds two instances with its UID keeps the one in its status and
  terminates the other, which no user has seen.
- Two leaders may still give one instance to two claims in the same second, each of which has it in its status. Then the
  tags of the later write stay. The tags are read again before an application is launched and before the hand-over:
  the earlier claim finds that its instance has another claim, and tries another instance.
"""
