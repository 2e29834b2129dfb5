"""SSH public keys of claimants for VMs that have already booted.

KubeVirt attaches no new Secret to a running VM, but its guest agent sees changes of an attached Secret. A template may
therefore ask for one Secret for each VM by the name `meta.CLAIM_KEY`. The Secret is empty while the VM waits. The claim
controller copies the claimant's keys into the Secret when the claim gets the VM.

Only public keys are copied. A user who may create claims may lack the right to read Secrets, and must not find the
content of a Secret in the guest.
"""

import base64
import binascii
import re
from collections.abc import Mapping

from controllers.warmpool.vm_secret import secret_of
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds import meta

_ACCESS_CREDENTIALS = "accessCredentials"
_KEY = re.compile(r"(ssh-|ecdsa-|sk-)[A-Za-z0-9@.-]+ [A-Za-z0-9+/]+=*( [^\r\n]*)?")


def wants_key(template: Json) -> bool:
    """Whether the template asks for a Secret for each VM."""
    credentials = entries(template, "spec", "template", "spec", _ACCESS_CREDENTIALS)
    return any(_secret_of(each) == meta.CLAIM_KEY for _, each in credentials)


def set_secret_name(vmi_spec: Json, vm: str) -> None:
    for _, each in entries(vmi_spec, _ACCESS_CREDENTIALS):
        if _secret_of(each) == meta.CLAIM_KEY:
            each["sshPublicKey"]["source"]["secret"]["secretName"] = secret_name(vm)


def secret_name(vm: str) -> str:
    """A short name with the suffix of the VM's name, because KubeVirt derives a volume name from the Secret's name."""
    return f"{meta.CLAIM_KEY}-{vm.rpartition('-')[2]}"


def secret(vm: WarmVM) -> Json:
    """The empty Secret of a VM."""
    return secret_of(vm, secret_name(vm.name))


def is_of(document: Json, vm: WarmVM) -> bool:
    return any(each.get("uid") == vm.uid for each in document["metadata"].get("ownerReferences") or ())


def public_keys(data: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The entries that hold only public keys, and the names of all other entries of a Secret's data."""
    kept = {name: value for name, value in data.items() if _is_public(value)}
    return kept, sorted(data.keys() - kept.keys())


def _is_public(value: str) -> bool:
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and all(_KEY.fullmatch(line) for line in lines)


def _secret_of(credential: Json) -> object:
    return at(credential, "sshPublicKey", "source", "secret", "secretName")
