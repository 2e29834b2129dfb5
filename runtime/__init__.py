"""The library that every service uses to talk to the Kubernetes API, in the words of client-go.

A `Controller` (`controller`) reconciles keys from its `WorkQueue` (`workqueue`). An `Informer` (`informer`) puts keys
there when objects change; informers of one resource share a `Reflector` (`reflector`), which lists and watches it.
Controllers write through `Api` (`api`, the only module that imports the Kubernetes client), many objects at a time
through `BatchWriter` (`batch_writer`). A service runs its controllers inside `LeaderElector.run` (`leader_election`).

- An informer keeps no documents: only the small frozen view that its owner makes of each object.
- `Api` repeats no call: after `Unreachable` only the caller knows whether a second attempt is safe.
- Every call has a deadline.
"""
