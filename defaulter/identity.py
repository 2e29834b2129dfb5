"""MAC addresses, firmware UUIDs and serials that follow from who a VM is.

They are a function of a seed (one a cluster), namespace, name and device, so that every replica gives the same answer,
a retried or dry run one too, and a VM that was missed at CREATE gets at its start what it would have had. A VM that is
made anew under its old name is the same machine to its DHCP server and its licences.
"""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

_RESERVED = frozenset({0xFE})
"""libvirt keeps addresses that begin so for its own side of a tap device"""


def digest(*parts: str) -> bytes:
    """Sixteen bytes that depend on each part and on where one ends and the next begins."""
    hashed = sha256()
    for part in parts:
        piece = part.encode("utf-8", "surrogatepass")
        hashed.update(len(piece).to_bytes(8, "big") + piece)
    return hashed.digest()[:16]


def firmware_id(seed: str, namespace: str, name: str, what: str) -> str:
    """A UUID of version 8, whose bits are the application's own."""
    raw = bytearray(digest(seed, namespace, name, what))
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(raw)))


def mac_address(seed: str, namespace: str, name: str, device: str, taken: frozenset[str] = frozenset()) -> str:
    """A locally administered unicast address: 46 bits, for the 24 behind QEMU's 52:54:00 meet at a few thousand VMs."""
    attempt = 0
    while True:
        raw = bytearray(digest(seed, namespace, name, device, f"mac {attempt}")[:6])
        raw[0] = raw[0] & 0xFC | 0x02
        address = ":".join(f"{byte:02x}" for byte in raw)
        if raw[0] not in _RESERVED and address not in taken:
            return address
        attempt += 1
