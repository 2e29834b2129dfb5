"""VMs that keep failing to start: which are replaced, disks and all, and when that would do more harm than good.

What is remembered (how often a VM was replaced, until when it is left alone, whether healing is stopped) is kept in the
pool's status, which is written before a VM is deleted: a controller that is killed in between errs towards patience.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice

from controllers.pool.actions import Action, Heal
from controllers.pool.machine import VM
from controllers.pool.rollout import DisruptionBudget, Waiting
from controllers.pool.snapshot import PoolSnapshot
from kinds.pool import MAX_HEALED_VMS, Breaker, HealedVM, Healing

PAUSE = timedelta(minutes=1)
"""How long a VM that was replaced is left alone; twice as long each time after."""
LONGEST = timedelta(hours=1)
PROBE = timedelta(minutes=5)
"""How long healing is stopped before one VM is tried."""


def heal(state: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Only VMs that are down anyway are taken, and no more at a time than may be on their way."""
    breaker = circuit_breaker(state, now)
    if breaker is not None and breaker.open and not _probes(state, now):
        return
    room = DisruptionBudget.of(state)
    free = 1 if breaker is not None and breaker.open else max(0, room.most - _coming_back(state))
    may = (m for m in failing(state) if not _left_alone(state, m, now) and not _held(state, m))
    for m in islice(may, free):
        yield Heal(m.name, m.uid, f"{m.failures} starts in a row failed ({m.state or 'no state'})")


def held_back(state: PoolSnapshot) -> Iterator[Waiting]:
    """VMs that fail and are not replaced, for a reason that somebody has to do away with."""
    for m in failing(state):
        if reason := _held(state, m):
            yield Waiting(m.name, f"it is not replaced, though it fails to start: {reason}")


def failing(state: PoolSnapshot) -> list[VM]:
    healing = state.pool.spec.autohealing
    if healing is None:
        return []
    limit = healing.startup_failure_threshold
    found = [m for m in state.alive if m.meant_to_run and not m.ready and m.failures >= limit]
    return sorted(found, key=lambda m: (m.uid in state.unwanted, -m.failures, m.name))


def healing_status(state: PoolSnapshot, healed: tuple[str, ...], now: datetime) -> Healing | None:
    """What the status keeps, with these VMs about to be replaced; None where nothing is worth a word."""
    if state.pool.spec.autohealing is None:
        return None
    before = state.pool.status.healing or Healing()
    known = {each.name: each for each in before.machines}
    over = {m.name for m in state.alive if m.ready}
    if not state.missing:  # else it may be the next to come back
        over |= known.keys() - {m.name for m in state.machines}
    for name in [name for name, each in known.items() if name in over and now >= _not_before(each, now)]:
        del known[name]  # it has run for as long as it would have been left alone, or has left the pool
    for name in healed:
        attempts = known[name].attempts + 1 if name in known else 1
        pause = min(PAUSE * 2 ** min(attempts - 1, 30), LONGEST)
        known[name] = HealedVM(name=name, attempts=attempts, healed_at=_text(now), not_before=_text(now + pause))
    found = Healing(
        failing=len(failing(state)),
        replaced=before.replaced + len(healed),
        machines=_newest(known.values()),
        breaker=_tried(circuit_breaker(state, now), healed, now),
    )
    return found if found != Healing() or state.pool.status.healing is not None else None


def circuit_breaker(state: PoolSnapshot, now: datetime) -> Breaker | None:
    """Open while so many fail that it can't be the VMs: more than may be down at a time.

    Once it is open it stays so until none fails, or until its time is up and few do: VMs recover one by one, and the
    last of them must not be replaced for having been slow.
    """
    found = failing(state)
    before = (state.pool.status.healing or Healing()).breaker
    was_open = before is not None and before.open
    many = len(found) > max(1, state.pool.max_unavailable)
    if not found or not (many or (was_open and not _probes(state, now))):
        return None
    reason, count = Counter(m.state or "Failing" for m in found).most_common(1)[0]
    message = f"{len(found)} VMs fail to start, {count} of them with {reason}; {state.pool.max_unavailable} may be down"
    if before is not None and was_open:
        return before.model_copy(update={"reason": reason, "message": message})
    return Breaker(open=True, since=_text(now), until=_text(now + PROBE), reason=reason, message=message)


def seconds_until_healing(state: PoolSnapshot, now: datetime) -> float | None:
    """When time alone will let a VM be replaced, or something be forgotten."""
    healing = state.pool.status.healing
    if healing is None or state.pool.spec.autohealing is None:
        return None
    times = [_not_before(each, now) for each in healing.machines]
    if healing.breaker is not None and healing.breaker.until:
        times.append(datetime.fromisoformat(healing.breaker.until))
    return min((left for time in times if (left := (time - now).total_seconds()) > 0), default=None)


def was_healed(state: PoolSnapshot, name: str) -> bool:
    """It is being replaced: the disks that it had must be gone before it is made again."""
    healing = state.pool.status.healing
    return healing is not None and any(each.name == name for each in healing.machines)


def _coming_back(state: PoolSnapshot) -> int:
    """VMs that are on their way already: missing, or not available for other reasons than that they keep failing."""
    bad = {m.uid for m in failing(state)}
    down = [m for m in state.alive if m.meant_to_run and not m.available and m.uid not in bad]
    return state.missing + len(down)


def _held(state: PoolSnapshot, m: VM) -> str:
    """Why to replace this VM would lose more than it mends, or nothing."""
    if disk := state.overlapping.get(m.name):
        return f"with it would go its disk {disk}"
    # It could be deleted, but not made again.
    return state.shared.message if state.shared else ""


def _left_alone(state: PoolSnapshot, m: VM, now: datetime) -> bool:
    known = (state.pool.status.healing or Healing()).machines
    return any(each.name == m.name and now < _not_before(each, now) for each in known)


def _probes(state: PoolSnapshot, now: datetime) -> bool:
    """It is stopped since long enough, and as the status says so: then one VM is tried."""
    before = (state.pool.status.healing or Healing()).breaker
    return before is not None and before.until is not None and now >= datetime.fromisoformat(before.until)


def _newest(healed: Iterable[HealedVM]) -> tuple[HealedVM, ...]:
    """As many as there is room for in a status, by name."""
    newest = sorted(healed, key=lambda each: (each.healed_at or "", each.name))[-MAX_HEALED_VMS:]
    return tuple(sorted(newest, key=lambda each: each.name))


def _tried(breaker: Breaker | None, healed: tuple[str, ...], now: datetime) -> Breaker | None:
    """After a try, the next one is twice as far away."""
    if breaker is None or not breaker.open or not healed or not breaker.since:
        return breaker
    stopped = now - datetime.fromisoformat(breaker.since)
    return breaker.model_copy(update={"until": _text(now + min(max(PROBE, stopped), LONGEST))})


def _not_before(each: HealedVM, now: datetime) -> datetime:
    return datetime.fromisoformat(each.not_before) if each.not_before else now


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
