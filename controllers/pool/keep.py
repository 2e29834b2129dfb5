"""Disks that outlive their VM: when they are released, given back, or not kept after all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.actions import Action, ReleaseDisks, RemoveFinalizer, ReturnDisk
from controllers.pool.machine import VM
from controllers.pool.snapshot import PoolSnapshot


def release_disks(state: PoolSnapshot) -> Iterator[Action]:
    for m in state.waiting:
        yield release(m, "its disks outlive it")


def release(m: VM, reason: str) -> ReleaseDisks:
    return ReleaseDisks(m.name, m.uid, m.disks, m.kept_by or m.owner, reason)


def return_disks(state: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """The VM is back: its disks are its own again, and go with it when it is deleted for good."""
    back = {m.name: m for m in state.alive}
    for disk in state.kept:
        m = back.get(disk.kept_for)
        if m is not None and disk.name in m.disks:
            yield ReturnDisk(m.name, m.uid, disk.name, f"{m.name} is back")


def cancel_deletions(state: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """We were stopped between marking a VM and deleting it, and by now nobody wants it to go."""
    if len(state.alive) > state.pool.spec.replicas:
        return
    for m in state.alive:
        if m.keeping:
            yield RemoveFinalizer(m.name, m.uid, m.resource_version, "it stays")
