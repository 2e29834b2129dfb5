"""One worker process: an embedded libvirt, a request at a time, from standard input to standard output.

Its parent may kill it at any moment, and does so when an answer is late. It knows no network and keeps nothing between
two requests but libvirt's own caches.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import BinaryIO

from apimachinery.problem import Problem
from defaulter import frames
from defaulter.driver import Libvirt
from defaulter.errors import LibvirtUnavailable
from defaulter.handler import Answer, HandlerConfig, handle, problems_body
from defaulter.kubevirt_defaults import ClusterConfig
from defaulter.probe import PROBE

ADDRESS_SPACE_BYTES = 2 * 1024**3
"""a leak ends here; set once QEMU has been probed, which wants more than libvirt ever does"""
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000


def main() -> int:
    first = frames.receive(sys.stdin.buffer)
    if first is None:
        return 0
    settings = json.loads(first[1])
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever libvirt or QEMU print must not be taken for an answer
    policy = HandlerConfig(ClusterConfig(**settings["cluster"]), settings["seed"])
    isolate_network()
    drop_privileges(settings["uid"], settings["gid"])
    exit_with_parent(settings["parent"])
    host = Libvirt(Path(settings["root"]))
    handle(PROBE, policy, host, as_domain=True)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, most))
    serve(sys.stdin.buffer, answers, policy, host)
    return 0


def isolate_network() -> None:
    """Into a network of its own with nobody in it, where the kernel lets us: as root. Others have no network because
    their pod has none."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).unshare(_CLONE_NEWNET)


def drop_privileges(uid: int | None, gid: int | None) -> None:
    """Becomes another user for good. Everything that is imported must have been imported: that user may not read it."""
    if uid is None or gid is None or os.geteuid() != 0:
        return
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def exit_with_parent(parent: int) -> None:
    """Ends when the parent does, however that ends; after a change of user, which would undo it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


def serve(requests: BinaryIO, answers: BinaryIO, policy: HandlerConfig, host: Libvirt) -> None:
    while (frame := frames.receive(requests)) is not None:
        tag, body = frame
        status, content = respond(tag, body, policy, host)
        answers.write(frames.pack(status, content))
        if host.leftovers():
            return  # what cannot be undefined goes with the process


def respond(tag: int, body: bytes, policy: HandlerConfig, host: Libvirt) -> Answer:
    try:
        if tag == frames.VERSION:
            return 200, json.dumps(version(host)).encode()
        if tag == frames.PROBE:
            status, content = handle(PROBE, policy, host, as_domain=True)  # by a real define, not from memory
            return (200, b"{}") if status == 200 else (503, content)
        return handle(body, policy, host, as_domain=tag == frames.DOMAIN)
    except LibvirtUnavailable as error:
        return 503, problems_body([Problem("", str(error))])
    except MemoryError:
        return 503, problems_body([Problem("", "out of memory")])
    except Exception:  # a mistake of ours must not look like one of theirs, nor cost the next request its worker
        traceback.print_exc()
        return 503, problems_body([Problem("", "internal error; the log of the defaulter has the details")])


def version(host: Libvirt) -> dict[str, object]:
    names = {"x86_64": "amd64", "aarch64": "arm64", "s390x": "s390x"}
    machines = {names[arch]: found for arch, found in host.machines().items() if arch in names}
    return {
        "libvirt": host.version(),
        "qemu": {arch: host.qemu() for arch in machines},
        "machines": {arch: sorted(m for m, real in found.items() if not real) for arch, found in machines.items()},
        "aliases": {arch: {m: real for m, real in found.items() if real} for arch, found in machines.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
