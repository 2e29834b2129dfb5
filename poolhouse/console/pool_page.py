"""The page of a pool: its health, its update as a picture, its VMs, what the controller does next, and its history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from controllers.pool.counts import TemplateState, count_vms, template_state
from controllers.pool.describe import describe_update
from controllers.pool.live_updates import is_live
from controllers.pool.plan import plan
from controllers.pool.rules.rule import Plan
from controllers.pool.selection import DisruptionBudget
from controllers.pool.simulate import MAX_STEPS_OF_ANSWER, simulate
from controllers.pool.simulate import rows as simulated_rows
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun, join_first
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.differences import history_rows
from poolhouse.cli.plan import update_lines
from poolhouse.cli.updates import progress
from poolhouse.console import words
from poolhouse.console.page import Part, Query, Slice, matches, object_path
from poolhouse.console.words import STATE_WORDS, VMState, vm_state

MAX_NEXT = 12
MAX_NAMES = 3
CELLS_IN_ROW = 40
CELL, GAP = 12, 3


@dataclass(frozen=True)
class Member:
    """A VM or VMI as the picture and the table show it."""

    name: str
    path: str
    state: VMState
    template: TemplateState
    live: bool = False
    """whether KubeVirt changes the running guest, so that it has the template"""
    revision: str = ""
    zone: str = ""
    node: str = ""
    created: str = ""
    addresses: str = ""
    note: str = ""

    @property
    def searched(self) -> str:
        return f"{self.name} {self.node} {self.zone} {self.note} {STATE_WORDS[self.state]}"

    @property
    def title(self) -> str:
        lacks = "its guest changes while it runs" if self.live else "needs a restart"
        template = {"new": "", "old": ", old template", "restart": f", {lacks}"}[self.template]
        place = f", on {self.node}" if self.node else ""
        return f"{self.name}: {STATE_WORDS[self.state]}{template}{place}"


def parts(snapshot: PoolSnapshot, document: Json, query: Query, now: datetime) -> list[Part]:
    """The parts whose cost grows with the VMs."""
    decided = plan(snapshot, now)
    found = members(snapshot, decided)
    return [
        Part("rollout", "rollout.html", picture(snapshot, document, found, now)),
        Part("next", "next.html", next_actions(snapshot, decided, now)),
        Part("vms", "members.html", table(found, query, now)),
    ]


def members(snapshot: PoolSnapshot, decided: Plan) -> list[Member]:
    waits = {each.name: each.reason for each in decided.waits}
    numbers = {each.label: each.number for each in snapshot.revisions_by_label.values()}
    return [
        _member(snapshot, vm, numbers, waits) for vm in sorted(snapshot.vms, key=lambda vm: (vm.ordinal or 0, vm.name))
    ]


def _member(snapshot: PoolSnapshot, vm: VM, numbers: Mapping[str, int], waits: Mapping[str, str]) -> Member:
    notes = [vm.printable_status] if vm_state(vm) in ("starting", "failing") and vm.printable_status else []
    if vm.name in waits:
        notes.append(f"waits: {waits[vm.name]}")
    if vm.protected:
        notes.append("protected from scale-in")
    number = numbers.get(vm.revision)
    return Member(
        vm.name,
        object_path("vm", vm.namespace, vm.name),
        vm_state(vm),
        template_state(snapshot, vm),
        is_live(snapshot, vm),
        str(number) if number else "",
        snapshot.zones.get(vm.name, ""),
        vm.vmi.node if vm.vmi is not None else "",
        vm.created_at,
        ", ".join(vm.vmi.addresses) if vm.vmi is not None else "",
        "; ".join(notes),
    )


@dataclass(frozen=True)
class Group:
    """The VMs of a node."""

    zone: str
    node: str
    members: Sequence[Member]

    @property
    def label(self) -> str:
        node = self.node or "no node"
        return f"{self.zone} · {node}" if self.zone else node

    @property
    def counts(self) -> str:
        found = Counter(each.state for each in self.members)
        return ", ".join(f"{number} {STATE_WORDS[state]}" for state, number in found.most_common())

    @property
    def width(self) -> int:
        return min(len(self.members), CELLS_IN_ROW) * (CELL + GAP)

    @property
    def height(self) -> int:
        return -(-len(self.members) // CELLS_IN_ROW) * (CELL + GAP)

    @property
    def cells(self) -> Iterator[tuple[int, int, Member]]:
        for number, each in enumerate(self.members):
            yield number % CELLS_IN_ROW * (CELL + GAP) + 1, number // CELLS_IN_ROW * (CELL + GAP) + 1, each


def groups(found: Iterable[Member]) -> list[Group]:
    """The VMs by zone and node."""
    places: dict[tuple[str, str], list[Member]] = defaultdict(list)
    for each in found:
        places[each.zone, each.node].append(each)
    return [Group(zone, node, places[zone, node]) for zone, node in sorted(places, key=lambda at: (not at[1], at))]


def picture(snapshot: PoolSnapshot, document: Json, found: Sequence[Member], now: datetime) -> Json:
    """The update: how many VMs have the template, the disruption budget, the steps, and what is next."""
    budget, counts = DisruptionBudget.of(snapshot), count_vms(snapshot)
    update = describe_update(snapshot, now) or {}
    return {
        "message": progress(document)[1],
        "groups": groups(found),
        "total": counts.active,
        "new": counts.new,
        "restart": counts.restart,
        "old": counts.old,
        "bar": _bar(counts.new, counts.restart, counts.active),
        "budget": {
            "used": budget.in_progress,
            "limit": budget.max_unavailable,
            "available": budget.available,
            "minimum": budget.min_available,
            "pips": [
                number < budget.in_progress
                for number in range(min(max(budget.max_unavailable, budget.in_progress), 40))
            ],
        },
        # The stored progress, which a promotion ends: what this process computes can be ahead of it.
        "steps": _steps(update.get("steps") or (), snapshot.progress.steps_done),
        "notes": list(update_lines({**update, "steps": ()})) if update else [],
        "revision": snapshot.revision.number,
        "current": next(
            (each.number for each in snapshot.revisions if each.name == snapshot.pool.status.current_revision), None
        ),
    }


def _bar(done: int, restart: int, total: int) -> Json:
    """Widths of a bar of 1000 units."""
    total = max(total, 1)
    return {"new": round(1000 * done / total), "restart": round(1000 * restart / total)}


def _steps(texts: Sequence[str], done: int) -> list[Json]:
    return [
        {"text": text, "state": "done" if number < done else "now" if number == done else "next"}
        for number, text in enumerate(texts)
    ]


def history(snapshot: PoolSnapshot, document: Json, revisions: list[Json], now: datetime) -> list[Json]:
    counts = Counter(vm.revision for vm in snapshot.active)
    rows = with_current(snapshot, [*history_rows(document, revisions, counts)][::-1])
    return [{**row, "age": words.age(row["created"], now)} for row in rows]


def with_current(snapshot: PoolSnapshot, rows: list[Json]) -> list[Json]:
    """The rows of the history with that of a template which the controller has not recorded yet."""
    if any(row["current"] for row in rows) or snapshot.aborted is not None:
        return rows
    new: Json = {
        **{"revision": "new", "current": True, "vms": 0, "outcome": None, "reason": "", "message": ""},
        **{"created": None, "changes": [], "note": "the controller has not recorded it yet"},
    }
    return [new, *rows]


def next_actions(snapshot: PoolSnapshot, decided: Plan, now: datetime) -> Json:
    """The actions that the controller would take, if all succeed, and what waits now."""
    found = simulate(snapshot, now, MAX_STEPS_OF_ANSWER, max_actions=MAX_NEXT + 1)
    rows = list(simulated_rows(found))
    return {
        "rows": rows[:MAX_NEXT],
        "more": len(rows) > MAX_NEXT or not found.complete,
        "waits": grouped((each.name, each.reason) for each in decided.waits),
        "blocked": decided.blocked,
        "paused": snapshot.pool.spec.paused,
    }


def grouped(waits: Iterable[tuple[str, str]]) -> list[str]:
    """A sentence for each reason, with the VMs that wait for it."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in waits:
        names[reason].append(name)
    return [
        f"{join_first(found, MAX_NAMES)} {'waits' if len(found) == 1 else 'wait'}: {reason}"
        for reason, found in names.items()
    ]


def table(found: Sequence[Member], query: Query, now: datetime) -> Json:
    chosen = [
        each
        for each in found
        if query.get("state") in (None, "", each.state) and (not query.get("q") or matches(each.searched, query))
    ]
    found_slice = Slice.of(chosen, query)
    ages = {each.name: words.age(each.created, now) for each in found_slice.rows}
    return {
        "slice": found_slice,
        "ages": ages,
        "words": STATE_WORDS,
        "query": query,
        "zones": any(each.zone for each in found),
        "states": Counter(each.state for each in found),
        "noun": "VM",
        "summary": count_noun(len(found), "VM"),
    }
