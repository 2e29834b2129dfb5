"""The kinds of Poolhouse, and what it knows of the Kubernetes API and of KubeVirt."""
