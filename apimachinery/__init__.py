"""Values of the Kubernetes API that all rooms read and write: quantities, times, selectors, owner references, reasons.

The name is that of Kubernetes' own `k8s.io/apimachinery`. Begin with `unstructured`, which looks into documents of any
shape. Nothing here talks to a server, knows a kind or imports anything else of Poolhouse.
"""
