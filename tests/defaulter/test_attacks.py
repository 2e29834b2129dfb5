"""Attacks by a tenant on the whole service: the webhook, the defaulter and a worker with the real libvirt."""

from __future__ import annotations

import hashlib
import json
from asyncio import Runner
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from defaulter.contract import DEFAULTS_PATH
from defaulter.hook import HARDWARE_ANNOTATION
from poolhouse.api.kinds.meta import UNDEFAULTED
from tests.defaulter.builders import disk, spec, vm
from tests.fuzz.mutations import encode
from tests.fuzz.services import LocalDefaulter, Workers, create_webhook, post, running
from tests.webhook.builders import patched, review

pytestmark = pytest.mark.libvirt

Json = dict[str, Any]


class Service:
    def __init__(self, runner: Runner, workers: Workers) -> None:
        self._runner, self._workers = runner, workers
        self._webhook = create_webhook(LocalDefaulter(workers.app))

    def default(self, document: Json) -> tuple[int, Any]:
        """The answer of the defaulter, from the worker that has answered all requests before."""
        status, content = self._runner.run(post(self._workers.app, DEFAULTS_PATH, encode(document)))
        self._workers.check()
        return status, json.loads(content)

    def admit(self, document: Json) -> Json:
        """The VM that an API server stores."""
        _, content = self._runner.run(post(self._webhook, "/mutate", encode(review(document))))
        stored: Json = patched(document, json.loads(content)["response"])
        return stored


@pytest.fixture(scope="module")
def service(warm: Path) -> Iterator[Service]:
    with Runner() as runner, running(runner, warm) as workers:
        yield Service(runner, workers)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that tells when it runs."""
    found = tmp_path / "program"
    found.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    for path in (found, tmp_path, *list(tmp_path.parents)[:-2]):
        path.chmod(0o777 if path in (found, tmp_path) else path.stat().st_mode | 0o011)
    return found


def libvirt_vm(**domain: Any) -> Json:
    given = {
        "memory": {"value": 65536},
        "vcpu": {"value": 1},
        "os": {"type": {"os": "hvm", "arch": "x86_64", "machine": "q35"}},
        **domain,
    }
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VM", "metadata": {"name": "a"}, "spec": {"domain": given}}


def os_with(**more: Any) -> Json:
    return {"os": {"type": {"os": "hvm", "arch": "x86_64", "machine": "q35"}, **more}}


PLACES = {
    "emulator": lambda path: {"devices": {"emulator": path}},
    "emulator as an object": lambda path: {"devices": {"emulator": {"value": path, "path": path}}},
    "loader": lambda path: {
        "features": {"acpi": {}},
        **os_with(loader={"value": path, "path": path, "type": "pflash", "readonly": "yes"}),
    },
    "nvram": lambda path: os_with(nvram={"value": path, "template": path}),
    "kernel and initrd": lambda path: os_with(kernel=path, initrd=path, cmdline=path),
    "source of a disk": lambda path: {
        "devices": {"disks": [{"type": "file", "device": "disk", "target": {"dev": "vda"}, "source": {"file": path}}]}
    },
    "driver of a disk": lambda path: {
        "devices": {"disks": [{"target": {"dev": "vda"}, "source": {}, "driver": {"name": path, "type": path}}]}
    },
    "backend of a generator": lambda path: {"devices": {"rngs": [{"model": "virtio", "backend": {"value": path}}]}},
    "socket of a channel": lambda path: {
        "devices": {"channels": [{"type": "unix", "source": {"path": path}, "target": {"type": "virtio", "name": "a"}}]}
    },
    "options of QEMU": lambda path: {"qemu:commandline": {"qemu:arg": [{"value": path}]}, "commandline": [path]},
    "security label": lambda path: {"seclabel": {"type": "static", "label": path}},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.sentence("4.19")
def test_libvirt_runs_no_program_and_tells_of_no_file(service: Service, program: Path, place: str) -> None:
    missing = program.with_name("missing")
    answers = []
    for path in (program, missing):
        status, content = service.default(libvirt_vm(**PLACES[place](str(path))))
        assert status == 200, content
        answers.append(json.dumps(content).replace(str(path), "PATH"))
    assert answers[0] == answers[1], "the answer tells whether the file exists"
    assert not program.with_name("ran").exists()


def recorded(*controllers: Json) -> Json:
    """A VM with a forged hardware record: anybody can compute its digest."""
    content = {"v": 1, "libvirt": "9", "qemu": "7", "machine": "pc-q35-7.2", "addresses": {}, "models": {}}
    content["controllers"] = list(controllers)
    text = json.dumps(content, separators=(",", ":"), sort_keys=True)
    content["digest"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    record = json.dumps(content, separators=(",", ":"), sort_keys=True)
    return vm(spec(disk()), annotations={HARDWARE_ANNOTATION: record})


MOST = 2**31 - 1
PORTS = [{"type": "pci", "index": str(number), "model": "pcie-root-port"} for number in range(10000)]
HEAVY = {
    **{
        f"{part} {MOST}": vm(spec(domain={"cpu": {part: MOST}}))
        for part in ("maxSockets", "sockets", "cores", "threads")
    },
    "a product of vCPUs": vm(spec(domain={"cpu": {"sockets": 1024, "cores": 1024, "threads": 1024}})),
    "negative numbers": vm(spec(domain={"cpu": {"sockets": -MOST, "cores": -MOST, "maxSockets": -MOST}})),
    "a controller with a huge index": recorded({"type": "scsi", "index": str(MOST), "model": "virtio-scsi"}),
    "10,000 controllers": recorded(
        *({"type": "pci", "index": str(n), "model": "pcie-root-port"} for n in range(10000))
    ),
    "255 bridges": recorded(*({"type": "pci", "index": str(n), "model": "pci-bridge"} for n in range(1, 256))),
    "10,000 disks": vm(spec(*(disk(f"d{n}") for n in range(10000)))),
    "256 disks of every bus": vm(spec(*(disk(f"d{n}", ("virtio", "sata", "scsi", "usb")[n % 4]) for n in range(256)))),
    "a huge memory": vm(spec(domain={"memory": {"guest": "9" * 4000}})),
    "60,000 tolerations": vm(spec(disk(), tolerations=[{"key": f"a{n}"} for n in range(60000)])),
}


@pytest.mark.parametrize("attack", HEAVY)
def test_heavy_documents_stay_within_the_deadline(service: Service, attack: str) -> None:
    """`Workers.check` fails if the worker was replaced or has used more processor time than the deadline."""
    status, content = service.default(HEAVY[attack])
    assert status in (200, 422), content
    if status == 422:
        assert all(problem["path"] for problem in content["problems"])


def test_documents_that_cannot_be_decided_leave_defaulting_on(service: Service) -> None:
    for number in range(12):
        undecided = vm(spec(disk(), architecture=("arm64", "s390x")[number % 2]), name=f"other-{number}")
        service.admit(undecided)
    stored = service.admit(vm(spec(disk()), name="mine"))
    assert UNDEFAULTED not in stored["metadata"].get("annotations", {})
    assert stored["spec"]["template"]["spec"]["domain"]["machine"]["type"].startswith("pc-q35-")


def test_a_record_of_another_cluster_is_no_record_of_this_one(service: Service) -> None:
    forged = recorded({"type": "scsi", "index": "7", "model": "virtio-scsi"})
    given = forged["spec"]["template"]["metadata"]["annotations"][HARDWARE_ANNOTATION]
    stored = service.admit(forged)["spec"]["template"]["metadata"]["annotations"][HARDWARE_ANNOTATION]
    assert stored != given
    assert '"index":"7"' not in stored
