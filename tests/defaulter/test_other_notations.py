"""Values that KubeVirt reads in several notations: they are accepted, and stay as they are written."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.unstructured import at
from tests.defaulter.builders import disk, nic, spec, vm
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt

SPEC = ("spec", "template", "spec")


def test_mac_addresses_stay_as_written_and_the_domain_has_colons(libvirt: Libvirt) -> None:
    written = {"colons": "02:00:00:AB:CD:E1", "dashes": "02-00-00-ab-cd-e2", "dots": "0200.00ab.cde3"}
    document = vm(spec(*(nic(name, macAddress=address) for name, address in written.items())))
    answer = libvirt.default(document, seed="s").object
    assert {
        each["name"]: each["macAddress"] for each in at(answer, *SPEC, "domain", "devices", "interfaces")
    } == written
    assert libvirt.default(answer, seed="s").object == answer
    domain = libvirt.domain(document).lower()
    for address in ("02:00:00:ab:cd:e1", "02:00:00:ab:cd:e2", "02:00:00:ab:cd:e3"):
        assert f'address="{address}"' in domain.replace("'", '"')


@pytest.mark.parametrize(
    ("tpm", "exists"),
    [
        pytest.param({"enabled": False}, False, id="disabled"),
        pytest.param({"enabled": False, "persistent": True}, False, id="disabled with a state"),
        pytest.param({"enabled": True}, True, id="enabled"),
        pytest.param({"enabled": None}, True, id="null"),
        pytest.param({}, True, id="empty"),
        pytest.param(None, False, id="no TPM"),
    ],
)
def test_a_disabled_tpm_is_no_device(libvirt: Libvirt, tpm: Any, exists: bool) -> None:
    document = vm(spec(disk(), domain={"devices": {"tpm": tpm}}))
    answer = libvirt.default(document, seed="s")
    assert at(answer.object, *SPEC, "domain", "devices", "tpm") == tpm
    assert not [each for each in answer.warnings if "tpm" in each.lower()]
    assert ("<tpm" in libvirt.domain(document)) == exists
