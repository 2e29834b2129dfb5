"""Replaces VMs that fail, with their disks, and stops if the cause is likely elsewhere.

The pool's status has the attempts, the pauses and the circuit breaker. The controller writes the status before it
deletes a VM. A restart of the controller can therefore only delay healing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial

from controllers.pool.actions import Action, Heal
from controllers.pool.failures import failing_vms, reason_to_replace, status_deadlines
from controllers.pool.gates.disruptions import Disruption
from controllers.pool.gates.windows import windows
from controllers.pool.reasons import PoolReason
from controllers.pool.replacement import retain
from controllers.pool.restores import awaits_restore
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.selection import STUCK
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.shared.conditions import MAX_NAMES, condition
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import format_time, known_time, parse_time, seconds_until_next
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.pool import MAX_HEALED_VMS, Breaker, HealedVM, Healing

FIRST_PAUSE = timedelta(minutes=1)
"""Pause after the replacement of a VM. The pause doubles with each attempt."""
MAX_PAUSE = timedelta(hours=1)
BREAKER_PAUSE = timedelta(minutes=5)
"""How long the open circuit breaker stops healing before one VM is replaced."""


def heal(snapshot: PoolSnapshot, now: datetime) -> Iterator[Disruption]:
    """Replaces failing VMs, the worst first."""
    for vm, reason in failing(snapshot, now):
        yield Disruption(vm, "Healing", partial(_replacement, vm, reason))


def _replacement(vm: VM, reason: str) -> Action:
    if vm.replaced_disks:
        # Its replaced disks would be deleted with it.
        return retain(vm, "the VM is about to be replaced")
    return Heal(vm.name, vm.uid, reason, failed_starts=vm.start_failures > 0)


def pause_refusal(snapshot: PoolSnapshot, vm: VM, now: datetime) -> str:
    """Why a VM that was replaced before is not replaced again now, or ""."""
    known = (snapshot.pool.status.healing or Healing()).vms
    found = next((each for each in known if each.name == vm.name), None)
    if found is None or now >= (end := _pause_end(found, now)):
        return ""
    return f"it was replaced {count_noun(found.attempts, 'time')}, and is not replaced again before {format_time(end)}"


def breaker_refusal(snapshot: PoolSnapshot, now: datetime) -> str:
    """Why no VM is replaced now, or "". After its pause the open circuit breaker lets one VM through."""
    breaker = circuit_breaker(snapshot, now)
    return breaker.message or "" if breaker is not None and breaker.open and not _may_probe(snapshot, now) else ""


def budget_refusal(snapshot: PoolSnapshot, replaced: int, now: datetime) -> str:
    """Why no further VM is replaced than the `replaced` ones of this plan, or ""."""
    breaker, progress = circuit_breaker(snapshot, now), _in_progress(snapshot, now)
    if breaker is not None and breaker.open:
        return f"one VM is replaced to try whether it helps: {breaker.message}" if replaced else ""
    if replaced + progress < snapshot.pool.max_unavailable:
        return ""
    in_progress = count_noun(replaced + progress, "VM", "is", "are")
    return f"{in_progress} in progress, maxUnavailable is {snapshot.pool.max_unavailable}"


@once
def failing(snapshot: PoolSnapshot, now: datetime) -> list[tuple[VM, str]]:
    """VMs that healing should replace, with the reasons, the worst first."""
    known = failing_vms(snapshot, now)
    reasons = ((vm, reason_to_replace(snapshot, vm, known.get(vm.name), now)) for vm in snapshot.active)

    def is_spared(vm: VM) -> bool:
        """Whether the VM is ready again while healing must not replace it."""
        return vm.ready and (_is_open(snapshot) or _is_kept(snapshot, vm, now))

    def rank(found: tuple[VM, str]) -> tuple[bool, bool, int, str]:
        vm, _ = found
        failed_runs = known[vm.name].failed_runs if vm.name in known else 0
        # A VM that is held before its deletion stays the first choice, so that the choice does not change.
        return vm.uid in snapshot.refused, not vm.terminating, -max(vm.start_failures, failed_runs), vm.name

    return sorted(((vm, reason) for vm, reason in reasons if reason and not is_spared(vm)), key=rank)


def healing_status(snapshot: PoolSnapshot, healed: tuple[str, ...], now: datetime) -> Healing | None:
    """The new status.healing, which includes the VMs in `healed`. None if no VM has ever failed."""
    if snapshot.pool.spec.autohealing is None:
        return None
    before = snapshot.pool.status.healing or Healing()
    known = {each.name: each for each in before.vms}
    recovered = {vm.name for vm in snapshot.active if vm.ready}
    if not snapshot.missing:  # a missing VM may still be created again
        recovered |= known.keys() - {vm.name for vm in snapshot.vms}
    # A VM is removed from the status once it has run for as long as its pause, or has left the pool.
    for name in [name for name, each in known.items() if name in recovered and now >= _pause_end(each, now)]:
        del known[name]
    for name in healed:
        attempts = known[name].attempts + 1 if name in known else 1
        pause = min(FIRST_PAUSE * 2 ** min(attempts - 1, 30), MAX_PAUSE)
        known[name] = HealedVM(
            name=name, attempts=attempts, healed_at=format_time(now), not_before=format_time(now + pause)
        )
    found = Healing(
        failing=len(failing(snapshot, now)),
        replaced=before.replaced + len(healed),
        vms=_newest(known.values()),
        # A VM that is replaced begins without failures.
        failures=tuple(each for each in failing_vms(snapshot, now).values() if each.name not in healed),
        breaker=_after_probe(circuit_breaker(snapshot, now), healed, now),
    )
    return found if found != Healing() or snapshot.pool.status.healing is not None else None


@once
def circuit_breaker(snapshot: PoolSnapshot, now: datetime) -> Breaker | None:
    """The breaker opens when more VMs fail than may be unavailable, because the cause is then likely outside the VMs.

    The breaker closes when no VM fails, or when few VMs fail after its pause. During the pause it stays open, because
    VMs that recover slowly must not be replaced."""
    found = failing(snapshot, now)
    before, was_open = (snapshot.pool.status.healing or Healing()).breaker, _is_open(snapshot)
    limit = snapshot.pool.max_unavailable
    if not found or not (len(found) > max(1, limit) or (was_open and not _may_probe(snapshot, now))):
        return None
    reason, count = Counter(vm.printable_status or "Failing" for vm, _ in found).most_common(1)[0]
    message = (
        f"{count_noun(len(found), 'VM', 'fails', 'fail')}, {count} of them with {reason}; maxUnavailable is {limit}"
    )
    if before is not None and was_open:
        return before.model_copy(update={"reason": reason, "message": message})
    since, until = format_time(now), format_time(now + BREAKER_PAUSE)
    return Breaker(open=True, since=since, until=until, reason=reason, message=message)


def seconds_until_healing(snapshot: PoolSnapshot, now: datetime) -> float | None:
    """Seconds until the next pause ends, of a VM or of the circuit breaker. None without a pause."""
    healing = snapshot.pool.status.healing
    if healing is None or snapshot.pool.spec.autohealing is None:
        return None
    times = [*(_pause_end(each, now) for each in healing.vms), *status_deadlines(snapshot, now)]
    if healing.breaker is not None and healing.breaker.until:
        times.append(parse_time(healing.breaker.until))
    return seconds_until_next(times, now)


def was_healed(snapshot: PoolSnapshot, name: str) -> bool:
    """Whether healing replaced the VM. Its old disks must be gone before a VM of this name is created."""
    healing = snapshot.pool.status.healing
    return healing is not None and any(each.name == name for each in healing.vms)


@once
def _in_progress(snapshot: PoolSnapshot, now: datetime) -> int:
    """The number of VMs that are missing, or unavailable but likely to become available."""
    failed = {vm.uid for vm, _ in failing(snapshot, now)}
    # A VM that waits for something outside it may wait for ever, so it does not hold up the healing of others.
    return snapshot.missing + sum(
        vm.should_run and not vm.available and vm.uid not in failed and vm.printable_status not in STUCK
        for vm in snapshot.active
    )


def disk_at_risk(snapshot: PoolSnapshot, vm: VM) -> str:
    """Why this VM must not be replaced with its disks, or ""."""
    if awaits_restore(snapshot, vm):
        return "its disks are restored from a snapshot, and would be deleted with it"
    if disk := snapshot.shared_disks.get(vm.name):
        return f"its disk would be deleted with it: {disk}"
    # The controller could delete the VM, but not create it again.
    return snapshot.disk_conflict.message if snapshot.disk_conflict else ""


def waits_for_window(snapshot: PoolSnapshot) -> bool:
    healing = snapshot.pool.spec.autohealing
    return healing is not None and healing.only_in_maintenance_windows


def _is_kept(snapshot: PoolSnapshot, vm: VM, now: datetime) -> bool:
    """Whether the VM is not replaced until a user removes an obstacle, or a maintenance window opens."""
    closed = waits_for_window(snapshot) and windows(snapshot, now).refusal
    return bool(disk_at_risk(snapshot, vm) or closed)


def _is_open(snapshot: PoolSnapshot) -> bool:
    """Whether the status has an open circuit breaker."""
    before = (snapshot.pool.status.healing or Healing()).breaker
    return before is not None and before.open


def _may_probe(snapshot: PoolSnapshot, now: datetime) -> bool:
    """Whether the pause of the open breaker has ended, so that one VM may be replaced."""
    before = (snapshot.pool.status.healing or Healing()).breaker
    return (
        before is not None
        and before.until is not None
        and (now >= parse_time(before.until) or _is_ahead(before.since, now))
    )


def _newest(healed: Iterable[HealedVM]) -> tuple[HealedVM, ...]:
    """The newest VMs up to the limit of the status, sorted by name."""
    newest = sorted(healed, key=lambda each: (each.healed_at or "", each.name))[-MAX_HEALED_VMS:]
    return tuple(sorted(newest, key=lambda each: each.name))


def _after_probe(breaker: Breaker | None, healed: tuple[str, ...], now: datetime) -> Breaker | None:
    """The breaker after a replacement while it is open, with a doubled pause."""
    if breaker is None or not breaker.open or not healed or not breaker.since:
        return breaker
    stopped = now - parse_time(breaker.since)
    until = now + min(max(BREAKER_PAUSE, stopped), MAX_PAUSE)
    return breaker.model_copy(update={"until": format_time(until)})


def _pause_end(each: HealedVM, now: datetime) -> datetime:
    return parse_time(each.not_before) if each.not_before and not _is_ahead(each.healed_at, now) else now


def _is_ahead(text: str | None, now: datetime) -> bool:
    """Whether the time is so far in the future that the clock must have been set back since. A pause that is counted
    from such a time would last too long."""
    time = known_time(text or "")
    return time is not None and time > now + FIRST_PAUSE


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    found = healing_status(snapshot, plan.healed, now)
    if found is None:
        return
    if found.breaker is not None and found.breaker.open:
        yield condition("Healing", False, PoolReason.TOO_MANY_FAILING, found.breaker.message)
    elif found.vms:
        names = ", ".join(f"{each.name} ({each.attempts})" for each in found.vms[:MAX_NAMES])
        message = f"{count_noun(len(found.vms), 'VM', 'was', 'were')} replaced, with the number of attempts: {names}"
        yield condition("Healing", True, PoolReason.VMS_REPLACED, message)
    else:
        yield condition("Healing", False, PoolReason.NO_FAILING_VMS)


HEALING = Rule(
    heal,
    context="it is not replaced, though it fails: ",
    transition="Terminating",
    # The owners of its hooks know that it fails, and must not be asked twice.
    keeps_holds=True,
    again=(seconds_until_healing,),
    conditions=_conditions,
)
