"""Which disks of VMs were created from an older template.

KubeVirt creates a DataVolume once. A later change of `dataVolumeTemplates`, such as another image, reaches the VM's
spec, but no disk that exists. An annotation of each VM therefore records the hashes of the entries that its disks were
created from: `NAME=HASH,...`, with the names of the pool's template.
"""

from collections.abc import Mapping

from controllers.pool.revisions import DiskTemplates


def outdated(created: Mapping[str, str], wanted: DiskTemplates) -> tuple[str, ...]:
    """Names of the entries that have changed since the VM's disks were created. A disk that the VM does not have yet is
    created from the new entry."""
    return tuple(name for name, found in wanted if created.get(name, found) != found)


def carried_over(created: Mapping[str, str], wanted: DiskTemplates) -> str:
    """The annotation of a VM that gets the template: its disks keep their hashes, and new disks get the template's."""
    return format_hashes(tuple((name, created.get(name, found)) for name, found in wanted))


def format_hashes(hashes: DiskTemplates) -> str:
    return ",".join(f"{name}={found}" for name, found in hashes)


def parse_hashes(text: str) -> dict[str, str]:
    """Parses the annotation. Entries that a user has damaged are omitted, and count as up to date."""
    pairs = (each.partition("=") for each in text.split(","))
    return {name: found for name, _, found in pairs if name and found}
