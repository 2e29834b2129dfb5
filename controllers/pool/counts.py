"""Counts the VMs of a pool. Status, conditions, metrics, the command line and the console show these numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from controllers.pool.selection import is_behind
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_of

TemplateState = Literal["new", "restart", "old"]
"""`new`: the VM has the template. `restart`: it lacks only a restart, a change of the running VM by KubeVirt, or the
restore of its disks."""


@dataclass(frozen=True)
class PoolCounts:
    """Numbers of VMs that are not being deleted, apart from `terminating` and `missing`."""

    active: int
    new: int
    restart: int
    old: int
    new_and_available: int
    available: int
    halting: int
    """VMs that should be halted and are not yet"""
    missing: int
    terminating: int

    @property
    def unavailable(self) -> int:
        return self.missing + self.active - self.available

    @property
    def with_template(self) -> str:
        return f"{count_of(self.new, self.active, 'VM', 'has', 'have')} the template"


@once
def count_vms(snapshot: PoolSnapshot) -> PoolCounts:
    states = {vm.uid: template_state(snapshot, vm) for vm in snapshot.active}

    def count(holds: Callable[[VM], bool]) -> int:
        return sum(map(holds, snapshot.active))

    return PoolCounts(
        active=len(snapshot.active),
        new=count(lambda vm: states[vm.uid] == "new"),
        restart=count(lambda vm: states[vm.uid] == "restart"),
        old=count(lambda vm: states[vm.uid] == "old"),
        new_and_available=count(lambda vm: states[vm.uid] == "new" and vm.available),
        available=count(lambda vm: vm.available),
        halting=count(lambda vm: not vm.should_run and not vm.available),
        missing=snapshot.missing,
        terminating=len(snapshot.deleting),
    )


def template_state(snapshot: PoolSnapshot, vm: VM) -> TemplateState:
    if snapshot.outdated(vm):
        return "old"
    return "restart" if is_behind(snapshot, vm) else "new"
