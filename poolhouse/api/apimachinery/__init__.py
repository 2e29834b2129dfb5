"""Common values of the Kubernetes API, named after Kubernetes' own `k8s.io/apimachinery`.

The package has quantities, times, label selectors, owner references and reasons. `unstructured` reads documents of any
shape. The package imports no other package of Poolhouse and no client.
"""
