"""Decides a VM's guest hardware with libvirt, before the VM exists anywhere.

Begin with `complete`: a VM's document in, the same document out with everything a guest can see made explicit. `fields`
is the table of what a VM's spec and a domain's XML have in common, `layout` is how KubeVirt asks libvirt for addresses,
`driver` is libvirt itself, alone in a worker process (`worker`) that `workers` may kill at any time.

Others import `contract` and nothing else. The service has no Kubernetes client, asks nobody for anything and keeps no
domain; whatever a spec refers to (claims, secrets, networks) does not have to exist.
"""
