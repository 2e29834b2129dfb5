"""Builds the programs of a node from Go modules. A cache keeps them, as it keeps those of the control plane.

The module `kubelet` has the versions of `poolhouse/stack/controlplane`, so that Go's cache serves both builds. CoreDNS
needs newer versions and is a module of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from poolhouse.service.user_cache import cache_dir
from poolhouse.stack import binaries
from poolhouse.stack.components import Echo, StackError
from poolhouse.stack.go_build import go_build

MODULE = Path(__file__).parent / "kubelet"
COREDNS = Path(__file__).parent / "coredns"
LINKS = ("kubelet", "kube-proxy", "kube-scheduler")
"""names of the program `node`"""
NAMES = ("node", "pause", "coredns", *LINKS)


def find_programs(echo: Echo) -> Path:
    """Returns the directory of the programs. Raises `StackError`."""
    cached = cache_dir() / "node" / _cache_key()
    if all(os.access(cached / name, os.X_OK) for name in NAMES):
        return cached
    draft = cached.with_name(f".{cached.name}.{os.getpid()}")
    draft.mkdir(parents=True)
    log = cached.parent / "build.log"
    try:
        echo("building kubelet, kube-proxy and kube-scheduler from their Go modules; this takes minutes, once")
        *command, _ = binaries.command(draft, MODULE)
        go_build("the programs of a node", [*command, "./..."], MODULE, log, echo)
        echo("building CoreDNS from its Go modules; this takes a minute, once")
        command = ["go", "build", "-v", "-trimpath", "-ldflags=-s -w", "-o", str(draft / "coredns"), "."]
        go_build("CoreDNS", command, COREDNS, log, echo)
        for name in LINKS:
            (draft / name).symlink_to("node")
        shutil.rmtree(cached, ignore_errors=True)
        draft.rename(cached)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return cached


def _cache_key() -> str:
    """A name that depends on the sources, the pinned dependencies and the architecture."""
    digest = hashlib.sha256()
    for path in sorted(each for module in (MODULE, COREDNS) for each in module.rglob("*") if each.is_file()):
        digest.update(path.read_bytes() + b"\0")
    return f"{binaries.kubernetes_version(MODULE)}-{binaries.architecture()}-{digest.hexdigest()[:16]}"


if __name__ == "__main__":
    try:
        print(f"programs of a node: {find_programs(lambda text: print(text, flush=True))}")
    except StackError as error:
        sys.exit(str(error))
