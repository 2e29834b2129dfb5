"""status.healing: the failing VMs, the attempts to replace them with their pauses, and the circuit breaker."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from controllers.pool.failures import failing_vms, reason_to_replace, status_deadlines
from controllers.pool.restores import awaits_restore
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.pool.windows import windows
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import format_time, known_time, parse_time, seconds_until_next
from poolhouse.api.kinds.pool import MAX_HEALED_VMS, Breaker, HealedVM, Healing

FIRST_PAUSE = timedelta(minutes=1)
"""Pause after the replacement of a VM. The pause doubles with each attempt."""
MAX_PAUSE = timedelta(hours=1)
BREAKER_PAUSE = timedelta(minutes=5)
"""How long the open circuit breaker stops healing before one VM is replaced."""


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
    for name in [name for name, each in known.items() if name in recovered and now >= pause_end(each, now)]:
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
    if not found or not (len(found) > max(1, limit) or (was_open and not may_probe(snapshot, now))):
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
    times = [*(pause_end(each, now) for each in healing.vms), *status_deadlines(snapshot, now)]
    if healing.breaker is not None and healing.breaker.until:
        times.append(parse_time(healing.breaker.until))
    return seconds_until_next(times, now)


def was_healed(snapshot: PoolSnapshot, name: str) -> bool:
    """Whether healing replaced the VM. Its old disks must be gone before a VM of this name is created."""
    healing = snapshot.pool.status.healing
    return healing is not None and any(each.name == name for each in healing.vms)


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


def may_probe(snapshot: PoolSnapshot, now: datetime) -> bool:
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
    # After the clock was set back, a time ahead would let one VM after another through without a pause.
    since = min(parse_time(breaker.since), now)
    until = now + min(max(BREAKER_PAUSE, now - since), MAX_PAUSE)
    return breaker.model_copy(update={"since": format_time(since), "until": format_time(until)})


def pause_end(each: HealedVM, now: datetime) -> datetime:
    return parse_time(each.not_before) if each.not_before and not _is_ahead(each.healed_at, now) else now


def _is_ahead(text: str | None, now: datetime) -> bool:
    """Whether the time is so far in the future that the clock must have been set back since. A pause that is counted
    from such a time would last too long."""
    time = known_time(text or "")
    return time is not None and time > now + FIRST_PAUSE
