"""The hardware of a VM as a map of its PCI topology, with who decided what, and the difference of two VMs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from poolhouse.api.apimachinery.unstructured import Json

PCI = re.compile(r"(?P<domain>[0-9a-f]{4}):(?P<bus>[0-9a-f]{2}):(?P<slot>[0-9a-f]{2})\.(?P<function>[0-7])")
BRIDGE = re.compile(r"controller pci (\d+)")


@dataclass(frozen=True)
class Bus:
    """A PCI bus with its devices, in the order of their addresses."""

    number: int
    devices: Sequence[tuple[Json, Bus | None]]
    """the devices, each with the bus that begins at it if it is a bridge"""


def topology(devices: Sequence[Json]) -> list[Bus]:
    """The buses that begin nowhere: bus 0, and buses whose bridge no address names."""
    placed: dict[int, list[tuple[tuple[int, int], Json]]] = {}
    bridges: dict[str, int] = {}
    for each in devices:
        if found := BRIDGE.fullmatch(each["device"]):
            bridges[each["device"]] = int(found[1])
        if at := PCI.fullmatch(each["place"] or ""):
            position = int(at["slot"], 16), int(at["function"], 16)
            placed.setdefault(int(at["bus"], 16), []).append((position, each))
    below = {number for name, number in bridges.items() if _is_placed(name, placed)}

    def bus(number: int, above: frozenset[int]) -> Bus:
        rows = []
        for _, each in sorted(placed.get(number, ()), key=lambda row: row[0]):
            inner = bridges.get(each["device"])
            deeper = inner is not None and inner in placed and inner not in above
            rows.append((each, bus(inner, above | {inner}) if deeper and inner is not None else None))
        return Bus(number, rows)

    roots = sorted(number for number in placed if number not in below or number == 0)
    return [bus(number, frozenset({number})) for number in roots]


def _is_placed(name: str, placed: dict[int, list[tuple[tuple[int, int], Json]]]) -> bool:
    return any(each["device"] == name for rows in placed.values() for _, each in rows)


def elsewhere(devices: Sequence[Json]) -> list[Json]:
    """The devices and values that are on no PCI bus."""
    return [each for each in devices if not PCI.fullmatch(each["place"] or "")]


def deciders(devices: Sequence[Json]) -> list[tuple[str, int]]:
    """Who set how many of the addresses and values that are set."""
    found: dict[str, int] = {}
    for each in devices:
        if each["by"] is not None:
            found[each["by"]] = found.get(each["by"], 0) + 1
    return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))


def compare(one: Sequence[Json], other: Sequence[Json]) -> list[Json]:
    """The devices whose kind or place differs, in the order of the first VM."""
    before, after = ({each["device"]: each for each in devices} for devices in (one, other))
    rows = []
    for name in {**before, **after}:
        pair = [_value(side.get(name)) for side in (before, after)]
        if pair[0] != pair[1]:
            rows.append({"device": name, "before": pair[0], "after": pair[1]})
    return rows


def _value(device: Json | None) -> str:
    if device is None:
        return "-"
    return " ".join(part for part in (device["kind"], device["place"] or device["unset"]) if part)
