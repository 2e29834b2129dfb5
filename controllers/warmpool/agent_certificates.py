"""Certificates that Poolhouse issues to the agents in warm VMs, and the disk that brings them into the guest.

Each VM has a Secret of its own with a server certificate. The certificate names the UID of the VM, so that no VM can
answer in the place of another. The authority of the certificate also signs those with which the controllers call the
agent, so that an agent can refuse everybody else. No other server of the cluster trusts this authority.

KubeVirt writes the Secret to a disk when the VM starts: a guest that runs does not see a renewed certificate. A VM
therefore keeps its certificate, which is valid as long as the authority. A new authority signs for new VMs only, four
years before the end of the previous authority.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from controllers.warmpool.agent import Certificates
from controllers.warmpool.vm_secret import secret_of
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_agent import AGENT_DISK
from poolhouse.service.certificates import (
    MAX_BACKDATE,
    KeyPair,
    PublishedCA,
    ca_renewal_due,
    new_client_certificate,
    new_server_certificate,
)

AUTHORITY_LIFE = timedelta(days=3650)
CLIENT_LIFE = timedelta(days=1)
CA, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"


def secret_name(vm: str) -> str:
    return f"{vm}-agent"


def server_name(vm: WarmVM) -> str:
    """The DNS name in the certificate of a VM. No name server knows it."""
    return f"{vm.uid}.vm.{meta.DOMAIN}"


def add_disk(vmi_spec: Json, vm: str) -> None:
    """Adds the disk with the VM's certificate. The guest finds it by its label, or by its serial number."""
    disks = vmi_spec.setdefault("domain", {}).setdefault("devices", {}).setdefault("disks", [])
    first = next((each.get("disk") or {} for each in disks), {"bus": "virtio"})
    # The guest has a driver for the bus of its first disk. Without a bus, defaults decide as for that disk.
    bus = {key: value for key, value in first.items() if key == "bus"}
    disks.append({"name": AGENT_DISK, "serial": AGENT_DISK, "disk": {**bus, "readonly": True}})
    source = {"secretName": secret_name(vm), "volumeLabel": AGENT_DISK}
    vmi_spec.setdefault("volumes", []).append({"name": AGENT_DISK, "secret": source})


def secret(vm: WarmVM, authority: KeyPair, now: datetime) -> Json:
    """The Secret of a VM, with its certificate."""
    name = server_name(vm)
    issued = new_server_certificate(authority, name, [name], now, authority.validity.end - now)
    content = {CA: authority.certificate, CERTIFICATE: issued.certificate, KEY: issued.key}
    return secret_of(vm, secret_name(vm.name), "kubernetes.io/tls", content)


def client_certificates(vm: WarmVM, authority: KeyPair, now: datetime) -> Certificates:
    """What verifies the agent of a VM, and proves to the agent that a controller calls."""
    own = new_client_certificate(authority, meta.CONTROLLERS, now, CLIENT_LIFE)
    return Certificates(authority.certificate, server_name(vm), own.certificate, own.key)


def authority_of(authorities: Sequence[KeyPair], created: datetime) -> KeyPair:
    """The authority of a VM that was created at this time: the newest one of then. The newest authority is the last."""
    of_then = [each for each in authorities if each.validity.start + MAX_BACKDATE <= created]
    return of_then[-1] if of_then else authorities[0]


def renewal_due(authorities: Sequence[KeyPair], now: datetime) -> bool:
    return ca_renewal_due([PublishedCA(each) for each in authorities], now)
