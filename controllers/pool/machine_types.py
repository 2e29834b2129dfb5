"""The machine type of the VMs that a pool creates from one revision.

The template of a pool often has an alias such as `q35`, or no machine type. Admission replaces the alias by the newest
type that all nodes have, which changes when the nodes do. So the revision keeps the type of its first VM, and later VMs
of the revision get the same. An update leaves the type of a VM that exists, so VMs that stay decide for a new revision.
"""

from collections.abc import Mapping

from controllers.pool.revisions import Revision
from controllers.pool.selection import age_order
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.pool.surge import is_replaced
from controllers.shared.vm import VM
from defaulter.contract import is_canonical


def machine_type(snapshot: PoolSnapshot, revision: Revision) -> str:
    """The canonical type that stands for the alias in the revision's template. Empty if the template has a canonical
    type, and before the first VM has one: admission chooses it then."""
    if is_canonical(revision.machine_type):
        return ""
    return revision.pinned_machine_type or _types_of_vms(snapshot).get(revision.name, "")


@once
def _types_of_vms(snapshot: PoolSnapshot) -> Mapping[str, str]:
    """By revision: the type of the oldest VM that has the revision, or that an update to it leaves in its place."""
    found: dict[str, str] = {}
    for vm in sorted(snapshot.active, key=age_order):
        if is_canonical(vm.machine_type):
            for revision in _revisions_of(snapshot, vm):
                found.setdefault(revision.name, vm.machine_type)
    return found


def _revisions_of(snapshot: PoolSnapshot, vm: VM) -> list[Revision]:
    has, new = snapshot.revisions_by_label.get(vm.revision), snapshot.revision
    if has is None:
        return []
    # An author who changes the machine type in the template changes that of the VM.
    stays = has.machine_type == new.machine_type and not is_replaced(snapshot, vm)
    return [has, new] if stays else [has]
