"""Warm VMs that are AWS EC2 instances.

`tags` stores on an instance the data that a VM has in labels and annotations. `backend` implements the interface of
backends. `poller` lists the instances of this cluster, `instance_cache` caches them. Only `client` imports boto3. Only
`agent` imports gRPC.

EC2 has no compare-and-swap: the last write of a tag wins. Four rules prevent that two claims get one instance:

- One process is the leader, by a Lease. The leader has a lock for each instance: no other task writes between the read
  of an instance's revision and the write of the next revision.
- A write carries the next revision. The backend sends no write if the instance has a newer revision than the decision
  used. A former leader that resumes therefore finds the writes of the new leader.
- The decision is stored in Kubernetes: `status.instanceRef` of a claim is written with the claim's resourceVersion, and
  before the application starts. A claim that finds two instances with its UID keeps the instance in its status. The
  claim terminates the other instance, which no user has seen.
- Two leaders may still give one instance to two claims in the same second. Then the instance has the tags of the later
  write. Each claim reads the tags before the launch and before the hand-over. A claim that finds the UID of another
  claim tries another instance.
"""
