"""The Secrets that the controllers create for one VM each."""

from base64 import b64encode
from collections.abc import Mapping

from controllers.warmpool.warm_vm import VM_KIND, Owner, WarmVM
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta


def secret_of(vm: WarmVM, name: str, kind: str = "Opaque", content: Mapping[str, bytes] | None = None) -> Json:
    """A Secret of a VM; `kind` is its type. The VM owns the Secret, so the garbage collector deletes it with the VM."""
    document: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": vm.namespace,
            "name": name,
            "labels": {meta.MANAGED_BY: meta.POOLHOUSE},
            "ownerReferences": [Owner(VM_KIND, vm.name, vm.uid, "kubevirt.io/v1").json()],
        },
        "type": kind,
    }
    if content is not None:
        document["data"] = {key: b64encode(value).decode() for key, value in content.items()}
    return document
