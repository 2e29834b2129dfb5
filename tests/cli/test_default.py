"""`poolhouse default`, with the libvirt of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from poolhouse.cli.main import poolhouse
from tests.defaulter.builders import disk, nic, pool, spec, vm
from tests.defaulter.test_libvirt_vm import EXAMPLE

pytestmark = pytest.mark.libvirt


def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "poolhouse.cli.main", "default", "-f", "-", *options]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)


def test_vms_get_defaults_and_other_documents_stay() -> None:
    documents = [vm(spec(disk(), nic())), {"kind": "ConfigMap", "data": {"a": "b"}}, pool(spec(disk()))]
    done = run(yaml.safe_dump_all(documents))
    assert done.returncode == 0, done.stderr
    machine, other, template = yaml.safe_load_all(done.stdout)
    assert machine["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0]["disk"]["pciAddress"] == "0000:07:00.0"
    assert other == documents[1]
    assert template["kind"] == "VirtualMachinePool"


def test_a_libvirt_shaped_vm_gets_defaults() -> None:
    given = {"memory": {"value": 65536}, "os": {"type": {"os": "hvm"}}, "sysinfo": {"type": "smbios"}}
    done = run(yaml.safe_dump({"apiVersion": "kubevirt.io/v1alpha1", "kind": "VM", "spec": {"domain": given}}))
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["spec"]["domain"]["os"]["type"]["machine"].startswith("pc-i440fx-")
    assert done.stderr.startswith("Warning: spec.domain.sysinfo: libvirt does not get this field")


@pytest.mark.sentence("4.8", "4.21")
def test_the_example_of_the_design_document_gets_defaults() -> None:
    done = run(yaml.safe_dump(EXAMPLE))
    assert (done.returncode, done.stderr) == (0, "")
    (nic,) = yaml.safe_load(done.stdout)["spec"]["domain"]["devices"]["interfaces"]
    assert (nic["model"]["type"], nic["source"]) == ("rtl8139", {"network": "default"})


def test_xml_is_libvirt_s_domain() -> None:
    done = run(json.dumps(vm(spec(disk(), nic()))), "-o", "xml")
    assert done.stdout.startswith('<domain type="qemu">')
    assert 'bus="0x07"' in done.stdout


def test_an_invalid_document_names_the_field_and_exits_with_1() -> None:
    done = run(json.dumps(vm(spec(domain={"machine": {"type": "q36"}}))))
    assert done.returncode == 1
    assert "spec.template.spec.domain.machine.type: QEMU" in done.stderr


@pytest.mark.parametrize("text", ["{", "- a", "3"])
def test_text_that_is_not_a_manifest_exits_with_1(text: str) -> None:
    assert run(text).returncode == 1


def test_a_server_that_is_not_there_exits_with_3() -> None:
    assert run(json.dumps(vm(spec())), "--server", "http://127.0.0.1:9").returncode == 3


def test_the_first_example_can_be_completed() -> None:
    done = run(Path("examples/pool.yaml").read_text(), "-o", "json")
    assert json.loads(done.stdout)["kind"] == "VirtualMachinePool"


def test_without_the_python_module_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The extra `cli` has no libvirt, and system packages do not help."""
    monkeypatch.setattr("poolhouse.cli.default.find_spec", lambda name: None)
    manifest = tmp_path / "vm.yaml"
    manifest.write_text(
        "{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: web}, spec: {template: {spec: {}}}}"
    )
    told = CliRunner().invoke(poolhouse, ["default", "-f", str(manifest)])
    remedy = "run pip install '.[defaulter]' in a checkout of Poolhouse, or give --server"
    assert f"the Python module libvirt is missing: {remedy}" in told.stderr
    assert told.exit_code != 0
