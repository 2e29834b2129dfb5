"""Whether this machine can run nodes, and which tests of nodes are wanted."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from poolhouse.stack.prerequisites import search_path

VARIABLE = "POOLHOUSE_TEST_NODE"
"""`short`: one node, from installation to uninstallation; `all`: two nodes, with what happens to them"""
PROGRAMS = ("containerd", "runc", "ctr", "iptables", "nft", "ip", "unshare", "nsenter", "buildah", "mmdebstrap")
PLUGINS = Path("/usr/lib/cni")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids")


def wanted() -> str:
    return os.environ.get(VARIABLE, "")


def why_not() -> str | None:
    """Returns why this machine cannot run nodes; None if it can."""
    if os.geteuid() != 0:
        return "nodes need root"
    missing = [name for name in PROGRAMS if not shutil.which(name, path=search_path())]
    if not (PLUGINS / "bridge").exists():
        missing.append(str(PLUGINS / "bridge"))
    if missing:
        return f"missing: {', '.join(missing)}; `make test-node` installs them"
    mounted = {name for name in CONTROLLERS if Path("/sys/fs/cgroup", name).is_dir()}
    if absent := [name for name in CONTROLLERS if name not in mounted]:
        return f"/sys/fs/cgroup has no {', '.join(absent)}: nodes are tried with version 1 of cgroups only"
    namespaces = ["unshare", "--mount", "--pid", "--net", "--uts", "--cgroup", "--fork", "true"]
    tried = subprocess.run(namespaces, capture_output=True, text=True, timeout=10, check=False)
    if tried.returncode:
        return f"this machine gives no namespaces: {tried.stderr.strip()}"
    return None
