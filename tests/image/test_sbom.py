"""Runs the program that lists the contents of an image on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

REQUIREMENTS = Path(__file__).resolve().parent.parent.parent / "requirements"
PROGRAM = REQUIREMENTS / "sbom.py"

Json = dict[str, Any]


def sbom(path: str = os.environ["PATH"]) -> Json:
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], env={"PATH": path}, capture_output=True, text=True, timeout=180, check=True
    )
    found: Json = json.loads(done.stdout)
    return found


def fake_path(directory: Path, name: str, lines: list[str]) -> str:
    """Writes a fake_path package manager with these packages; returns its PATH."""
    (directory / "lines").write_text("".join(f"{line}\n" for line in lines))
    (directory / name).write_text(f'#!/bin/sh\nwhile read -r line; do echo "$line"; done <{directory}/lines\n')
    (directory / name).chmod(0o755)
    return str(directory)


def purls(document: Json, kind: str) -> list[str]:
    return [each["purl"] for each in document["components"] if each["purl"].startswith(f"pkg:{kind}/")]


def test_packages_of_python_in_cyclonedx() -> None:
    document = sbom()
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.5", 1)
    assert f"pkg:pypi/click@{version('click')}" in purls(document, "pypi")
    assert document["metadata"]["component"] == {
        "type": "application",
        "name": "poolhouse",
        "version": version("poolhouse"),
        "bom-ref": "poolhouse",
    }
    assert not [each for each in document["components"] if each["name"] == "poolhouse"]
    references = [each["bom-ref"] for each in document["components"]]
    assert len(references) == len(set(references))


def test_packages_of_npm_that_the_console_has_scripts_of() -> None:
    lock = json.loads((REQUIREMENTS / "npm" / "package-lock.json").read_text())["packages"]
    names = json.loads((REQUIREMENTS / "npm" / "package.json").read_text())["dependencies"]
    listed = {each["name"]: each for each in sbom()["components"] if each["purl"].startswith("pkg:npm/")}
    assert listed.keys() == names.keys()
    for name, version_ in names.items():
        assert listed[name]["version"] == version_
        assert listed[name]["licenses"] == [{"expression": lock[f"node_modules/{name}"]["license"]}]
    assert purls(sbom(), "npm")[0] == f"pkg:npm/%40novnc/novnc@{names['@novnc/novnc']}"


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no Debian")
def test_packages_of_debian() -> None:
    assert [each for each in purls(sbom(), "deb") if "/libc6@" in each and "?arch=" in each]


def test_removed_packages_of_debian_are_not_listed(tmp_path: Path) -> None:
    lines = ["installed\tlibc6\t1:2.36-9+deb12u1\tamd64", "config-files\tgone\t1\tamd64"]
    (found,) = purls(sbom(fake_path(tmp_path, "dpkg-query", lines)), "deb")
    assert "/libc6@1%3A2.36-9%2Bdeb12u1?arch=amd64&distro=" in found


def test_packages_of_centos(tmp_path: Path) -> None:
    lines = [
        "qemu-kvm-core\t17\t10.1.0-3.el9\tx86_64",
        "libvirt-libs\t0\t11.9.0-1.el9\tx86_64",
        "gpg-pubkey\t0\t8483c65d-5ccc5b19\t(none)",
    ]
    document = sbom(fake_path(tmp_path, "rpm", lines))
    found = purls(document, "rpm")
    assert ["epoch=17" in each for each in found] == [False, True]
    assert found[1].partition("?")[0].endswith("/qemu-kvm-core@10.1.0-3.el9")
    assert purls(document, "deb") == []


def test_the_output_is_reproducible() -> None:
    assert sbom() == sbom()
