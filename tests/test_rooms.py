"""Who may import whom. The table is the architecture; see the layout in README.md for what each room is for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

ROOMS: dict[str, set[str]] = {
    "apimachinery": set(),
    "service": {"apimachinery", "service.certificates", "runtime.metrics"},
    "kinds": {"apimachinery"},
    "manifests": {"apimachinery", "kinds"},
    "migrationpolicies": {"apimachinery", "kinds"},
    "runtime": {"apimachinery", "service"},
    "defaulter": {"apimachinery", "service"},
    "webhook": {
        "apimachinery",
        "service",
        "kinds",
        "manifests.webhooks",
        "migrationpolicies",
        "runtime",
        "defaulter.contract",
    },
    "controllers": {
        "apimachinery",
        "service",
        "kinds",
        "manifests.webhooks",
        "migrationpolicies",
        "runtime",
        "defaulter.contract",
    },
    "local": {
        "apimachinery",
        "service",
        "kinds",
        "manifests",
        "migrationpolicies",
        "runtime",
        "defaulter.contract",
    },
    "cli": {
        "apimachinery",
        "service",
        "kinds",
        "manifests",
        "migrationpolicies",
        "runtime",
        "defaulter",
        "webhook",
        "controllers",
        "local",
    },
    "monitoring": {"apimachinery", "service", "kinds", "manifests", "runtime", "defaulter", "webhook", "controllers"},
}

# Libraries that only one file of a room may touch, so that the rest can be read and tested without them.
GATES: dict[str, dict[str, str]] = {
    "libvirt": {"defaulter": "defaulter/driver.py", "local": "local/engine/qemu/driver.py"},
    "kubernetes": {"runtime": "runtime/api.py"},
    "boto3": {"controllers": "controllers/warmpool/ec2/client.py"},
    "botocore": {"controllers": "controllers/warmpool/ec2/client.py"},
}

# A module with one of these names decides: it is given values and returns values.
DECIDING = {
    "plan",
    "status",
    "patch",
    "review",
    "selection",
    "naming",
    "precedence",
    "template",
    "vm_manifest",
    "actions",
    "steps",
    "expiry",
    "phases",
}
IMPURE = {"asyncio", "logging", "time", "random", "os", "socket", "subprocess", "aiohttp"}


def modules() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Absolute names that a file imports, and whether it does so at the top (a late import hides a dependency from
    those who don't use it, but is still one)."""
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}", id(node) in top


@pytest.mark.parametrize("path", list(modules()), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_the_rooms_below_it(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    for name, _ in imports(path):
        if name.split(".")[0] in ROOMS and name.split(".")[0] != room:
            allowed = ROOMS[room]
            assert any(name == a or name.startswith(a + ".") for a in allowed), f"{path} must not import {name}"


@pytest.mark.parametrize("path", list(modules()), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_heavy_library_has_one_gate_in_each_room(path: Path) -> None:
    here = str(path.relative_to(ROOT))
    room = path.relative_to(ROOT).parts[0]
    for name, _ in imports(path):
        gates = GATES.get(name.split(".")[0])
        if gates is not None:
            assert gates.get(room) == here, f"{here} imports {name}; only {gates} may"


@pytest.mark.parametrize("path", [p for p in modules() if p.stem in DECIDING], ids=lambda p: str(p.relative_to(ROOT)))
def test_what_decides_does_nothing_else(path: Path) -> None:
    found = {name.split(".")[0] for name, top in imports(path) if top} & IMPURE
    assert not found, f"{path} decides, so time, chance and the network are arguments; it imports {sorted(found)}"


def test_a_controller_imports_no_other_controller() -> None:
    """What two packages of controllers need belongs to controllers/shared. Claims take VMs of warm pools."""
    allowed = {"claim": {"warmpool"}}
    for path in sorted((ROOT / "controllers").rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        if len(parts) < 3:
            continue
        for name, _ in imports(path):
            pieces = name.split(".")
            if pieces[0] == "controllers" and len(pieces) > 2 and (ROOT / "controllers" / pieces[1]).is_dir():
                known = {parts[1], "shared", *allowed.get(parts[1], ())}
                assert pieces[1] in known, f"{path} imports {name}"
