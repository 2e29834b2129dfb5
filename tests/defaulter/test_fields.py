from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from defaulter import xml
from defaulter.contract import forbidden_changes, undefaulted_fields
from defaulter.fields import DEVICES, DOMAIN, DeviceList, Field, Side
from defaulter.vmi_spec import alias, is_emulated
from defaulter.walker import decode, iter_values, list_devices
from defaulter.xml import Element
from poolhouse.api.apimachinery.problem import format_path
from tests.defaulter.builders import inner
from tests.defaulter.conftest import Libvirt
from tests.defaulter.goldens import FOLDER, NAMES, asked, given, shown

pytestmark = pytest.mark.libvirt


@pytest.mark.parametrize("name", NAMES)
def test_the_domain_matches_its_golden_file(name: str) -> None:
    assert asked(given(name)) == (FOLDER / f"{name}.xml").read_text()


def completed(libvirt: Libvirt, name: str) -> dict[str, Any]:
    answer = libvirt.default(given(name))
    if answer.status == 501 and "emulator" in answer.problems[""]:
        pytest.skip(answer.problems[""])
    return answer.object


@pytest.mark.parametrize("name", NAMES)
def test_the_response_matches_its_golden_file(libvirt: Libvirt, name: str) -> None:
    document = given(name)
    answer = completed(libvirt, name)
    assert shown(answer) == (FOLDER / f"{name}.out.yaml").read_text()
    assert undefaulted_fields(answer) == []
    assert forbidden_changes(document, answer) == []
    assert libvirt.default(answer).object == answer


def said(spec: dict[str, Any], domain: Element) -> Iterator[tuple[Field, str, Any, Any]]:
    """Each row that a spec answers, with the value there and the value in the XML."""
    for row, path, value in iter_values(DOMAIN, spec):
        yield row, format_path(path), value, decode(row, domain)
    for devices in DEVICES:
        for index, (path, device) in enumerate(list_devices(devices, spec)):
            element = _element(devices, device, index, domain)
            if element is not None:
                for row, inside, value in iter_values(devices.fields, device):
                    yield row, format_path((*path, *inside)), value, decode(row, element)


def _element(devices: DeviceList, device: dict[str, Any], index: int, domain: Element) -> Element | None:
    elements = domain.findall(devices.element)
    if not devices.has_alias:
        return elements[index]
    if not is_emulated(device):
        return None
    name = alias(device["name"])
    return next(element for element in elements if any(a.get("name") == name for a in element.iterfind("alias")))


# libvirt leaves these out of what it dumps: they are what it assumes anyway, or this version is too old for them.
UNSAID = {"cdrom.tray", "state", "blockSize.custom.discardGranularity"}
NO_SMBIOS = {"domain.firmware.serial"}


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_agrees_with_the_domain(libvirt: Libvirt, name: str) -> None:
    """All that the completed spec says, read from the domain after KubeVirt's last pass."""
    document = completed(libvirt, name)
    domain = xml.read(libvirt.domain(document))
    agreed: dict[str, bool] = {}
    for row, path, value, found in said(inner(document), domain):
        theirs = found
        if row.codec.encode(value) is None or (row.spec in UNSAID and found is None):
            continue
        if path in NO_SMBIOS and inner(document).get("architecture") == "s390x":
            continue
        if path == "domain.cpu.sockets" and "maxSockets" in inner(document)["domain"]["cpu"]:
            theirs = 1 if domain.find("vcpu[@current]") is not None else None
        # Several rows may say one field together; none may say anything else.
        assert theirs is None or _plain(row, theirs) == _plain(row, value), path
        agreed[path] = agreed.get(path, False) or theirs is not None
    assert [path for path, once in agreed.items() if not once] == []


def _plain(row: Field, value: Any) -> Any:
    encoded = row.codec.encode(value)
    return encoded.lower() if isinstance(encoded, str) else encoded


def test_every_field_of_the_table_is_used_by_a_golden_file() -> None:
    fields = {(kind.spec if kind else "", row.spec, row.xml) for kind in (None, *DEVICES) for row in _rows(kind)}
    used = set()
    for name in NAMES:
        spec = inner(given(name))
        completed = inner(yaml.safe_load((FOLDER / f"{name}.out.yaml").read_text()))
        for source in (spec, completed):
            used |= {("", row.spec, row.xml) for row, _, _ in iter_values(DOMAIN, source)}
            for kind in DEVICES:
                for _, device in list_devices(kind, source):
                    used |= {(kind.spec, row.spec, row.xml) for row, _, _ in iter_values(kind.fields, device)}
    assert fields - used == set()


def _rows(kind: DeviceList | None) -> tuple[Field, ...]:
    return DOMAIN if kind is None else kind.fields


@pytest.mark.sentence("4.3")
def test_only_fields_that_the_guest_sees_are_filled() -> None:
    assert not [row for kind in (None, *DEVICES) for row in _rows(kind) if row.from_libvirt and row.side is Side.HOST]
