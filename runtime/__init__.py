"""Talking to Kubernetes, for every service of Poolhouse. It knows no kind and imports nothing of ours.

Begin with `controller`: a `Controller` works on keys that an `Informer` (`informer`) puts into its `WorkQueue`
(`queue`), and writes through the `Api` (`api`, the only file that imports the Kubernetes client). Informers of one
resource share a `Feed` (`feed`), which lists and watches it once; what is written many at a time goes through `Writes`
(`writes`). A service is held up by `stop.run`, answers on `serve.serve`, and leads alone inside `lease.Lease.hold`.

What it refuses to do: keep whole documents (an informer keeps the small frozen view that its owner asks for), retry
behind a caller's back (an answer that was not had is `Unreachable`, and only the caller knows whether trying again is
safe), and wait without a deadline.
"""
