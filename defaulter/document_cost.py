"""Estimates what a document costs a worker, before the document is parsed."""

BASE_COST = 100
"""cost of the smallest document. libvirt takes about 10 ms for it, and 0.1 ms for each further object."""
COSTLY = 250
"""A document of this cost takes a worker about 25 ms. A VM with 16 disks and 8 NICs costs 204."""


def cost_of(body: bytes) -> int:
    """The cost of a document, from the number of its objects: each disk, volume, NIC and network has some. Braces in a
    text count too; a text that has many of them is a hardware record, which costs as much."""
    return BASE_COST + body.count(b"{")
