"""Holds VMs for lifecycle hooks before the pool deletes or restarts them.

The VM's annotations are the only record of a hold: when it began, and which hooks have not ended. A restart of the
controllers therefore neither forgets nor repeats it. The owner of a hook ends it by removing the annotation
`hook.poolhouse.dev/NAME`. After the last hook has ended, the next plan deletes or restarts the VM.

Hooks are the last gate. A VM that is held stays the choice of scale-in, healing or update, and counts as unavailable in
their budgets.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from controllers.pool.actions import Action, Hold
from controllers.pool.gates.disruptions import Disruption
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import join_names
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.timestamps import format_time, known_time
from poolhouse.api.kinds.pool_lifecycle import LifecycleHook

NAME, TEXT = "LifecycleHooks", "The VM waits for its lifecycle hooks."
"""of this gate, for users"""
ABANDON = "Abandon"


@dataclass(frozen=True)
class HookState:
    """A hook of a held VM."""

    name: str
    ends_at: datetime
    abandoned: bool
    """whether the hook has ended with Abandon, so that the pool does not wait for other hooks"""
    timed_out: bool

    @property
    def pending(self) -> bool:
        return not (self.abandoned or self.timed_out)


def after_hooks(snapshot: PoolSnapshot, stop: Disruption, action: Action, now: datetime) -> Action | str:
    """The action of the disruption, once the VM's hooks have ended. Its reason names those that have not ended by
    themselves. Before that, the Hold of the VM, or what the VM waits for."""
    vm = stop.vm
    wanted = [hook for hook in snapshot.pool.spec.lifecycle_hooks if hook.transition == stop.transition]
    if vm.hold is None or not vm.held or vm.hold.transition != stop.transition:
        # Before the restore of a VM without a VMI, there is nothing to stop.
        stops = vm.vmi is not None or stop.transition == "Terminating"
        return _hold(vm, wanted, action.reason, now) if wanted and stops else action
    if wanted and (pending := pending_hooks(snapshot, vm, now)):
        names = join_names(f"{hook.name} (until {format_time(hook.ends_at)})" for hook in pending)
        return f"lifecycle hooks hold it: {names}"
    ended = (hook for hook in states(snapshot, vm, now) if not hook.pending)
    early = [f"{hook.name} {'timed out' if hook.timed_out else 'was abandoned'}" for hook in ended]
    return action.because(f"{action.reason}; lifecycle hook {', '.join(early)}") if early else action


def seconds_until_timeout(snapshot: PoolSnapshot, now: datetime) -> float | None:
    """Seconds until the next hook times out. None without a held VM."""
    ends = (hook.ends_at for vm in held(snapshot) for hook in pending_hooks(snapshot, vm, now))
    return min(((end - now).total_seconds() for end in ends), default=None)


def held(snapshot: PoolSnapshot) -> list[VM]:
    return [vm for vm in snapshot.active if vm.held]


def pending_hooks(snapshot: PoolSnapshot, vm: VM, now: datetime) -> list[HookState]:
    """The hooks that the VM waits for."""
    known = states(snapshot, vm, now)
    return [] if any(hook.abandoned for hook in known) else [hook for hook in known if hook.pending]


def states(snapshot: PoolSnapshot, vm: VM, now: datetime) -> list[HookState]:
    """The hooks of the VM's annotations that the pool has."""
    known, hold = {hook.name: hook for hook in snapshot.pool.spec.lifecycle_hooks}, vm.hold
    if hold is None:
        return []
    return [_state(known[name], hold.since, value, now) for name, value in hold.hooks if name in known]


def _timeout(hook: LifecycleHook, since: datetime) -> datetime:
    return since + timedelta(seconds=hook.timeout_seconds)


def _state(hook: LifecycleHook, since_text: str, value: str, now: datetime) -> HookState:
    # Users may write any text. A hold with a damaged time must still end.
    since = known_time(since_text)
    latest = _timeout(hook, since) if since is not None else now
    end = min(known_time(value) or latest, latest)
    timed_out = value != ABANDON and now >= end
    abandoned = value == ABANDON or (timed_out and hook.default_result == ABANDON)
    return HookState(hook.name, end, abandoned, timed_out)


def _hold(vm: VM, hooks: Iterable[LifecycleHook], reason: str, now: datetime) -> Hold:
    ends = tuple((hook.name, format_time(_timeout(hook, now))) for hook in hooks)
    former = tuple(name for name, _ in vm.hold.hooks) if vm.hold is not None else ()
    transition = next(hook.transition for hook in hooks)
    vmi_uid = vm.vmi.uid if vm.vmi is not None else ""
    reason = f"{reason}; it waits for {join_names(name for name, _ in ends)}"
    since, spares = format_time(now), vm.may_become_available
    return Hold(vm.name, vm.uid, vm.resource_version, transition, vmi_uid, since, ends, former, reason, spares)
