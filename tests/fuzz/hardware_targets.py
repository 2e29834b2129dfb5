"""The targets of the defaulter: hardware records, and domains of libvirt."""

import hashlib
import json
import xml.etree.ElementTree as ET
from asyncio import Runner
from random import Random
from typing import Any

from defaulter import libvirt_schema, libvirt_vm, vm_paths, xml
from defaulter.contract import DEFAULTS_PATH
from defaulter.handler import HandlerConfig, handle
from defaulter.hook import InvalidHardwareRecord, build_record, is_sealed, restore_hardware
from poolhouse.api.apimachinery.unstructured import Json, at
from tests.fuzz import documents
from tests.fuzz.admission_targets import check_answer
from tests.fuzz.mutations import encode, mutate, scalar
from tests.fuzz.oracles import Finding
from tests.fuzz.services import SEED, NoLibvirt, Workers, post


class Records:
    """Hardware records: forged, damaged and excessive ones, in the hook and in the check of seals."""

    name, share = "records", 760

    def __init__(self) -> None:
        folder = documents.ROOT / "tests/defaulter/golden"
        self._domains = {path.stem: path.read_text() for path in sorted(folder.glob("*.xml"))}
        self._sealed = {
            name: build_record(xml.read(text), "9.0.0", "7.2.0", SEED) for name, text in self._domains.items()
        }

    def generate(self, random: Random) -> Json:
        name = random.choice(sorted(self._domains))
        content = json.loads(self._sealed[name])
        if random.random() < 0.9:
            content = mutate(random, content, [json.loads(self._sealed[random.choice(sorted(self._sealed))])])
        return {"domain": name, "record": content, "digest": random.random() < 0.8}

    def repair(self, given: Any) -> Json | None:
        valid = str(given.get("domain")) in self._domains and "record" in given
        return {**given, "domain": str(given["domain"]), "digest": given.get("digest") is True} if valid else None

    def run(self, given: Json) -> None:
        record, domain = given["record"], self._domains[given["domain"]]
        if given["digest"] and isinstance(record, dict):
            record = {key: value for key, value in record.items() if key != "digest"}
            text = json.dumps(record, separators=(",", ":"), sort_keys=True)
            record["digest"] = hashlib.sha256(text.encode()).hexdigest()[:16]
        text = json.dumps(record, separators=(",", ":"), sort_keys=True)
        try:
            if is_sealed(text, SEED) and text not in self._sealed.values():
                raise Finding("value changed", "a record that this cluster did not write passes as its own")
            restored = restore_hardware(text, domain)
        except InvalidHardwareRecord:
            return
        ET.fromstring(restored)
        if restore_hardware(text, restored) != restored:
            raise Finding("not idempotent", "the record restores other hardware the second time")


class Domains:
    """The VM with a libvirt domain as spec: no value that names something of the host reaches libvirt."""

    name, share = "domains", 60

    def __init__(self, runner: Runner, workers: Workers | None) -> None:
        self._runner, self._workers = runner, workers

    def generate(self, random: Random) -> Json:
        spec = _element(random, libvirt_schema.DOMAIN, 0)
        if random.random() < 0.7:
            spec = {
                "memory": {"unit": "MiB", "value": 64},
                "vcpu": {"value": 1},
                "os": {"type": {"os": "hvm", "arch": "x86_64", "machine": "q35"}},
                **(spec if isinstance(spec, dict) else {}),
            }
        for name in random.sample(("commandline", "qemu:commandline", "loader", "nvram", "seclabel"), 2):
            spec[name] = {"value": "/bin/sh", "arg": ["-chardev"]}
        return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VM", "metadata": {"name": "a"}, "spec": {"domain": spec}}

    def repair(self, given: Any) -> Json | None:
        return given if isinstance(given, dict) and vm_paths.is_libvirt_vm(given) else None

    def run(self, given: Json) -> None:
        if self._workers is None:
            no_libvirt: Any = NoLibvirt()
            check_answer(*handle(encode(given), HandlerConfig({}, SEED), no_libvirt))
        else:
            check_answer(*self._runner.run(post(self._workers.app, DEFAULTS_PATH, encode(given))))
            self._workers.check()
        domain = at(given, *libvirt_vm.SPEC)
        if not isinstance(domain, dict) or any(libvirt_vm.validate(domain)):
            return
        for element in libvirt_vm.build(domain).iter():
            for text in (element.text, *element.attrib.values()):
                if text and "/" in text and text not in PLACEHOLDERS:
                    raise Finding("exec", f"{element.tag} has {text!r}")


PLACEHOLDERS = ("/source", "/kernel", "/initrd", "/dev/urandom", "/loader", "/tpm")
DOMAIN_WORDS = (
    "virtio",
    "sata",
    "pci",
    "file",
    "block",
    "q35",
    "unix",
    "bridge",
    "disk",
    "lun",
    "hvm",
    "mount",
    "subsystem",
    "virtiofs",
    "x86_64",
    "vda",
)
HOST_FILES = ("/bin/sh", "/etc/passwd", "/dev/kvm", "../../x", "file:///x", "/proc/self/exe")


def _element(random: Random, schema: libvirt_schema.ElementSchema, depth: int) -> Any:
    found: Json = {}
    rows = {**schema.attributes, **({schema.text: schema.content} if schema.text else {})}
    for name, row in rows.items():
        if random.random() < 0.4:
            fitting = [word for word in (*DOMAIN_WORDS, "0", "1", "2", "64") if row.accepts(word)]
            found[name] = random.choice(fitting if random.random() < 0.95 else (*HOST_FILES, 1, 2, scalar(random)))
    for name, inner in schema.below.items():
        if inner.withheld and random.random() < 0.4:
            found[name] = random.choice(HOST_FILES)
        elif random.random() < (0.6 if depth < 2 else 0.25):
            some = [_element(random, inner, depth + 1) for _ in range(random.choice((0, 1, 1, 2)))]
            found[name] = some if inner.many else (some or [{}])[0]
    return found
