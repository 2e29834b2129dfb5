"""The files of other projects that pages load."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
VENDORED = ROOT / "poolhouse" / "console" / "vendored"
NPM = ROOT / "requirements" / "npm"


def test_vendored_files_have_their_checksums() -> None:
    sums = dict(reversed(line.split()) for line in (VENDORED / "SHA256SUMS").read_text().splitlines())
    files = [each for each in VENDORED.iterdir() if each.name != "SHA256SUMS"]
    assert {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files} == sums


def test_each_has_its_licence_and_is_locked_by_its_hash() -> None:
    lock = json.loads((NPM / "package-lock.json").read_text())["packages"]
    licences, notice = (VENDORED / "LICENCES.txt").read_text(), (ROOT / "NOTICE").read_text()
    names = json.loads((NPM / "package.json").read_text())["dependencies"]
    scripts = {each.stem for each in VENDORED.iterdir() if each.suffix in (".css", ".js")}
    assert scripts == {name.rpartition("/")[2] for name in names}
    for name, version in names.items():
        assert f"== {name}/" in licences
        assert f"{name} {version}" in notice
        assert lock[f"node_modules/{name}"]["version"] == version
    assert all(each["integrity"].startswith("sha512-") for path, each in lock.items() if path)
    assert not any("resolved" in each for each in lock.values()), "a lock has no address of a registry"
