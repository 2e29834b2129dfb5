"""The architecture as a table: which room imports which. CONTRIBUTING.md says what each room is for.

A room is a service, or a package in `poolhouse`. Imports go from the services down to the values that all of them
share.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

APIMACHINERY, KUBEVIRT, KINDS, POLICIES = (
    f"poolhouse.api.{name}" for name in ("apimachinery", "kubevirt", "kinds", "migrationpolicies")
)
RUNTIME, SERVICE, MANIFESTS = "poolhouse.runtime", "poolhouse.service", "poolhouse.manifests"
BOTTOM = {APIMACHINERY, KUBEVIRT, SERVICE}
CONTROL_PLANE = BOTTOM | {
    *(KINDS, POLICIES, RUNTIME, "poolhouse.manifests.webhooks"),
    # What is said to the defaulter, and how KubeVirt expands instance types.
    *("defaulter.contract", "defaulter.instancetypes"),
}
# How KubeVirt builds the domain of a VMI.
DOMAINS = {
    f"defaulter.{name}" for name in ("domain", "fields", "json_paths", "pci_addresses", "vmi_spec", "walker", "xml")
}

ROOMS: dict[str, set[str]] = {
    # Values of the Kubernetes API, facts about KubeVirt, and what every service has.
    APIMACHINERY: set(),
    KUBEVIRT: {APIMACHINERY},
    SERVICE: {APIMACHINERY},
    # The kinds of Poolhouse, and what follows from them.
    KINDS: {APIMACHINERY, KUBEVIRT},
    MANIFESTS: {APIMACHINERY, KUBEVIRT, KINDS},
    POLICIES: {APIMACHINERY, KUBEVIRT, KINDS},
    # The client library for the Kubernetes API.
    RUNTIME: BOTTOM,
    # The three services. The defaulter knows no kind and no Kubernetes API; the others know it by its contract.
    "defaulter": BOTTOM,
    "webhook": CONTROL_PLANE,
    "controllers": CONTROL_PLANE,
    # The cluster on a developer's machine, the command line, and what writes the generated files of the repository.
    # The engine builds domains from the defaulter's table of fields, and plays the agents of simulated guests.
    "poolhouse.stack": CONTROL_PLANE | DOMAINS | {MANIFESTS, "controllers.warmpool.agent_protocol"},
    "poolhouse.cli": CONTROL_PLANE | {MANIFESTS, "defaulter", "webhook", "controllers", "poolhouse.stack"},
    # The web page has the answers and the acts of the command line, which starts it by name.
    "poolhouse.console": CONTROL_PLANE | {"defaulter", "webhook", "controllers", "poolhouse.cli"},
    # The web pages for users without a kubeconfig, which show the screens of VMs as the console does.
    "poolhouse.portal": CONTROL_PLANE | {"poolhouse.cli", "poolhouse.console"},
    # The cloud provider of the cluster-autoscaler, which the command line starts by name, too.
    "poolhouse.nodegroups": CONTROL_PLANE | {"controllers", "poolhouse.cli"},
    # A distribution of its own, which contains no other room. `generate` writes what it has in common with them.
    "client": set(),
    # The agent in VMs, also a distribution of its own. `generate` writes the protocol into it.
    "agent": set(),
    "poolhouse.generate": BOTTOM
    | {KINDS, MANIFESTS, RUNTIME, "defaulter", "webhook", "controllers", "poolhouse.portal.settings"},
}

# A package of controllers imports controllers/shared and controllers/sets, and no other package unless it is listed
# here. Of these two, only controllers/sets imports the other.
IMPORTED_PACKAGES = {"claim": {"warmpool"}, "virtualnode": {"warmpool"}}

# Libraries that one module of a room imports, so that the others can be read and tested without them.
ONLY_IMPORTER: dict[str, dict[str, str]] = {
    "libvirt": {"defaulter": "defaulter/driver.py", "poolhouse.stack": "poolhouse/stack/engine/qemu/driver.py"},
    "kubernetes": {RUNTIME: "poolhouse/runtime/credentials.py", "client": "client/poolhouse_client/connection.py"},
    "boto3": {"controllers": "controllers/warmpool/ec2/client.py"},
    "botocore": {"controllers": "controllers/warmpool/ec2/client.py"},
}

# Modules with these names take values and return values: they do not wait, write, log or read a clock.
PURE = {
    "plan",
    "obtain",
    "hand_over",
    "waiting",
    "snapshot",
    "status",
    "expiry",
    "conditions",
    "progressing",
    "pool_readiness",
    "patch",
    "review",
    "selection",
    "naming",
    "precedence",
    "template",
    "vm_manifest",
    "actions",
    "steps",
    "phases",
    "analysis",
    "history",
}
# What rules and gates of a pool have in common.
PURE |= {"healing_status", "snapshots_before_update", "surge", "update_limit", "windows", "zones"}
# All modules of these packages do so too.
PURE_PACKAGES = {"rules", "gates", "actions"}
IMPURE = {"asyncio", "logging", "time", "random", "os", "socket", "subprocess", "aiohttp"}


@cache
def modules(room: str) -> tuple[Path, ...]:
    return tuple(sorted((ROOT / room.replace(".", "/")).rglob("*.py")))


def is_in(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


@cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Absolute names that a module imports, and whether it imports them at the top."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, bool]]:
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}", id(node) in top


def test_every_package_is_in_a_room() -> None:
    for path in (ROOT / "poolhouse").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        assert name in ("poolhouse.__init__", "poolhouse.api.__init__") or any(is_in(name, room) for room in ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    for path in modules(room):
        for name, _ in imports(path):
            if any(is_in(name, other) for other in ROOMS.keys() - {room}):
                assert any(is_in(name, below) for below in ROOMS[room]), f"{path} must not import {name}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_heavy_library_has_one_importer_in_a_room(room: str) -> None:
    for path in modules(room):
        here = str(path.relative_to(ROOT))
        for name, _ in imports(path):
            importers = ONLY_IMPORTER.get(name.split(".")[0])
            if importers is not None:
                assert importers.get(room) == here, f"{here} must not import {name}; only {importers} may"


@pytest.mark.parametrize("room", ROOMS)
def test_a_pure_module_imports_nothing_impure(room: str) -> None:
    for path in modules(room):
        if path.stem in PURE or path.parent.name in PURE_PACKAGES:
            found = {name.split(".")[0] for name, top in imports(path) if top} & IMPURE
            assert not found, f"{path} must get time, chance and the network as arguments, not import {sorted(found)}"


def test_gates_know_no_rule() -> None:
    """Nor does a module that they import."""
    left, found = [*(ROOT / "controllers/pool/gates").glob("*.py")], set[Path]()
    while left:
        if (path := left.pop()) not in found:
            found.add(path)
            for name, _ in imports(path):
                assert not is_in(name, "controllers.pool.rules"), f"{path} must not import {name}"
                names = (name, name.rpartition(".")[0]) if is_in(name, "controllers.pool") else ()
                left += [file for each in names if (file := ROOT / f"{each.replace('.', '/')}.py").exists()]


def test_a_package_of_controllers_imports_only_the_layers_that_all_share() -> None:
    packages = {path.parent.name for path in modules("controllers") if path.name == "__init__.py"}
    for path in modules("controllers"):
        package, *rest = path.relative_to(ROOT / "controllers").parts
        if rest:
            known = {package, "shared", *({"sets"} if package != "shared" else ()), *IMPORTED_PACKAGES.get(package, ())}
            for name, _ in imports(path):
                room, *inner = name.split(".")
                if room == "controllers" and len(inner) > 1 and inner[0] in packages:
                    assert inner[0] in known, f"{path} must not import {name}"
