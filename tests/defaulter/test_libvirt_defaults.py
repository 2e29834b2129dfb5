"""KubeVirt's published examples get the defaults that libvirt chooses in virt-launcher's defines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from defaulter import hook, xml
from defaulter.allowed_changes import defaulted_fields
from defaulter.contract import forbidden_changes, undefaulted_fields
from tests.defaulter.builders import addresses, inner
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt

Json = dict[str, Any]

FILE = Path(__file__).with_name("examples") / "kubevirt.yaml"
EXAMPLES = [
    pytest.param(document, id=f"{document['kind']} {document['metadata']['name']}")
    for document in yaml.load_all(FILE.read_text(), yaml.CSafeLoader)
]


SPECS: dict[str, Json] = {
    "csmall": {"cpu": {"guest": 1}, "memory": {"guest": "128Mi"}},
    "cluster-csmall": {"cpu": {"guest": 1}, "memory": {"guest": "128Mi"}},
    "clarge": {"cpu": {"guest": 4}, "memory": {"guest": "2Gi"}},
    "virtio": {"devices": {"preferredDiskBus": "virtio", "preferredInterfaceModel": "virtio"}},
    "windows": {
        "clock": {"preferredClockOffset": {"utc": {}}, "preferredTimer": {"hpet": {"present": False}, "hyperv": {}}},
        "devices": {"preferredDiskBus": "sata", "preferredInterfaceModel": "e1000", "preferredTPM": {}},
        "features": {"preferredAcpi": {}, "preferredApic": {}, "preferredSmm": {}},
        "firmware": {"preferredEfi": {"secureBoot": True}},
    },
}


def specs(document: Json) -> Json:
    """The instance type and the preference that an example names."""
    return {
        name: SPECS[document["spec"][name]["name"]]
        for name in ("instancetype", "preference")
        if document["spec"].get(name)
    }


def machine(libvirt: Libvirt, document: Json, **envelope: Any) -> Json:
    """All that libvirt has after the last pass: every device with its place, every controller."""
    return hook.read_record(hook.build_record(xml.read(libvirt.domain(document, **envelope)), "", ""))


@pytest.mark.parametrize("document", EXAMPLES)
def test_an_example_gets_every_default(libvirt: Libvirt, document: Json) -> None:
    answer = libvirt.default(document, **specs(document)).object
    assert undefaulted_fields(answer) == []
    assert forbidden_changes(document, answer) == []
    assert libvirt.default(answer, **specs(document)).object == answer
    given, after = defaulted_fields(document), defaulted_fields(answer)
    kept = {place for place in given if given[place] and place != "domain.machine.type"}
    assert {place: after[place] for place in kept} == {place: given[place] for place in kept}


@pytest.mark.parametrize("document", EXAMPLES)
@pytest.mark.sentence("4.6")
def test_the_defaults_are_those_of_virt_launcher(libvirt: Libvirt, document: Json) -> None:
    answer = libvirt.default(document, **specs(document)).object
    chosen = machine(libvirt, document, **specs(document))
    written = {name: address for name, address in addresses(answer).items() if address}
    for name, address in written.items():
        parts = next(v for key, v in chosen["addresses"].items() if key.endswith(f" ua-{name}"))
        assert address == ":".join(parts[part][2:] for part in ("domain", "bus", "slot")) + f".{parts['function'][2:]}"
    domain = inner(answer)["domain"]
    if "machine" in domain:
        assert domain["machine"]["type"] == chosen["machine"]
    assert machine(libvirt, answer, **specs(document)) == chosen, "and at the next start it is the same machine"


def test_every_example_of_kubevirt_is_tested() -> None:
    assert len(EXAMPLES) == 35
    assert {document.values[0]["kind"] for document in EXAMPLES} == {
        "VirtualMachine",
        "VirtualMachineInstance",
        "VirtualMachineInstanceReplicaSet",
    }
