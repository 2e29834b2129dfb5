"""Names, addresses and directories of a cluster."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

from poolhouse.stack.components import StackError
from poolhouse.stack.paths import StackPaths

SERVICES = "10.0.0.0/16"
DNS = "10.0.0.10"
PODS = "10.1.0.0/16"
APISERVER_PORT = 6443
LAN = "lan"
HIDDEN = tuple(map(Path, ("/run", "/var/run", "/var/lib", "/var/log", "/dev", "/proc", "/sys")))
"""Directories of this machine that a node does not see."""


@dataclass(frozen=True)
class Node:
    number: int
    prefix: str
    """the first three bytes of the LAN's addresses"""

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        return f"{self.prefix}.{10 + self.number}"

    @property
    def pods(self) -> str:
        return f"10.1.{self.number}.0/24"


@dataclass(frozen=True)
class Layout:
    """Only the LAN is visible on the machine, as a link with one address. It differs between clusters."""

    paths: StackPaths
    prefix: str
    """the first three bytes of the LAN's addresses"""
    link: str
    """the name of this machine's link to the LAN, and the prefix of the nodes' cgroups"""
    nodes: tuple[Node, ...]

    @property
    def control_plane(self) -> str:
        return f"{self.prefix}.1"

    @property
    def machine(self) -> str:
        return f"{self.prefix}.254"

    @property
    def server(self) -> str:
        return f"https://{self.control_plane}:{APISERVER_PORT}"

    @property
    def tls(self) -> Path:
        return self.paths.tls_of("cluster")

    def directory(self, node: str) -> Path:
        """Has the node's configuration, and what the node sees as /run, /var/lib and /var/log."""
        return self.paths.dir / "nodes" / node

    def is_up(self, node: str) -> Path:
        """The node creates this file when it has set itself up."""
        return self.directory(node) / "run" / "node-is-up"

    def pid_file(self, name: str) -> Path:
        """Has the PID of the process that holds the namespaces of a node or of the LAN."""
        return self.paths.dir / f"{name}.pid"

    def cgroup(self, node: str) -> str:
        return f"{self.link}-{node}"

    def inside(self, name: str) -> tuple[str, ...]:
        """Returns the prefix of a command that runs it inside of a node, or in the network `lan` of the control
        plane."""
        if name == LAN:
            script = 'exec nsenter --target "$(cat "$0")" --net -- "$@"'
            return ("sh", "-ec", script, str(self.pid_file(LAN)))
        # nsenter changes the cgroup namespace, but not the cgroup.
        script = """
          for cgroup in /sys/fs/cgroup/*/"$1"; do echo $$ > "$cgroup/cgroup.procs"; done
          shift
          pid=$(cat "$0")
          exec nsenter --target "$pid" --mount --uts --net --cgroup --pid="/proc/$pid/ns/pid_for_children" -- "$@"
        """
        return ("sh", "-ec", script, str(self.pid_file(name)), self.cgroup(name))


def load_layout(state: Path) -> Layout:
    """Returns the layout of the cluster in this directory. Raises `StackError` if there is none."""
    paths = StackPaths(state)
    try:
        recorded = json.loads(_record(paths).read_text())
    except OSError as error:
        raise StackError(f"{paths.dir} has no cluster: {error.strerror}") from error
    prefix = recorded["prefix"]
    nodes = tuple(Node(number, prefix) for number in range(1, recorded["nodes"] + 1))
    return Layout(paths, prefix, recorded["link"], nodes)


def create_layout(state: Path, nodes: int) -> Layout:
    """Returns the layout of the cluster in this directory, which is created if it does not exist. Raises
    `StackError`."""
    paths = StackPaths(state)
    if any(paths.dir.is_relative_to(hidden) for hidden in HIDDEN):
        raise StackError(f"{paths.dir}: nodes do not see this directory of the machine; use another one")
    if not _record(paths).exists():
        number = zlib.crc32(str(paths.dir).encode())
        paths.dir.mkdir(parents=True, exist_ok=True)
        chosen = {"prefix": _free_prefix(number), "link": f"ph{number:08x}", "nodes": nodes}
        _record(paths).write_text(json.dumps(chosen) + "\n")
    layout = load_layout(state)
    if len(layout.nodes) != nodes:
        raise StackError(f"{paths.dir} has a cluster of {len(layout.nodes)} nodes, not {nodes}")
    return layout


def _record(paths: StackPaths) -> Path:
    return paths.dir / "cluster.json"


def _free_prefix(start: int) -> str:
    """The first three bytes of a /24 to which this machine has no route. The search begins at a hash of the directory,
    so that clusters that start at the same time try different ones."""
    answer = subprocess.run(["ip", "-json", "-4", "route"], capture_output=True, check=True, timeout=10).stdout
    known = [ipaddress.ip_network(route["dst"]) for route in json.loads(answer) if route["dst"] != "default"]
    for step in range(256):
        candidate = ipaddress.ip_network(f"172.31.{(start + step) % 256}.0/24")
        if not any(candidate.overlaps(network) for network in known):
            return str(candidate.network_address).rpartition(".")[0]
    raise StackError("this machine has routes to all of 172.31.0.0/16")
