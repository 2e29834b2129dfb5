"""A worker process with an embedded libvirt. It reads requests from standard input, handles one at a time, and writes
the responses to standard output.

The parent kills a worker whose response is late. A worker has no network, opens only the files that libvirt needs, and
starts no program after libvirt has probed QEMU (`confinement`). Its only state is a cache.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from defaulter.confinement import Confinement, confine, forbid_proc, forbid_programs, kvm_is_usable
from defaulter.driver import Libvirt
from defaulter.errors import LibvirtUnavailable
from defaulter.fields import ARCHITECTURES
from defaulter.handler import HandlerConfig, handle, problems_body
from defaulter.worker_protocol import Operation, Response, pack, receive
from poolhouse.api.apimachinery.problem import Problem

ADDRESS_SPACE_BYTES = 2 * 1024**3
"""The limit ends a worker with a memory leak. The worker sets it after its first probe, because the QEMU that the probe
starts needs more."""
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1

PROBE = json.dumps(
    {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "probe", "namespace": "poolhouse-system"},
        "spec": {
            "domain": {
                "memory": {"guest": "64Mi"},
                "devices": {
                    "disks": [{"name": "disk", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "disk", "emptyDisk": {"capacity": "1Mi"}}],
        },
    }
).encode()
"""the smallest VMI with a disk and an interface, for which KubeVirt's three defines are needed"""


def main() -> int:
    first = receive(sys.stdin.buffer)
    if first is None:
        return 0
    settings = json.loads(first[1])
    responses = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # keeps the output of libvirt and QEMU out of the responses
    config = HandlerConfig(settings["overrides"], settings["seed"])
    root = Path(settings["root"])
    isolate_network()
    confinement = confine(root, lambda: drop_privileges(settings["uid"], settings["gid"]))
    exit_with_parent(settings["parent"])
    host = Libvirt(root)
    handle(PROBE, config, host, as_domain=True)
    confinement.apply("no programs", forbid_programs)
    if not kvm_is_usable():
        confinement.apply("no /proc", lambda: forbid_proc(root))
    _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, hard_limit))
    serve(sys.stdin.buffer, responses, config, host, confinement)
    return 0


def isolate_network() -> None:
    """Moves the process into an empty network namespace, which needs root. In a pod, a NetworkPolicy isolates it."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).unshare(_CLONE_NEWNET)


def drop_privileges(uid: int | None, gid: int | None) -> None:
    """Changes the user permanently. Import all modules before, because that user may not be able to read them."""
    if uid is None or gid is None or os.geteuid() != 0:
        return
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def exit_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when its parent ends. Call it last: a change of the user resets this."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


def serve(
    requests: BinaryIO, responses: BinaryIO, config: HandlerConfig, host: Libvirt, confinement: Confinement
) -> None:
    while (message := receive(requests)) is not None:
        responses.write(pack(*respond(*message, config, host, confinement)))
        # The end of the process removes domains that libvirt could not undefine. A libvirt that fails may want to probe
        # a new QEMU, which only a new worker may do.
        if host.failure:
            print(
                f"a new worker replaces this one, because libvirt failed: {host.failure}", file=sys.stderr, flush=True
            )
        if host.leftovers() or host.failure:
            return


def respond(tag: int, body: bytes, config: HandlerConfig, host: Libvirt, confinement: Confinement) -> Response:
    try:
        if tag == Operation.VERSION:
            return 200, json.dumps(version(host)).encode()
        if tag == Operation.PROBE:  # requests the domain, because a response with a domain never comes from the cache
            status, content = handle(PROBE, config, host, as_domain=True)
            return (200, json.dumps(asdict(confinement)).encode()) if status == 200 else (503, content)
        return handle(body, config, host, as_domain=tag == Operation.DOMAIN)
    except LibvirtUnavailable as error:
        return 503, problems_body([Problem("", str(error))])
    except MemoryError:
        return 501, problems_body([Problem("", "the document needs too much memory")])
    except Exception:  # a bug must not end the worker or be reported as an invalid document
        traceback.print_exc()
        return 500, problems_body([Problem("", "internal error; the log of the defaulter has the details")])


def version(host: Libvirt) -> dict[str, object]:
    names = {libvirts: kubernetes for kubernetes, libvirts in ARCHITECTURES.items()}
    machines = {names[arch]: found for arch, found in host.machines().items() if arch in names}
    return {
        "libvirt": host.version(),
        "qemu": {arch: host.qemu() for arch in machines},
        "machines": {arch: sorted(m for m, real in found.items() if not real) for arch, found in machines.items()},
        "aliases": {arch: {m: real for m, real in found.items() if real} for arch, found in machines.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
