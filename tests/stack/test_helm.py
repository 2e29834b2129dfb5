"""How the program `helm` is found."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from poolhouse.stack import helm
from poolhouse.stack.binaries import kubernetes_version
from tests.waiting import PATIENCE_SECONDS


def silent(text: str) -> None:
    return None


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Helm and the internet, with an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("POOLHOUSE_DOWNLOADS", "never")


def build(target: Path, echo: object) -> None:
    target.write_text("#!/bin/sh\n")


def never(target: Path, echo: object) -> None:
    raise AssertionError("built twice")


def test_helm_is_built_once_and_cached() -> None:
    first = helm.find_helm(silent, build=build)
    assert first.parent.name.startswith(helm.version())

    assert helm.find_helm(silent, build=never) == first


def test_a_second_process_waits_for_the_build_of_the_first() -> None:
    first_builds, second_waits = threading.Event(), threading.Event()

    def slow(target: Path, echo: object) -> None:
        first_builds.set()
        assert second_waits.wait(PATIENCE_SECONDS), "the second one does not wait"
        build(target, echo)

    with ThreadPoolExecutor() as threads:
        first = threads.submit(helm.find_helm, silent, build=slow)
        assert first_builds.wait(PATIENCE_SECONDS)
        second = threads.submit(helm.find_helm, lambda _: second_waits.set(), build=never)
        assert second.result() == first.result()


@pytest.mark.parametrize(
    ("answer", "taken"),
    [
        pytest.param("v3.19.5+g1", True, id="the machine's own"),
        pytest.param("v3.9.0+g1", False, id="too old for the chart's tests"),
        pytest.param("v4.0.0+g1", False, id="another major version, whose words are others"),
    ],
)
def test_helm_on_path_is_used_if_its_version_fits(tmp_path: Path, answer: str, taken: bool) -> None:
    program = tmp_path / "bin" / "helm"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho {answer}\n")
    program.chmod(0o755)
    assert (helm.find_helm(silent, build=build) == program) is taken


def test_the_build_sets_the_kubernetes_version() -> None:
    major, minor = kubernetes_version().removeprefix("v").split(".")[:2]
    flags = " ".join(helm.command(Path("helm")))
    assert f"chartutil.k8sVersionMajor={major}" in flags
    assert f"chartutil.k8sVersionMinor={minor}" in flags
