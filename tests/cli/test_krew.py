"""krew takes the manifest: its rules, as `validate-krew-manifest` and the index's reviewers have them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.krew import TEMPLATE, krew, manifest
from poolhouse.cli.output import Failed

NAMES = ("kubectl-poolhouse-linux-amd64.tar.gz", "kubectl-poolhouse-darwin-arm64.tar.gz")
SYSTEMS = {("linux", "amd64"), ("linux", "arm64"), ("darwin", "amd64"), ("darwin", "arm64"), ("windows", "amd64")}
FIELDS = {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}
SHORT = 50


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "install.yaml").write_text("")
    return tmp_path


def complaints(document: Json) -> Iterator[str]:
    """What krew would refuse."""
    spec = document["spec"]
    if document["apiVersion"] != "krew.googlecontainertools.github.com/v1alpha2" or document["kind"] != "Plugin":
        yield "apiVersion and kind"
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", document["metadata"]["name"]):
        yield "a name is lower case, with hyphens"
    if not re.fullmatch(r"v\d+\.\d+\.\d+([-+].+)?", str(spec["version"])):
        yield "a version is semantic and begins with v"
    if set(spec) != FIELDS:
        yield f"fields {set(spec) ^ FIELDS}"
    short = spec["shortDescription"]
    if (
        not short
        or "\n" in short
        or len(short) > SHORT
        or short.endswith(".")
        or re.search("kubectl|plugin", short, re.I)
    ):
        yield "a short description is one phrase that does not say that it is a plugin"
    if not spec["platforms"]:
        yield "no platform"
    for each in spec["platforms"]:
        labels = each["selector"]["matchLabels"]
        if (labels.get("os"), labels.get("arch")) not in SYSTEMS or len(labels) != 2:
            yield f"{labels} selects nothing"
        if not re.fullmatch("[a-f0-9]{64}", each["sha256"]):
            yield "sha256"
        if not re.fullmatch(r"https://\S+\.(tar\.gz|zip)", each["uri"]):
            yield "an archive is a tar.gz or zip behind https"
        if Path(each["bin"]).is_absolute() or ".." in Path(each["bin"]).parts:
            yield "bin is in the archive"


def test_krew_takes_the_manifest(archives: Path) -> None:
    found = manifest(archives, "v1.2.3", "https://poolhouse.example", "https://poolhouse.example/v1.2.3/")
    assert list(complaints(found)) == []
    assert found["metadata"]["name"] == "poolhouse", "kubectl finds it as kubectl-poolhouse"
    assert [each["uri"].rpartition("/")[2] for each in found["spec"]["platforms"]] == sorted(NAMES)
    assert found["spec"]["platforms"][1]["sha256"] == hashlib.sha256(NAMES[0].encode()).hexdigest()
    assert "$" not in yaml.safe_dump(found)


def test_the_check_finds_all_that_krew_refuses(archives: Path) -> None:
    found = manifest(archives, "v1.2.3", "https://poolhouse.example", "http://poolhouse.example")
    found["metadata"]["name"] = "Pool_House"
    found["spec"] |= {"version": "1.2", "shortDescription": "A kubectl plugin."}
    found["spec"]["platforms"][0] |= {"sha256": "0", "bin": "/bin/sh"}
    assert len(list(complaints(found))) == 7


@pytest.mark.parametrize("version", ["1.2.3", "v1.2", "latest", "v1.2.3\n"])
def test_a_version_that_krew_cannot_compare_is_refused(archives: Path, version: str) -> None:
    with pytest.raises(Failed, match="--version"):
        manifest(archives, version, "https://a", "https://a")


def test_without_archives_the_error_names_make_plugin(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="make plugin"):
        manifest(tmp_path, "v1.2.3", "https://a", "https://a")


def test_the_krew_manifest_is_printed_as_yaml(archives: Path) -> None:
    options = ["--version", "v1.2.3", "--homepage", "https://a", "--archives", "https://a"]
    done = CliRunner().invoke(krew, [str(archives), *options])
    assert (done.exit_code, yaml.safe_load(done.stdout)["spec"]["version"]) == (0, "v1.2.3")


def test_the_template_has_every_placeholder_and_no_value() -> None:
    assert set(re.findall(r"\$(\w+)", TEMPLATE.read_text())) == {"version", "homepage", "os", "arch", "uri", "sha256"}
