"""What this process knows of a claim that the stores may not show yet.

Nothing here is needed by whoever comes after us: it saves us from acting on what we have changed ourselves a moment
ago, and says where we have to look before we act because we were not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from controllers.claim.snapshot import Claim, Failure, Timeline
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_vm import WarmVM
from runtime.reflector import is_older
from runtime.resource import Key

SHOWN_SECONDS = 15.0
"""A store that has not shown a change by then may never do so (it was undone meanwhile): the API is asked."""


@dataclass
class ClaimRecord:
    certain: bool = False
    """no machine can carry the claim's UID but those that are known"""
    stale: bool = False
    """the claim is to be read from the API"""
    claim: Claim | None = None
    """as it was after our last write"""
    machines: dict[str, tuple[WarmVM, float]] = field(default_factory=dict)
    """as they were after our last write or look, by UID, and when that was"""
    taking: dict[str, Key] = field(default_factory=dict)
    """machines that are kept from others for this claim, by UID"""
    refused: dict[str, Key] = field(default_factory=dict)
    """those that could not be given to it: kept back, so that another one is tried next"""
    making: set[tuple[str, str]] = field(default_factory=set)
    """(pool UID, name) of machines that were asked for"""
    draws: int = 0
    """how often to make one was refused: each try draws its placement anew"""
    doubtful: str = ""
    """the name of a machine of which we have not heard whether it was made"""
    health: Health | None = None
    """what the last step has found; gone with the next one"""
    trouble: Failure | None = None
    trouble_until: float = 0.0
    """until when what was refused is not tried again"""
    refusals: int = 0
    denied: tuple[str, tuple[Failure, ...]] | None = None
    """the UID of its machine, and what it wishes of it and did not get"""
    ended: Failure | None = None
    """why we ended the machine that it had"""
    marks: Timeline = field(default_factory=Timeline)

    def latest(self, shown: Claim) -> Claim:
        """The claim as the store shows it, or as we know it to be since."""
        known = self.claim
        if known is not None and known.uid == shown.uid and is_older(shown.resource_version, known.resource_version):
            return known
        self.claim = None
        return shown

    def note(self, m: WarmVM, now: float) -> None:
        self.machines[m.uid] = (m, now)

    def found(self, machines: Iterable[WarmVM], now: float) -> None:
        """All that there are."""
        self.machines = {m.uid: (m, now) for m in machines}
        self.certain = True

    def known(self, shown: Iterable[WarmVM], now: float) -> tuple[WarmVM, ...]:
        """The machines of the claim: as the store shows them, or as we know them to be since."""
        merged = {m.uid: m for m in shown}
        for uid, (m, at) in list(self.machines.items()):
            other = merged.get(uid)
            if other is not None and not is_older(other.resource_version, m.resource_version):
                # What we have deleted stays deleted, also while its last version is shown.
                if not m.deleting or other.deleting or other.resource_version != m.resource_version:
                    del self.machines[uid]
                    continue
            elif other is None and now - at > SHOWN_SECONDS:
                del self.machines[uid]
                self.certain = False
                continue
            merged[uid] = replace(m, vmi=None, node=None)
        return tuple(merged.values())

    def gone(self, uid: str) -> None:
        """The store has shown that a machine is gone."""
        self.machines.pop(uid, None)
        self.taking.pop(uid, None)
        self.certain = False
