"""Checks the text of both Dockerfiles. tests/node builds and runs them."""

from __future__ import annotations

import fnmatch
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image.dockerfile import expand, instructions

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILES = ("Dockerfile", "Dockerfile.defaulter")
HADOLINT = Path(sys.executable).parent / "hadolint"
STEPS = {name: list(instructions((ROOT / name).read_text())) for name in DOCKERFILES}


def linted(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HADOLINT, str(file)], cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint_finds_nothing(name: str) -> None:
    done = linted(ROOT / name)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_hadolint_is_strict(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian:latest\nRUN cd /tmp && apt-get install curl\n")
    done = linted(bad)
    assert done.returncode != 0
    for rule in ("DL3007", "DL3003", "DL3008", "DL3049"):
        assert rule in done.stdout


def last_of(name: str) -> list[tuple[str, str]]:
    """The steps of the last stage and of the stages below it."""
    stages: dict[str, list[tuple[str, str]]] = {}
    steps: list[tuple[str, str]] = []
    for step, rest in STEPS[name]:
        if step == "FROM":
            base, _, alias = rest.partition(" AS ")
            stages[alias] = steps = [*stages.get(base, ())]
        steps.append((step, rest))
    return steps


@pytest.mark.parametrize("name", DOCKERFILES)
def test_the_last_stage_is_unprivileged_and_has_no_installer(name: str) -> None:
    last = last_of(name)
    assert [rest for step, rest in last if step == "USER"][-1] == "65532:65532"
    assert any(step == "COPY" and rest.startswith("--from=build /opt/poolhouse ") for step, rest in last)
    runs = " ".join(rest for step, rest in last if step == "RUN")
    assert not {"pip", "gcc", "python3-venv", "python3-dev"} & set(shlex.split(runs))


@pytest.mark.parametrize("name", DOCKERFILES)
def test_bases_can_be_pinned_and_packages_are(name: str) -> None:
    shared = {"BASE": "a", "DIGEST": "sha256:b"}
    bases = [expand(rest, shared).partition(" AS ") for step, rest in STEPS[name] if step == "FROM"]
    assert {base for base, _, _ in bases} <= {"a@sha256:b", "scratch", *(alias for _, _, alias in bases)}
    for step, rest in STEPS[name]:
        if step == "RUN":
            installed = [each.split("&&")[0] for each in rest.split("pip install")[1:]]
            # Build tools are installed first and by hash, so that pip does not download others.
            assert all("--require-hashes" in each or "--no-deps ." in each for each in installed)
            assert all("--no-build-isolation" in each or "-r build.lock" in each for each in installed)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_the_image_contains_its_sbom(name: str) -> None:
    steps = last_of(name)
    made = steps.index(("RUN", "/opt/poolhouse/bin/python /opt/poolhouse/sbom.py > /opt/poolhouse/sbom.json"))
    assert not [rest for step, rest in steps[made + 1 :] if step in ("RUN", "COPY")], "nothing comes after it"
    assert ("COPY", "--from=whole /opt/poolhouse/sbom.json /") in STEPS[name]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        pytest.param({"INSTALL": "apt"}, ["apt-get libvirt-dev", "apt-get qemu-system-x86"], id="Debian"),
        pytest.param(
            {"INSTALL": "dnf"},
            ["dnf libvirt-devel", "dnf libvirt-daemon-driver-qemu", "dnf qemu-kvm-core"],
            id="newest of CentOS Stream",
        ),
        pytest.param(
            {"INSTALL": "dnf", "LIBVIRT": "11.9.0", "QEMU": "10.1.0"},
            ["dnf libvirt-devel-11.9.0", "dnf libvirt-daemon-driver-qemu-11.9.0", "dnf qemu-kvm-core-10.1.0"],
            id="versions of virt-launcher",
        ),
    ],
)
def test_versions_of_libvirt_and_qemu_can_be_chosen(
    arguments: dict[str, str], wanted: list[str], tmp_path: Path
) -> None:
    """Runs its steps with package managers that only print their arguments."""
    for manager in ("apt-get", "dnf"):
        (tmp_path / manager).write_text(f'#!/bin/sh\nfor each; do echo "{manager} $each"; done >>{tmp_path}/asked\n')
        (tmp_path / manager).chmod(0o755)
    for removed in ("rm", "mkdir", "chown"):
        (tmp_path / removed).write_text("#!/bin/sh\n")
        (tmp_path / removed).chmod(0o755)
    for rest in (rest for step, rest in STEPS["Dockerfile.defaulter"] if step == "RUN" and "${INSTALL}" in rest):
        subprocess.run(["/bin/sh", "-ec", rest], env={"PATH": str(tmp_path), **arguments}, timeout=180, check=True)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert set(wanted) <= set(asked)
    other = "dnf" if arguments["INSTALL"] == "apt" else "apt-get"
    assert not [each for each in asked if each.startswith(other)]


def test_a_base_with_another_package_manager_is_rejected(tmp_path: Path) -> None:
    for rest in (rest for step, rest in STEPS["Dockerfile.defaulter"] if step == "RUN" and "${INSTALL}" in rest):
        done = subprocess.run(
            ["/bin/sh", "-c", rest],
            env={"PATH": str(tmp_path), "INSTALL": "none"},
            capture_output=True,
            timeout=180,
            check=False,
        )
        assert (done.returncode, done.stderr) == (1, b"INSTALL is apt or dnf, not none\n")


@pytest.mark.parametrize("name", DOCKERFILES)
def test_copied_files_exist_and_are_in_the_build_context(name: str) -> None:
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for step, rest in STEPS[name]:
        if step == "COPY" and not rest.startswith("--from="):
            for source in shlex.split(rest)[:-1]:
                assert (ROOT / source).exists(), source
                assert any(fnmatch.fnmatch(source, each) or source.startswith(f"{each}/") for each in sent), source
