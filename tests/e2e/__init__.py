"""End-to-end tests for any cluster with KubeVirt and Poolhouse.

    make test-e2e CONTEXT=my-cluster OPTIONS="--image registry.example/guest:1 --table results.md"

runs them on a cluster; without CONTEXT they run on an embedded stack that they start and stop themselves, as part of
`make test`. The tests look at what the cluster has, skip what it cannot do, and say why. They work in namespaces of
their own and delete these, also after Ctrl-C and SIGTERM. Guests need 128 MiB; at most three run at a time.
"""
