"""The end-to-end workflow: its matrix, and what its scripts decide."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from poolhouse.api.kubevirt.versions import OLDEST, RELEASES, parse_release
from tests.e2e.target import OPTIONS
from tests.workflows.test_release import SCRIPTS, module

ROOT = SCRIPTS.parent.parent
WORKFLOW = (ROOT / ".github" / "workflows" / "e2e.yml").read_text()
JOB = yaml.safe_load(WORKFLOW)["jobs"]["e2e"]
ROWS = JOB["strategy"]["matrix"]["include"]
REPOSITORIES = [line.split() for line in (ROOT / ".github/e2e/csi.txt").read_text().splitlines() if line[0] != "#"]

custom_resources = module("custom_resources")


def test_the_matrix_has_each_supported_release_once() -> None:
    assert [parse_release(row["kubevirt"]) for row in ROWS] == list(RELEASES)


def test_the_pages_name_the_oldest_release_of_the_matrix() -> None:
    assert "KubeVirt](https://kubevirt.io) {}.{} or later".format(*OLDEST) in (ROOT / "docs/install.md").read_text()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["kubevirt"])
def test_a_row_names_releases_and_a_pinned_node(row: dict[str, str]) -> None:
    assert row.keys() == {"kubevirt", "cdi", "node"}
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+", row[name]) for name in ("kubevirt", "cdi"))
    node = re.fullmatch(r"kindest/node:v(\d+)\.(\d+)\.\d+@sha256:[0-9a-f]{64}", row["node"])
    chart = yaml.safe_load((ROOT / "charts/poolhouse/Chart.yaml").read_text())
    oldest = re.match(r">=(\d+)\.(\d+)", chart["kubeVersion"])
    assert (int(node[1]), int(node[2])) >= (int(oldest[1]), int(oldest[2]))


def test_newer_releases_run_on_newer_clusters() -> None:
    """`kind` names no two versions of Kubernetes with one digest."""
    assert [row["node"] for row in ROWS] == sorted({row["node"] for row in ROWS})
    assert len({row["node"].partition("@")[2] for row in ROWS}) == len(ROWS)


def test_the_cluster_has_two_nodes_for_vms() -> None:
    config = yaml.safe_load((ROOT / ".github/e2e/kind.yaml").read_text())
    assert [node["role"] for node in config["nodes"]].count("worker") == 2


def test_the_suite_gets_options_that_it_has_and_every_source() -> None:
    (test,) = (step for step in JOB["steps"] if step.get("name") == "Test")
    given = set(re.findall(r"--[a-z-]+", test["run"] + test["env"]["SOURCES"]))
    assert given <= OPTIONS.keys()
    assert given >= {"--http", "--missing-http", "--registry", "--clone", "--data-source"}
    assert all(f"{name} :=" in (ROOT / "Makefile").read_text() for name in re.findall(r" ([A-Z]+)=", test["run"]))


def test_repositories_are_pinned_by_commit() -> None:
    assert REPOSITORIES
    for name, version, commit in REPOSITORIES:
        assert re.fullmatch(r"[a-z-]+", name)
        assert re.fullmatch(r"v\d+\.\d+\.\d+", version)
        assert re.fullmatch(r"[0-9a-f]{40}", commit)


def test_the_storage_is_installed_from_repositories_of_the_list() -> None:
    text = (SCRIPTS / "install-storage.sh").read_text().replace("external-{provisioner,attacher,resizer}", "")
    used = set(re.findall(r"\b(external-[a-z]+(?:-monitor)?|csi-driver-host-path)/", text))
    names = {name for name, _, _ in REPOSITORIES}
    assert used | {"external-provisioner", "external-attacher", "external-resizer"} == names


@pytest.mark.parametrize(
    ("version", "gates"),
    [
        pytest.param("v1.5.3", ["HotplugVolumes", "Snapshot"], id="only hotplug by request"),
        pytest.param(
            "v1.6.6", ["DeclarativeHotplugVolumes", "PanicDevices", "Snapshot", "VideoConfig"], id="all are alpha"
        ),
        pytest.param(
            "v1.8.4", ["DeclarativeHotplugVolumes", "PanicDevices", "Snapshot", "VideoConfig"], id="beta is off"
        ),
        pytest.param("v1.9.0", [], id="beta is on"),
    ],
)
def test_kubevirt_gets_the_gates_that_are_off(version: str, gates: list[str]) -> None:
    release = parse_release(version)
    assert release is not None
    developer = custom_resources.kubevirt(release)["spec"]["configuration"]["developerConfiguration"]
    assert developer == {"useEmulation": True, "featureGates": gates}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["kubevirt"])
def test_the_objects_are_printed_for_each_row(row: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert custom_resources.main(["kubevirt", row["kubevirt"]]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["metadata"] == {"name": "kubevirt", "namespace": "kubevirt"}


@pytest.mark.parametrize(
    "arguments", [[], ["kubevirt"], ["kubevirt", "latest"], ["virtio"], ["cdi", "v1.66.0"]], ids=str
)
def test_other_arguments_are_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert custom_resources.main(arguments) == 2
    assert capsys.readouterr().out == ""


def program(directory: Path, name: str, text: str) -> Path:
    """A program that writes its arguments into the file `log` beside it, and then does what the text says."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f'#!/usr/bin/env bash\necho "{name} $*" >>"{directory}/log"\n{text}\n')
    path.chmod(0o755)
    return path


def run(script: str, *arguments: str, **env: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPTS / script), *arguments],
        cwd=ROOT,
        env=os.environ | {name: str(value) for name, value in env.items()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


CONTENT = "the operator's manifests\n"
GOOD = "sha256:" + hashlib.sha256(CONTENT.encode()).hexdigest()
GH = r"""
case $1 in
api) [ -z "$DIGEST" ] || echo "$DIGEST" ;;
release) while [ "$1" != --output ]; do shift; done; printf %s "$CONTENT" >"$2" ;;
esac
"""


@pytest.mark.parametrize(
    ("digest", "code", "text"),
    [
        pytest.param(GOOD, 0, f"kubevirt-operator.yaml {GOOD}", id="the recorded digest"),
        pytest.param("sha256:" + "0" * 64, 1, "FAILED", id="other content"),
        pytest.param("null", 1, "has no digest, but: null", id="uploaded before digests were recorded"),
        pytest.param("", 1, "has no digest, but: nothing", id="no such file"),
    ],
)
def test_a_file_of_a_release_is_compared_with_its_digest(tmp_path: Path, digest: str, code: int, text: str) -> None:
    gh = program(tmp_path / "bin", "gh", GH)
    file = "kubevirt-operator.yaml"
    arguments = ("kubevirt/kubevirt", "v1.9.0", file, str(tmp_path / file))
    done = run("fetch-asset.sh", *arguments, GH=gh, DIGEST=digest, CONTENT=CONTENT)
    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr
    assert (tmp_path / file).exists() == digest.startswith("sha256:")


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.test", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def test_repositories_are_fetched_at_their_commits(tmp_path: Path) -> None:
    source = tmp_path / "server" / "driver"
    source.mkdir(parents=True)
    git(source, "init", "-q")
    for text in ("first", "second"):
        (source / "file").write_text(text)
        git(source, "add", "file")
        git(source, "commit", "-q", "-m", text)
    first = git(source, "rev-parse", "HEAD^")
    names = tmp_path / "list.txt"
    names.write_text(f"# name, version, commit\n\ndriver v1.0.0 {first}\n")
    done = run("fetch-commits.sh", str(names), str(tmp_path / "server"), str(tmp_path / "found"))
    assert (done.returncode, done.stdout) == (0, "driver v1.0.0\n"), done.stderr
    assert (tmp_path / "found" / "driver" / "file").read_text() == "first"

    names.write_text(f"driver v1.0.0 {'0' * 40}\n")
    assert run("fetch-commits.sh", str(names), str(tmp_path / "server"), str(tmp_path / "none")).returncode != 0


KUBECTL = r"""
cat >/dev/null
case "$1 $2" in "get kubevirt") printf %s "$KUBEVIRT" ;; "get cdi") printf %s "$CDI" ;; esac
"""


def install_kubevirt(tmp_path: Path, **installed: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    programs = tmp_path / "bin"
    program(programs, "kubectl", KUBECTL)
    gh = program(programs, "gh", GH)
    python = program(programs, "python", "")
    path = f"{programs}:{os.environ['PATH']}"
    env = {"PATH": path, "GH": gh, "PYTHON": python, "DIGEST": GOOD, "CONTENT": CONTENT, **installed}
    done = run("install-kubevirt.sh", "v1.9.0", "v1.66.0", **env)
    return done, (programs / "log").read_text().splitlines()


def test_kubevirt_and_cdi_are_installed_by_their_operators(tmp_path: Path) -> None:
    done, calls = install_kubevirt(tmp_path, KUBEVIRT="v1.9.0", CDI="v1.66.0")
    assert done.returncode == 0, done.stderr
    waits = [call for call in calls if call.startswith(("kubectl wait", "kubectl rollout"))]
    assert len(waits) == 6
    assert all("--timeout=" in call for call in waits)
    assert [call.partition("custom_resources.py ")[2] for call in calls if call.startswith("python")] == [
        "kubevirt v1.9.0",
        "cdi",
    ]
    assert "KubeVirt v1.9.0 is available" in done.stdout
    assert "CDI v1.66.0 is available" in done.stdout


def test_another_version_than_asked_for_is_an_error(tmp_path: Path) -> None:
    done, _ = install_kubevirt(tmp_path, KUBEVIRT="v1.8.4", CDI="v1.66.0")
    assert done.returncode == 1
    assert "KubeVirt is v1.8.4, expected v1.9.0" in done.stderr


def test_the_chart_gets_the_images_that_were_built(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    for name in ("docker", "go", "kubectl", "helm"):
        program(programs, name, "")
    python = program(programs, "python", f'echo "building Helm"; echo "helm: {programs}/helm"')
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHON": python}
    done = run("install-poolhouse.sh", "test", **env)
    assert done.returncode == 0, done.stderr
    calls = (programs / "log").read_text().splitlines()
    chart = yaml.safe_load((ROOT / "charts/poolhouse/Chart.yaml").read_text())
    images = [f"poolhouse/{name}:{chart['appVersion']}" for name in ("poolhouse", "poolhouse-defaulter")]
    built = [found[1] for call in calls if (found := re.search(r"docker build --tag (\S+)", call))]
    (load,) = (call for call in calls if call.startswith("go "))
    assert built == images
    assert load.endswith(f"--name test {' '.join(images)}")
    assert calls[-1].startswith("helm upgrade --install poolhouse charts/poolhouse --namespace poolhouse-system --wait")


def test_a_command_that_hangs_or_fails_is_a_part_of_the_state(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    program(programs, "kubectl", 'case "$*" in *"get nodes"*) exec sleep 600 ;; *) echo "refused" >&2; exit 1 ;; esac')
    poolhouse = program(programs, "poolhouse", 'echo "collected"')
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "POOLHOUSE": poolhouse, "SECONDS_EACH": 5}
    done = run("diagnostics.sh", str(tmp_path / "state"), **env)
    assert done.returncode == 0, done.stderr
    assert "exit code 124: kubectl" in (tmp_path / "state" / "nodes.txt").read_text()
    assert "refused\nexit code 1: kubectl" in (tmp_path / "state" / "pods.txt").read_text()
    assert (tmp_path / "state" / "support-bundle.txt").read_text() == "collected\n"
