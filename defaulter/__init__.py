"""Sets the hardware defaults of a VM with libvirt, before the VM exists.

Begin with `defaulting.set_defaults`: it fills every field of a document that the guest can see.

| module | content |
| --- | --- |
| `fields` | the table that maps XML fields to the VMI spec |
| `kubevirt_defaults`, `libvirt_defaults`, `libvirt_cache` | the rules of KubeVirt, and the choices of libvirt |
| `pci_addresses` | the order in which virt-launcher lets libvirt assign addresses |
| `driver`, `worker`, `worker_pool` | libvirt, in worker processes that may be killed at any time |
| `hook` | restores recorded hardware when KubeVirt starts the VM |
| `known_shapes` | answers that a client gives again without a call |
| `messages`, `client` | requests and responses, and who sends them |
| `contract` | the only module that other packages import |

The service has no Kubernetes client and stores nothing. The PVCs, Secrets and networks of a spec need not exist.
"""
