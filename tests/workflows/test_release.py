"""The scripts of a release: one version everywhere, its notes, its images and its checksums."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / ".github" / "scripts"
DIGEST = "sha256:" + "0123456789abcdef" * 4


def module(name: str) -> ModuleType:
    """A script as a module: its directory is no package, because its name begins with a dot."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


release = module("release")
CHANGELOG = """# Changelog

Text.

## Unreleased
{unreleased}
## {version}

### Added

- A word.

## 1.2.2 - 2026-11-01

- Another.
"""
FILES = {
    "pyproject.toml": '[project]\nname = "poolhouse"\nversion = "{}"\n',
    "client/pyproject.toml": '[project]\nname = "poolhouse-client"\nversion = "{}"\n',
    "agent/pyproject.toml": '[project]\nname = "poolhouse-agent"\nversion = "{}"\n',
    "charts/poolhouse/Chart.yaml": "version: {0}\nappVersion: '{0}'\nannotations:\n  images: poolhouse/poolhouse:{0}\n",
    "Dockerfile": "# docker build -t poolhouse/poolhouse:{0} .\nFROM debian\nARG VERSION={0}\n",
    "Dockerfile.defaulter": "# -t poolhouse/poolhouse-defaulter:{0}\nFROM debian\nARG VERSION={0}\n",
    "docs/install.md": "docker build -t REGISTRY/poolhouse/poolhouse:{} .\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a repository with the version 1.2.3 has of the places that are checked."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.format("1.2.3").replace("'", ""))
    write_changelog(tmp_path)
    return tmp_path


def write_changelog(tree: Path, version: str = "1.2.3", unreleased: str = "") -> None:
    (tree / "CHANGELOG.md").write_text(CHANGELOG.format(version=version, unreleased=unreleased))


def test_a_release_whose_places_agree_has_no_problem(tree: Path) -> None:
    assert list(release.problems("v1.2.3", tree)) == []


@pytest.mark.parametrize("name", FILES)
def test_each_place_with_another_version_is_named(tree: Path, name: str) -> None:
    path = tree / name
    path.write_text(path.read_text().replace("1.2.3", "1.2.2"))
    found = list(release.problems("v1.2.3", tree))
    assert found
    assert all(each.startswith(name) and "1.2.2: must be 1.2.3" in each for each in found)


def test_a_place_without_a_version_is_named(tree: Path) -> None:
    (tree / "Dockerfile").write_text("FROM debian\n")
    assert list(release.problems("v1.2.3", tree)) == [
        "Dockerfile: ARG VERSION: no version: must be 1.2.3, as the tag v1.2.3 says"
    ]


@pytest.mark.parametrize(
    "tag", ["1.2.3", "v1.2", "v01.2.3", "v1.2.3-", "v1.2.3+build", "v1.2.3 ", "v1.2.3\n", "v1.2.3-rc..1", "version", ""]
)
def test_a_tag_that_is_no_version_is_refused(tree: Path, tag: str) -> None:
    (found,) = release.problems(tag, tree)
    assert "must be a semantic version" in found


@pytest.mark.parametrize("version", ["1.2.3-rc.1", "10.0.0", "0.1.0-alpha"])
def test_prerelease_versions_pass_the_check(tree: Path, version: str) -> None:
    for name in FILES:
        (tree / name).write_text((tree / name).read_text().replace("1.2.3", version))
    write_changelog(tree, version)
    assert list(release.problems(f"v{version}", tree)) == []


@pytest.mark.parametrize(
    ("version", "unreleased", "problem"),
    [
        pytest.param("1.2.4", "", "has no section `## 1.2.3`", id="no section"),
        pytest.param("1.2.3", "\n- Forgotten.\n", "Unreleased has entries", id="entries outside of it"),
        pytest.param("1.3.0\n\n- New.\n\n## 1.2.3", "", "1.3.0 is above 1.2.3", id="a newer one above"),
        pytest.param("1.2.3\n\n## 1.2.1", "", "has no section `## 1.2.3` with text", id="an empty section"),
    ],
)
def test_the_changelog_has_the_release_first(tree: Path, version: str, unreleased: str, problem: str) -> None:
    write_changelog(tree, version, unreleased)
    assert any(problem in each for each in release.problems("v1.2.3", tree))


@pytest.mark.parametrize("heading", ["1.2.3", "1.2.3 - 2026-12-01", "[1.2.3] - 2026-12-01"])
def test_the_notes_are_the_section_without_its_heading(heading: str) -> None:
    assert release.sections(CHANGELOG.format(version=heading, unreleased=""))["1.2.3"] == "### Added\n\n- A word."


def test_this_repository_has_one_version() -> None:
    """Only the changelog waits for the release."""
    found = dict(release.versions(ROOT))
    assert len(found) >= 9
    assert len(set(found.values())) == 1


MANIFESTS = """
      containers:
        - name: webhook
          image: registry.example/poolhouse/poolhouse:1.2.3
        - image: "registry.example/poolhouse/poolhouse-defaulter:1.2.3"
"""
IMAGES = [f"registry.example/poolhouse/{name}:1.2.3" for name in ("poolhouse", "poolhouse-defaulter")]


@pytest.mark.parametrize(
    ("images", "problems"),
    [
        pytest.param(IMAGES, [], id="all that it built"),
        pytest.param(
            [IMAGES[0]], ["image registry.example/poolhouse/poolhouse-defaulter:1.2.3 of the"], id="a stranger"
        ),
        pytest.param([*IMAGES, "another:1"], ["image another:1 of this release"], id="one that is not used"),
    ],
)
def test_the_manifests_use_the_images_of_the_release(images: list[str], problems: list[str]) -> None:
    found = list(release.image_problems(MANIFESTS, images))
    assert [each.startswith(start) for each, start in zip(found, problems, strict=True)] == [True] * len(problems)


def test_sha256sum_reads_the_checksums(tmp_path: Path) -> None:
    for name in ("b.tgz", "a.yaml"):
        (tmp_path / name).write_text(name)
    command = [str(SCRIPTS / "release.py"), "checksums", str(tmp_path)]
    for _ in range(2):
        subprocess.run(command, check=True, timeout=60)
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path, check=True, stdout=subprocess.PIPE, timeout=60
    )
    assert done.stdout == b"a.yaml: OK\nb.tgz: OK\n"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("check", "nothing"), 1, "must be a semantic version"),
        (("notes", "9.9.9"), 1, "has no section"),
        (("images", str(ROOT / "README.md"), "an-image:1"), 1, "the manifests do not use it"),
        (("check",), 2, "release.py check"),
        (("images", "install.yaml"), 2, "release.py check"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: tuple[str, ...], code: int, text: str) -> None:
    command = [sys.executable, "-I", str(SCRIPTS / "release.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr


DOCKER = r"""#!/usr/bin/env bash
# Does what `docker` does as far as the script can see it, and writes down its arguments.
echo "$*" >>"$LOG"
case "$1 $2" in
"buildx imagetools") echo "$BASE_DIGEST" ;;
"image inspect") printf '%s\n' "elsewhere.example/poolhouse/poolhouse@sha256:1" "${3%:*}@$PUSHED" ;;
esac
while [ $# -gt 0 ]; do
  [ "$1" != --output ] || { mkdir -p "$2"; echo '{}' >"$2/sbom.json"; }
  shift
done
"""


def build_images(tmp_path: Path, base: str) -> subprocess.CompletedProcess[str]:
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    env = os.environ | {"DOCKER": str(docker), "LOG": str(tmp_path / "log"), "BASE_DIGEST": base, "PUSHED": DIGEST}
    command = [str(SCRIPTS / "release-images.sh"), "registry.example:5000", "1.2.3", "c0ffee", str(tmp_path / "images")]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_both_images_are_built_on_one_base_and_pushed(tmp_path: Path) -> None:
    done = build_images(tmp_path, DIGEST)
    assert done.returncode == 0, done.stderr
    names = ("poolhouse", "poolhouse-defaulter")
    assert (tmp_path / "images" / "images.txt").read_text() == "".join(
        f"registry.example:5000/poolhouse/{name} {DIGEST}\n" for name in names
    )
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == [
        "images.txt",
        "poolhouse-1.2.3.cdx.json",
        "poolhouse-defaulter-1.2.3.cdx.json",
    ]
    calls = (tmp_path / "log").read_text().splitlines()
    assert [call for call in calls if call.startswith("push")] == [
        f"push registry.example:5000/poolhouse/{name}:1.2.3" for name in names
    ]
    builds = [call for call in calls if call.startswith("build ")]
    assert len(builds) == 4
    assert all(f"DIGEST={DIGEST}" in call and "REVISION=c0ffee" in call for call in builds)


def test_a_base_without_a_digest_ends_the_build(tmp_path: Path) -> None:
    done = build_images(tmp_path, "not found")
    assert done.returncode == 1
    assert "has no digest" in done.stderr
    assert "build -f" not in (tmp_path / "log").read_text()


def test_build_arguments_exist() -> None:
    text = (SCRIPTS / "release-images.sh").read_text()
    for name in ("Dockerfile", "Dockerfile.defaulter"):
        declared = (ROOT / name).read_text()
        for argument in ("BASE", "DIGEST", "VERSION", "REVISION"):
            assert f'"{argument}=$' in text
            assert f"\nARG {argument}=" in declared
        assert " AS sbom\n" in declared


def test_files_of_a_release(tmp_path: Path) -> None:
    """The script calls make and Helm in this order; what they do is tested with them."""
    tree = tmp_path / "tree"
    (tree / ".github").mkdir(parents=True)
    shutil.copytree(SCRIPTS, tree / ".github" / "scripts")
    (tree / "dist").mkdir()
    (tree / "dist" / "older.tgz").touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    python = tree / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    for path, text in (
        (programs / "make", 'mkdir -p dist && echo "make $*" >>"$LOG" && touch dist/install.yaml'),
        (programs / "helm", 'echo "helm $*" >>"$LOG" && touch dist/chart.tgz'),
        (python, f'echo "python $*" >>"$LOG"; [ "$2" != poolhouse.stack.helm ] || echo "helm: {programs}/helm"'),
    ):
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}
    env |= {"DOWNLOADS": "https://example.test/v1.2.3", "HOMEPAGE": "https://example.test"}
    subprocess.run([str(tree / ".github/scripts/release-files.sh"), "1.2.3"], env=env, check=True, timeout=60)
    assert (tmp_path / "log").read_text().splitlines() == [
        "make manifests plugin client agent",
        "python -m poolhouse.stack.helm",
        "helm package charts/poolhouse --destination dist",
        "python -m poolhouse.cli.krew dist --version v1.2.3 --homepage https://example.test --archives https://example.test/v1.2.3",
    ]
    assert sorted(path.name for path in (tree / "dist").iterdir()) == ["chart.tgz", "install.yaml", "krew.yaml"]
