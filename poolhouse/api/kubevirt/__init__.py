"""Facts about KubeVirt: what its releases support, and what a cluster's KubeVirt object configures.

The modules read documents and tables. They use no network and no clock, so that every service may import them.
"""
