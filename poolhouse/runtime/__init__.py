"""The library that every service uses to talk to the Kubernetes API, in the words of client-go.

A `Controller` (`controller`) reconciles keys from its `WorkQueue` (`workqueue`). An `Informer` (`informer`) adds keys
to the queue when objects change. A `Reflector` (`reflector`) lists and watches a resource for all informers of it.
Controllers write through `Api` (`api`) with `Credentials` (`credentials`, the only importer of the Kubernetes client).
`BatchWriter` (`batch_writer`) writes many objects at a time. A service runs its controllers inside `LeaderElector.run`
(`leader_election`).

- An informer keeps no documents. It keeps only a small frozen view of each object.
- `Api` does not retry calls. After `Unreachable` only the caller knows whether a retry is safe.
- Every call has a deadline.
"""
