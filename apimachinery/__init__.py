"""Values of the Kubernetes API that all rooms use, named after Kubernetes' own `k8s.io/apimachinery`.

Quantities, times, label selectors, owner references, reasons, and `unstructured`, which reads documents of any shape.
This room imports no other room and no client, and knows no kind.
"""
