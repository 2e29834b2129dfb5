"""What the controller knows about the demand for one pool: a bounded summary of all claims."""

import base64
import json
import math
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from controllers.warmpool.autoscaling.quantiles import DemandTable, bucket, context

HOUR, DAY = 3600.0, 86_400.0
RATE_SECONDS = 1800.0
"""Time constant of the rate of recent claims."""
NEW_BOOT_SHARE = 0.1
"""Weight of the last boot in the mean boot time."""
MAX_BOOT_SECONDS = HOUR
WINDOW_TOLERANCE = 0.25
"""How far the boot time may change before the counts of claims in it start anew."""
LATE_MEMORY = 0.9998
"""Each claim multiplies the weights of earlier claims by this. The last 5,000 claims have 63 % of the weight."""
SLOT_SECONDS = 900.0
SLOTS = 672
"""Seven days in slots."""
AIM = 0.8
"""The late claims that the size aims at, as a share of those that the target allows: the next claims differ from the
earlier ones."""
MAX_SLOT_CLAIMS = 100_000
MAX_BYTES = 200_000
"""Limit on the decompressed history, because anyone who may write the status may write it."""
VERSION = 1


@dataclass(frozen=True)
class Slot:
    """The claims of fifteen minutes."""

    claims: int = 0
    peak: int = 0
    """The most claims in one boot time."""


@dataclass
class DemandHistory:
    """The history of one pool. `arrived`, `served`, `booted` and `waited` must be called in the order of time."""

    since: float | None = None
    """Time of the first record."""
    saved_at: float = 0.0
    """Time of the last encoding, or of the last claim if that is later. Earlier claims are included."""
    boot_seconds: float | None = None
    window_seconds: float = 0.0
    """The part of a boot time in which claims compete for the waiting VMs."""
    rate: float = 0.0
    """Claims in the last RATE_SECONDS, with exponentially decreasing weights."""
    rate_at: float = 0.0
    table: DemandTable = field(default_factory=DemandTable)
    """Demand by context. The context is the demand that is expected after recent claims."""
    served_claims: float = 0.0
    late_claims: float = 0.0
    slots: dict[int, Slot] = field(default_factory=dict)
    idle_day: int = 0
    idle_seconds: float = 0.0
    """Sum of the seconds that VMs waited on `idle_day`, a number of days since 1970."""
    waiting_at: float | None = None
    waiting: int = 0
    changed: bool = False
    """Whether a claim was recorded since the last encoding, or the boot time has changed by about a second."""
    _window: deque[float] = field(default_factory=deque)
    _contexts: deque[tuple[float, int]] = field(default_factory=deque)
    """Times and contexts of the table: since when each context applied."""

    # Records

    def arrived(self, time: float) -> None:
        """Records a claim. A time before the last record counts as the time of that record, but in the slot of its own:
        readers know the creation times of claims that exist."""
        number, time = int(time // SLOT_SECONDS), max(time, self.rate_at)
        self._advance(time)
        self.changed = True
        while self._window and self._window[0] <= time - self.window_seconds:
            self._window.popleft()
        before = len(self._window)
        needed_at = time - (self.boot_seconds or 0.0)
        while len(self._contexts) > 1 and self._contexts[1][0] <= needed_at:
            self._contexts.popleft()
        if self._contexts:
            self.table.add(self._contexts[0][1], before)
        if len(self._window) < MAX_SLOT_CLAIMS:
            self._window.append(time)
        self.rate += 1
        slot = self.slots.get(number, Slot())
        self.slots[number] = Slot(slot.claims + 1, max(slot.peak, before + 1))
        for old in [each for each in self.slots if each <= number - SLOTS]:
            del self.slots[old]

    def served(self, *, late: bool) -> None:
        """Records that a claim got its VM, or failed, and whether it waited longer than the target."""
        self.served_claims = LATE_MEMORY * self.served_claims + 1
        self.late_claims = LATE_MEMORY * self.late_claims + late

    def booted(self, seconds: float) -> None:
        """Records the seconds from the creation of a VM until it could be claimed."""
        seconds = min(max(seconds, 1.0), MAX_BOOT_SECONDS)
        before = self.boot_seconds
        self.boot_seconds = seconds if before is None else before + NEW_BOOT_SHARE * (seconds - before)
        self.changed |= before is None or round(before) != round(self.boot_seconds)

    def waited(self, time: float, waiting: int) -> None:
        """Records how many VMs wait from now on."""
        since = time if self.waiting_at is None else self.waiting_at
        today = int(time // DAY)
        if today != self.idle_day:
            self.idle_day, self.idle_seconds, since = today, 0.0, max(since, today * DAY)
        self.idle_seconds += max(0.0, time - since) * self.waiting
        self.waiting_at, self.waiting = time, waiting

    def compete_within(self, seconds: float) -> None:
        """Sets the window. Counts of a window that was much shorter or longer are dropped."""
        old = self.table.window_seconds
        if abs(seconds - old) > WINDOW_TOLERANCE * max(old, 1.0):
            self.table = DemandTable(seconds)
            self._contexts.clear()
        self.window_seconds = self.table.window_seconds

    # Expectations

    def expected(self, time: float) -> float:
        """The claims that are expected in the window after the time."""
        self._advance(time)
        return self.rate / RATE_SECONDS * self.window_seconds

    def observe(self, time: float) -> None:
        """Remembers what is expected now. The claims that arrive a boot time later are counted for this context."""
        found = context(self.expected(time))
        if not self._contexts or self._contexts[-1][1] != found:
            self._contexts.append((time, found))

    def replicas(self, time: float, late_share: float) -> int:
        """The number of VMs that must wait from now on, so that at most `late_share` of the claims find none."""
        return self.table.replicas(self.expected(time), self._corrected(late_share))

    def _corrected(self, late_share: float) -> float:
        """The share, corrected by what was achieved: boots may fail, and the demand may differ from its history."""
        late_share *= AIM
        allowed = late_share * self.served_claims
        return late_share * min(2.0, max(0.3, 1 + (allowed - self.late_claims) / (allowed + 5)))

    @property
    def claims_per_hour(self) -> float:
        return self.rate / RATE_SECONDS * HOUR

    @property
    def late_share(self) -> float:
        return self.late_claims / self.served_claims if self.served_claims else 0.0

    def idle_hours(self, time: float) -> float:
        """The hours that VMs have waited today (UTC)."""
        return self.idle_seconds / HOUR if int(time // DAY) == self.idle_day else 0.0

    def replay(self) -> Iterator[float]:
        """The times of the claims of the last week, as far as the slots tell: each peak within one boot time, and the
        others at equal distances."""
        together = min(self.window_seconds or self.boot_seconds or 60.0, SLOT_SECONDS) * 0.9
        for number in sorted(self.slots):
            slot, begin = self.slots[number], number * SLOT_SECONDS
            others = slot.claims - slot.peak
            # A hash of the number places the peak, so that peaks are not at the same time of each slot.
            offset = (SLOT_SECONDS - together) * ((number * 2654435761) % 1000) / 1000
            times = [begin + offset + together * each / slot.peak for each in range(slot.peak)]
            times += [begin + SLOT_SECONDS * (each + 0.5) / others for each in range(others)]
            yield from sorted(times)

    def _advance(self, time: float) -> None:
        if self.since is None:
            self.since = self.rate_at = time
        if time > self.rate_at:
            self.rate *= math.exp((self.rate_at - time) / RATE_SECONDS)
            self.rate_at = time

    # The form in the status

    def encode(self, time: float) -> str:
        """The history as text of a few kB."""
        self._advance(time)
        self.saved_at, self.changed = self.rate_at, False
        state = {
            "version": VERSION,
            "since": self.since,
            "saved": round(self.saved_at, 3),
            "boot": self.boot_seconds and round(self.boot_seconds, 1),
            "window": self.window_seconds,
            "rate": round(self.rate, 3),
            "recent": _encode_table(self.table),
            "served": [round(self.served_claims, 2), round(self.late_claims, 2)],
            "slots": [[number, slot.claims, slot.peak] for number, slot in sorted(self.slots.items())],
            "idle": [self.idle_day, round(self.idle_seconds)],
        }
        return base64.b64encode(zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 9)).decode()

    @classmethod
    def decode(cls, text: str) -> "DemandHistory":
        """The history in the text. An empty history for a text that is empty or of an unknown form."""
        try:
            packed = zlib.decompressobj()
            state = json.loads(packed.decompress(base64.b64decode(text, validate=True), MAX_BYTES))
            return cls._from_state(state)
        except (zlib.error, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            return cls()

    @classmethod
    def _from_state(cls, state: Any) -> "DemandHistory":
        if state["version"] != VERSION:
            return cls()
        window, boot = _finite(state["window"]), state["boot"]
        return cls(
            since=_finite(state["since"]) if state["since"] is not None else None,
            saved_at=_finite(state["saved"]),
            boot_seconds=min(max(_finite(boot), 1.0), MAX_BOOT_SECONDS) if boot is not None else None,
            window_seconds=window,
            rate=_finite(state["rate"]),
            rate_at=_finite(state["saved"]),
            table=_decode_table(window, state["recent"]),
            served_claims=_finite(state["served"][0]),
            late_claims=_finite(state["served"][1]),
            slots={
                int(n): Slot(min(int(claims), MAX_SLOT_CLAIMS), min(int(peak), int(claims), MAX_SLOT_CLAIMS))
                for n, claims, peak in state["slots"][:SLOTS]
            },
            idle_day=int(state["idle"][0]),
            idle_seconds=_finite(state["idle"][1]),
        )


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{number} is no amount")
    return number


def _encode_table(table: DemandTable) -> list[list[int]]:
    return [
        [where, *(n for pair in sorted(counts.items()) for n in pair)] for where, counts in sorted(table.counts.items())
    ]


def _decode_table(window: float, rows: Any) -> DemandTable:
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for where, *pairs in rows:
        counts[int(where)] = Counter(
            {
                bucket(min(max(int(n), 0), MAX_SLOT_CLAIMS)): max(0, int(count))
                for n, count in zip(pairs[::2], pairs[1::2], strict=True)
            }
        )
    return DemandTable(window, counts)
