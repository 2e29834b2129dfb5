"""A hundred random libvirt-shaped VMs get what plain libvirt gives the same domains, and nothing more a second time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from lxml import etree

from defaulter.libvirt_schema import DOMAIN, ElementSchema
from defaulter.root_directories import RootDirectories
from tests.defaulter.conftest import Libvirt
from tests.defaulter.libvirt_documents import generate, vm

pytestmark = pytest.mark.libvirt

SEEDS = range(100)
DOCUMENTS = [generate(Random(seed)) for seed in SEEDS]


@pytest.fixture(scope="module")
def plain(libvirt: Libvirt, warm: Path, user: tuple[int | None, int | None]) -> list[dict[str, str]]:
    """libvirt's answers to the XML of the documents, below a directory whose name is quoted in a URI. The fixture
    `libvirt` has probed QEMU."""
    roots = RootDirectories(None, *user, warm=warm)
    root = roots.make(0).rename(roots.base / "Jörg's 50%25")
    command = [sys.executable, "-m", "tests.defaulter.plain_libvirt", root, *map(str, user)]
    texts = json.dumps([text for _, text in DOCUMENTS])
    done = subprocess.run(command, input=texts, capture_output=True, text=True, timeout=300, check=False)
    roots.remove()
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, str]] = json.loads(done.stdout)
    return answers


def shown(text: str) -> str:
    """The domain without aliases, and with its controllers in order: no guest sees the others' places in the text."""
    domain = etree.fromstring(text, etree.XMLParser(remove_blank_text=True))
    for alias in [*domain.iter("alias")]:
        alias.getparent().remove(alias)
    devices = domain.find("devices")
    devices.extend(sorted(devices.iterfind("controller"), key=lambda each: (each.get("type"), int(each.get("index")))))
    etree.indent(domain)
    return etree.tostring(domain, encoding="unicode")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.sentence("4.15", "4.22")
def test_a_random_vm_gets_what_plain_libvirt_chooses(libvirt: Libvirt, plain: list[dict[str, str]], seed: int) -> None:
    spec, _ = DOCUMENTS[seed]
    expected = plain[seed]
    answer = libvirt.default(vm(spec))
    if "error" in expected:
        assert answer.status == 422
        assert expected["error"] in answer.problems.values()
        return
    assert answer.warnings == []
    assert shown(libvirt.domain(vm(spec))) == shown(expected["xml"])
    again = libvirt.default(answer.object)
    assert again.object == answer.object
    assert shown(libvirt.domain(answer.object)) == shown(expected["again"])
    assert libvirt.default(vm(spec), oldObject=answer.object).object == answer.object


def test_most_random_vms_are_valid(plain: list[dict[str, str]]) -> None:
    assert sum("xml" in each for each in plain) > 60


HOST = {"domain/name", "domain/devices/audio"}
"""elements that libvirt adds and that are not read back: a name of the host's, and where the host plays sound"""


def unread(element: etree._Element, schema: ElementSchema, path: str) -> Iterator[str]:
    """What the domain has and the table has not."""
    attributes = set(map(str, element.attrib)) - schema.attributes.keys() - schema.below.keys()
    yield from (f"{path}/@{name}" for name in sorted(attributes))
    by_element = {inner.element: inner for inner in schema.below.values()}
    for child in element:
        inner, here = by_element.get(str(child.tag)), f"{path}/{child.tag}"
        if inner is None and here not in HOST:
            yield here
        elif inner is not None and not inner.withheld:
            yield from unread(child, inner, here)


@pytest.mark.sentence("4.2")
def test_all_that_libvirt_adds_is_read(plain: list[dict[str, str]]) -> None:
    domains = (etree.fromstring(each["xml"]) for each in plain if "xml" in each)
    assert {path for domain in domains for path in unread(domain, DOMAIN, "domain")} == set()
