"""Warm machines that are instances of AWS EC2.

Begin with `tags`: what labels and annotations are for a VM, tags are for an instance. `instances` holds them behind the
interface that VMs are held behind; `scan` shows what EC2 has, on time and after a restart, and `shown` keeps it;
`cloud` is the only file that knows boto3, `agent` the only one that knows gRPC. `off` stands in where no region is set.

EC2 has no compare-and-swap: whoever tags last wins. What keeps an instance from being given to two is this, and all of
it is needed:

- One process leads, by a Lease, and in it one lock for each instance: between reading its revision and writing the next
  one nobody else writes.
- Each write carries a revision, a number that grows, and one that finds another revision than it was decided on is not
  sent. So a leader that has been replaced, and wakes up, stumbles over what its successor has written.
- What decides is on the Kubernetes side: `claim.status.instanceRef` is written with the claim's resourceVersion, and
  nothing is launched on an instance before that. A claim that finds two instances with its UID keeps the one that is
  written there and ends the other, which nobody has seen.

What is left is two leaders at once that give one instance to two claims in the same second, both of which then write it
into their own claims. The tags of the later one stand. Before anything is launched, and again before it is handed over,
the tags are read anew: the earlier claim finds that its instance is another's, and tries another one.
"""
