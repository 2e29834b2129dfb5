"""Public keys of claimants, handed over to VMs that have booted already.

KubeVirt gives a running VM no Secret that it did not have; but of one that it had, the guest's agent is told whatever
becomes of it. So a template may ask for a Secret for each of its VMs, by the name `meta.CLAIM_KEY`. It is empty while
the VM waits, and gets the claimant's keys with the hand-over.

Only what is a public key is copied. Who may make a claim need not be allowed to read the namespace's Secrets, and must
not find them in the guest's list of keys.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from apimachinery.unstructured import at, entries
from controllers.warmpool.warm_vm import VM_KIND, WarmVM
from kinds import meta
from runtime.resource import Resource

Json = dict[str, Any]

SECRETS = Resource("", "v1", "secrets", "Secret")

_KEY = re.compile(r"(ssh-|ecdsa-|sk-)[A-Za-z0-9@.-]+ [A-Za-z0-9+/]+=*( [^\r\n]*)?")


def wants_key(template: Json) -> bool:
    """Whether each VM of the template gets a Secret of its own."""
    return any(
        _named(each) == meta.CLAIM_KEY for _, each in entries(template, "spec", "template", "spec", _CREDENTIALS)
    )


def own_key(instance: Json, vm: str) -> None:
    """Puts the VM's own Secret in the place of the template's."""
    for _, each in entries(instance, _CREDENTIALS):
        if _named(each) == meta.CLAIM_KEY:
            each["sshPublicKey"]["source"]["secret"]["secretName"] = secret_name(vm)


def secret_name(vm: str) -> str:
    """Ends as the VM's name does. Short, as KubeVirt makes the name of a volume of it."""
    return f"{meta.CLAIM_KEY}-{vm.rpartition('-')[2]}"


def secret(m: WarmVM) -> Json:
    """Empty, and gone with its VM."""
    owner = {"apiVersion": "kubevirt.io/v1", "kind": VM_KIND, "name": m.name, "uid": m.uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": m.namespace,
            "name": secret_name(m.name),
            "labels": {meta.MANAGED_BY: meta.POOLHOUSE},
            "ownerReferences": [owner],
        },
        "type": "Opaque",
    }


def is_of(document: Json, m: WarmVM) -> bool:
    return any(each.get("uid") == m.uid for each in document["metadata"].get("ownerReferences") or ())


def public_keys(data: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Of a Secret's data: entries that are nothing but public keys, and the names of all others."""
    kept = {name: value for name, value in data.items() if _public(value)}
    return kept, sorted(data.keys() - kept.keys())


def _public(value: str) -> bool:
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and all(_KEY.fullmatch(line) for line in lines)


def _named(credential: Json) -> object:
    return at(credential, "sshPublicKey", "source", "secret", "secretName")


_CREDENTIALS = "accessCredentials"
