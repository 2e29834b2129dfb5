"""Which disks of VMs were created from an older template.

KubeVirt creates a DataVolume once. A later change of `dataVolumeTemplates`, such as another image, reaches the VM's
spec, but no disk that exists. An annotation of each VM therefore records the hashes of the entries that its disks were
created from: `NAME=HASH,...`, with the names of the pool's template.

The disk of entry `root` is called `root-3`, with the VM's ordinal. A disk that replaces it is called `root-HASH-3`, so
that both exist at the same time.
"""

import hashlib
import re
from collections.abc import Container, Iterable, Mapping

from controllers.pool.revision_content import DiskTemplates
from controllers.shared.names import name_of, parent_and_ordinal
from controllers.shared.vm import VM

_HASH = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
"""what a label may contain, because retained disks have their hash as a label; our hashes are hexadecimal"""
_NAME_HASH_CHARACTERS = 10
_REPLACEMENT = re.compile(rf"(.+)-[0-9a-f]{{{_NAME_HASH_CHARACTERS}}}")


def outdated(created: Mapping[str, str], wanted: DiskTemplates) -> tuple[str, ...]:
    """Names of the entries that have changed since the VM's disks were created. A disk that the VM does not have yet is
    created from the new entry."""
    return tuple(name for name, found in wanted if not same_origin(created.get(name, found), found))


def same_origin(created: str, wanted: str) -> bool:
    """Whether two hashes stand for the same entry, and for the same source of a tracked DataSource if both know it."""
    entry, _, source = created.partition(".")
    wanted_entry, _, wanted_source = wanted.partition(".")
    return entry == wanted_entry and (not source or not wanted_source or source == wanted_source)


def carried_over(created: Mapping[str, str], wanted: DiskTemplates) -> str:
    """The annotation of a VM that gets the template: its disks keep their hashes, and new disks get the template's. The
    source of a disk that is tracked for the first time is unknown, and counts as the present one."""
    return format_hashes(tuple((name, _carried_over(created.get(name, found), found)) for name, found in wanted))


def _carried_over(created: str, wanted: str) -> str:
    return wanted if "." not in created and same_origin(created, wanted) else created


def format_hashes(hashes: DiskTemplates) -> str:
    return ",".join(f"{name}={found}" for name, found in hashes)


def parse_hashes(text: str) -> dict[str, str]:
    """Parses the annotation. Entries that a user has damaged are omitted, and count as up to date."""
    return {name: found for name, found in parse_replaced(text).items() if found}


def parse_replaced(text: str) -> dict[str, str]:
    """Parses the annotation with replaced disks and the hashes of their entries. A disk whose hash a user has damaged
    is still a replaced disk; its hash is then empty."""
    pairs = (each.strip().partition("=") for each in text.split(","))
    return {name: found if _HASH.fullmatch(found) else "" for name, _, found in pairs if name}


def uses_replaced_disk(vm: VM) -> bool:
    """Whether the VMI still uses a disk that an update has replaced in the VM."""
    if not vm.replaced_disks or vm.vmi is None:
        return False
    return not parse_replaced(vm.replaced_disks).keys().isdisjoint(vm.vmi.disks)


def replacement_name(entry: str, ordinal: int, *identity: str) -> str:
    """The name of a disk that replaces one of this entry. Different identities give different names."""
    digest = hashlib.sha256(" ".join(identity).encode()).hexdigest()[:_NAME_HASH_CHARACTERS]
    return name_of(f"{entry}-{digest}", ordinal)


def entry_of(disk: str, entries: Container[str]) -> str:
    """The entry that a disk belongs to by its name, or ""."""
    parent, ordinal = parent_and_ordinal(disk)
    if ordinal is None or parent in entries:
        return parent if ordinal is not None else ""
    match = _REPLACEMENT.fullmatch(parent)
    return match[1] if match and match[1] in entries else ""


def disks_by_entry(disks: Iterable[str], ordinal: int | None, entries: Container[str]) -> dict[str, str]:
    """The disk of each entry, for the VM with this ordinal. Disks with other names are omitted."""
    found = ((entry_of(disk, entries), disk) for disk in disks if parent_and_ordinal(disk)[1] == ordinal)
    return {entry: disk for entry, disk in found if entry}
