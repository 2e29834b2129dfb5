"""Derives MAC addresses, firmware UUIDs and serials from the name of a VM.

The values depend on the cluster's seed, the namespace, the name and the device. Every replica of the service therefore
gives the same response, also to a retry or a dry run. A VM that is created again under its old name keeps its DHCP
lease and its licenses.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from uuid import UUID

from defaulter.codecs import normalize_address
from defaulter.json_paths import DocumentEditor
from defaulter.vm_paths import VMLocation, locate, opted_out
from poolhouse.api.apimachinery.unstructured import Json, at, entries

_RESERVED = frozenset({0xFE})
"""first bytes of the MAC addresses that libvirt gives to the host's side of tap devices"""


def digest(*parts: str) -> bytes:
    """A hash of 16 bytes. Parts of different lengths with the same joined text have different hashes."""
    hashed = sha256()
    for part in parts:
        piece = part.encode("utf-8", "surrogatepass")
        hashed.update(len(piece).to_bytes(8, "big") + piece)
    return hashed.digest()[:16]


def firmware_id(seed: str, namespace: str, name: str, part: str) -> str:
    """A UUID of version 8, the version for bits that an application chooses."""
    raw = bytearray(digest(seed, namespace, name, part))
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(raw)))


def fill_firmware_ids(editor: DocumentEditor, location: VMLocation, seed: str) -> None:
    """Fills the firmware UUID and the serial of a VM with a name."""
    for part in ("uuid", "serial"):
        value = firmware_id(seed, location.namespace, location.name, part)
        editor.fill((*location.spec, "domain", "firmware", part), value)


def with_firmware_ids(document: Json, seed: str) -> Json:
    """The VM with the firmware UUID and serial that defaulting gives it, where it has none. A client that creates VMs
    sets them before virt-api, which is called before webhooks that sort later and would set random ones."""
    location = locate(document)
    if location is None or location.is_template or not location.name or opted_out(document):
        return document
    editor = DocumentEditor(document)
    if isinstance(at(document, *location.spec), dict):
        fill_firmware_ids(editor, location, seed)
    return editor.document


def mac_address(seed: str, namespace: str, name: str, device: str, taken: frozenset[str] = frozenset()) -> str:
    """Returns a locally administered unicast address with 46 free bits. QEMU's prefix 52:54:00 leaves 24 bits, so
    addresses of a few thousand VMs would collide."""
    attempt = 0
    while True:
        raw = bytearray(digest(seed, namespace, name, device, f"mac {attempt}")[:6])
        raw[0] = raw[0] & 0xFC | 0x02
        address = ":".join(f"{byte:02x}" for byte in raw)
        if raw[0] not in _RESERVED and address not in taken:
            return address
        attempt += 1


def mac_addresses(seed: str, location: VMLocation, document: Json, indexes: Iterable[int]) -> Iterator[tuple[int, str]]:
    """The MAC addresses of the interfaces with these indexes, which have none. No interface of the VM has the same."""
    interfaces = dict(entries(document, *location.spec, "domain", "devices", "interfaces"))
    taken = {normalize_address(each.get("macAddress")) for each in interfaces.values()}
    for index in indexes:
        device = str(interfaces[index].get("name"))
        value = mac_address(seed, location.namespace, location.name, device, frozenset(taken))
        taken.add(value)
        yield index, value
