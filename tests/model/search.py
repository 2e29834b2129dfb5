"""Explores a graph of states, and finds states and cycles from which nothing reaches the desired state.

A move is fair if it happens in the end: a reconcile that changes something, KubeVirt's part of a write, and the passage
of time while nothing else happens. Other moves are faults and changes by users, of which each state has a limited
number left. If every path of fair moves ends, and only at rest, then each path whose faults end comes to rest. Such a
path ends unless there is a cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S")
MOST_FINDINGS = 20


class Move(NamedTuple, Generic[S]):
    label: str
    after: S
    fair: bool = True
    passive: bool = False
    """whether only time passes: at rest, a cycle of such moves is allowed"""


class Machine(Protocol[S]):
    def initial(self) -> Iterable[S]: ...

    def key(self, state: S) -> Hashable:
        """Equal for states that differ in nothing on which moves depend."""
        ...

    def moves(self, state: S) -> Iterable[Move[S]]: ...

    def unrest(self, state: S) -> str:
        """Why the state is neither desired nor says what it waits for, or ""."""
        ...


@dataclass
class Found:
    what: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.what, *(f"    {step}" for step in self.trace)])


@dataclass
class Explored:
    states: int = 0
    transitions: int = 0
    complete: bool = True
    """False if a limit ended the search"""
    found: list[Found] = field(default_factory=list)


@dataclass
class _Graph(Generic[S]):
    machine: Machine[S]
    numbers: dict[Hashable, int] = field(default_factory=dict)
    parents: list[tuple[int, str]] = field(default_factory=list)
    fair: list[list[tuple[int, str, bool]]] = field(default_factory=list)
    restless: dict[int, str] = field(default_factory=dict)
    """why a state is not at rest in which nothing but time goes on"""

    def trace(self, number: int) -> tuple[str, ...]:
        steps = []
        while number >= 0:
            number, label = self.parents[number]
            steps.append(label)
        return tuple(reversed(steps))


def explore(machine: Machine[S], most: int | None = None, enough: int = MOST_FINDINGS) -> Explored:
    """Visits all states, or the nearest `most`, in the order of the number of moves, until enough is found."""
    graph, found, queue = _Graph(machine), Explored(), deque[tuple[int, S]]()

    def visit(state: S, parent: int, label: str) -> int:
        key = machine.key(state)
        if key not in graph.numbers:
            graph.numbers[key] = len(graph.parents)
            graph.parents.append((parent, label))
            graph.fair.append([])
            queue.append((graph.numbers[key], state))
        return graph.numbers[key]

    for state in machine.initial():
        visit(state, -1, f"begin: {state}")
    while queue and len(found.found) < enough:
        if most is not None and found.states >= most:
            found.complete = False
            break
        number, state = queue.popleft()
        found.states += 1
        moves = list(machine.moves(state))
        found.transitions += len(moves)
        for move in moves:
            target = visit(move.after, number, move.label)
            if move.fair:
                graph.fair[number].append((target, move.label, move.passive))
        if all(move.passive for move in moves if move.fair) and (why := machine.unrest(state)):
            graph.restless[number] = why
            if not graph.fair[number]:
                found.found.append(Found(f"nothing acts: {why}", graph.trace(number)))
    found.found += _lassos(graph)
    return found


def _lassos(graph: _Graph[S]) -> Iterator[Found]:
    """The cycles of fair moves in which something acts, or in which a state is not at rest. A cycle ends if one move is
    possible all the time that leaves it."""
    for members in _components([[to for to, *_ in moves] for moves in graph.fair]):
        inside = set(members)
        ways_out = [{label for to, label, _ in graph.fair[each] if to not in inside} for each in members]
        if set.intersection(*ways_out):
            continue
        for number in sorted(members):
            within = [(to, label, passive) for to, label, passive in graph.fair[number] if to in inside]
            wrong = [each for each in within if not each[2] or number in graph.restless]
            if wrong:
                to, label, _ = wrong[0]
                cycle = (label, *_way(graph.fair, to, number), "and so on")
                why = graph.restless.get(number, "the plans do and undo")
                yield Found(f"a cycle: {why}", (*graph.trace(number), *(f"again and again: {each}" for each in cycle)))
                break


def _way(edges: list[list[tuple[int, str, bool]]], begin: int, end: int) -> tuple[str, ...]:
    """The labels of the shortest way."""
    queue, ways = deque([begin]), {begin: tuple[str, ...]()}
    while end not in ways:
        here = queue.popleft()
        for to, label, _ in edges[here]:
            if to not in ways:
                ways[to] = (*ways[here], label)
                queue.append(to)
    return ways[end]


def _components(edges: list[list[int]]) -> Iterator[list[int]]:
    """Strongly connected components, by Tarjan's algorithm without recursion."""
    index, low, stack, on_stack, count = dict[int, int](), dict[int, int](), list[int](), set[int](), 0
    for root in range(len(edges)):
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = count
        count += 1
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = count
                    count += 1
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    members = list[int]()
                    while not members or members[-1] != node:
                        members.append(stack.pop())
                        on_stack.discard(members[-1])
                    yield members
