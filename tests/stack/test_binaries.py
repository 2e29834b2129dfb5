from __future__ import annotations

import hashlib
import io
import os
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from poolhouse.stack.binaries import (
    BUILT,
    MODULE,
    PROGRAMS,
    SCHEDULER,
    Programs,
    Releases,
    Version,
    architecture,
    cache_key,
    command,
    etcd_version,
    find_programs,
    kubernetes_version,
    link_kubectl,
    link_programs,
    parse_version,
    why_unusable,
)
from poolhouse.stack.components import StackError
from poolhouse.stack.go_build import build_progress, check_go
from tests.waiting import PATIENCE_SECONDS

GOOD: dict[str, Version] = {"etcd": (3, 6), "kube-apiserver": (1, 34), "kube-controller-manager": (1, 34)}


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        pytest.param("Kubernetes v1.34.4", (1, 34), id="kube-apiserver"),
        pytest.param("etcd Version: 3.6.4\nGit SHA: 5400cdc\nGo Version: go1.23.11", (3, 6), id="etcd"),
        pytest.param("Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0", (1, 32), id="a kubectl"),
        pytest.param("unknown flag: --version", None, id="something else"),
    ],
)
def test_parse_version(answer: str, version: Version | None) -> None:
    assert parse_version(answer) == version


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param({}, None, id="all fit"),
        pytest.param({"etcd": None}, "etcd is missing in /x or does not run", id="one is missing"),
        pytest.param({"etcd": (3, 4)}, "etcd is 3.4, and 3.5 is the minimum version", id="etcd too old"),
        pytest.param(
            {"kube-apiserver": (1, 28), "kube-controller-manager": (1, 28)},
            "kube-apiserver is 1.28, and 1.31 is the minimum version",
            id="Kubernetes too old",
        ),
        pytest.param(
            {"kube-controller-manager": (1, 33)},
            "kube-apiserver is 1.34 and kube-controller-manager 1.33",
            id="they are of two releases",
        ),
    ],
)
def test_why_unusable(change: dict[str, Version | None], complaint: str | None) -> None:
    versions = {**GOOD, **change}
    assert why_unusable(Path("/x"), lambda program: versions[program.name]) == complaint


def programs(directory: Path, kubernetes: str = "v1.34.1", etcd: str = "3.6.1") -> Path:
    directory.mkdir(parents=True)
    for name in PROGRAMS:
        (directory / name).write_text(f"#!/bin/sh\necho {etcd if name == 'etcd' else kubernetes}\n")
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without the programs and with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def never(*_: object) -> bool:
    raise AssertionError("not to be asked")


def test_kubebuilder_assets_come_first(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{programs(alone / 'path')}:/usr/bin:/bin")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(programs(alone / "assets")))
    assert find_programs(never, download=never, build=never).directory == alone / "assets"
    monkeypatch.delenv("KUBEBUILDER_ASSETS")
    assert find_programs(never, download=never, build=never).directory == alone / "path"


def test_programs_without_a_scheduler_suffice_until_it_is_needed(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(programs(alone / "assets")))
    cached = programs(alone / "cache/poolhouse/controlplane" / cache_key())
    (cached / SCHEDULER).write_text("")
    (cached / SCHEDULER).chmod(0o755)
    said: list[str] = []
    found = find_programs(said.append, needed=(*PROGRAMS, SCHEDULER), download=never, build=never)
    assert found.directory == cached
    assert said == [
        "not using the control plane of KUBEBUILDER_ASSETS: "
        f"kube-scheduler is missing in {alone / 'assets'} or does not run"
    ]


def test_old_programs_are_skipped_with_a_message(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(programs(alone / "assets", kubernetes="v1.25.0")))
    said: list[str] = []
    programs(alone / "cache/poolhouse/controlplane" / cache_key())
    assert find_programs(said.append, download=never, build=never).origin == "the cache"
    assert said == [
        "not using the control plane of KUBEBUILDER_ASSETS: kube-apiserver is 1.25, and 1.31 is the minimum version"
    ]


def test_a_failed_download_leads_to_a_build(alone: Path) -> None:
    built: list[Path] = []
    found = find_programs(print, download=lambda *_: False, build=lambda directory, echo: built.append(directory))
    assert built == [found.directory]


def test_a_second_process_waits_for_the_build_of_the_first(alone: Path) -> None:
    first_builds, second_waits = threading.Event(), threading.Event()

    def build(directory: Path, _: object) -> None:
        first_builds.set()
        assert second_waits.wait(PATIENCE_SECONDS), "the second one does not wait"
        programs(directory)

    with ThreadPoolExecutor() as threads:
        first = threads.submit(find_programs, print, download=lambda *_: False, build=build)
        assert first_builds.wait(PATIENCE_SECONDS)
        second = threads.submit(find_programs, lambda _: second_waits.set(), download=never, build=never)
        assert [first.result().origin, second.result().origin] == ["a local build", "the cache"]


def test_the_cache_key_depends_on_the_module(tmp_path: Path) -> None:
    for name in ("main.go", "go.mod", "go.sum"):
        (tmp_path / name).write_bytes((MODULE / name).read_bytes())
    assert cache_key(tmp_path) == cache_key()
    (tmp_path / "main.go").write_text("package main")
    assert cache_key(tmp_path) != cache_key()


def test_link_programs(tmp_path: Path) -> None:
    (tmp_path / "built").write_text('#!/bin/sh\nbasename "$0"\n')
    link_programs(tmp_path / "built", tmp_path / "cache")
    for name in BUILT:
        assert subprocess.check_output([tmp_path / "cache" / name], text=True) == f"{name}\n"


def test_the_build_sets_the_version() -> None:
    flags = " ".join(command(Path("/x")))
    assert f"gitVersion={kubernetes_version()}" in flags
    assert "gitMajor=1 " in flags
    assert "-trimpath" in flags


def test_a_missing_go_is_reported_in_one_line(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(alone))
    with pytest.raises(StackError) as broken:
        check_go(MODULE)
    assert "Go is missing to build the control plane: install Go 1.24 or later" in str(broken.value)
    (alone / "go").write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    (alone / "go").chmod(0o755)
    with pytest.raises(StackError, match=r"Go 1\.19 is too old to build the control plane: install Go 1\.24 or later"):
        check_go(MODULE)


@pytest.mark.parametrize(
    ("theirs", "linked"),
    [
        pytest.param(None, True, id="none"),
        pytest.param("v1.31.9", True, id="not newer than 1.31"),
        pytest.param("v1.32.0", False, id="newer"),
    ],
)
def test_kubectl_is_linked_if_path_has_no_newer_one(
    alone: Path, monkeypatch: pytest.MonkeyPatch, theirs: str | None, linked: bool
) -> None:
    ours = programs(alone / "ours")
    (ours / "kubectl").write_text("")
    (alone / "their").mkdir()
    (alone / "bin").mkdir()
    if theirs:
        (alone / "their" / "kubectl").write_text(f"#!/bin/sh\necho Client Version: {theirs}\n")
        (alone / "their" / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{alone / 'bin'}:{alone / 'their'}")
    assert link_kubectl(Programs(ours, ""), alone / "bin" / "kubectl") is linked
    assert (alone / "bin" / "kubectl").exists() is linked


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def published(tmp_path: Path) -> Iterator[tuple[Path, Releases]]:
    """A server with the layout of the releases, whose programs contain only their names."""
    site = tmp_path / "site"
    kubernetes = site / "kubernetes" / kubernetes_version() / "bin/linux" / architecture()
    kubernetes.mkdir(parents=True)
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"):
        (kubernetes / name).write_text(name)
        (kubernetes / f"{name}.sha256").write_text(hashlib.sha256(name.encode()).hexdigest())
    etcd = site / "etcd" / etcd_version()
    etcd.mkdir(parents=True)
    stem = f"etcd-{etcd_version()}-linux-{architecture()}"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo(f"{stem}/etcd")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"etcd"))
    (etcd / f"{stem}.tar.gz").write_bytes(archive.getvalue())
    (etcd / "SHA256SUMS").write_text(f"{hashlib.sha256(archive.getvalue()).hexdigest()}  {stem}.tar.gz\n")
    with HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        yield site, Releases(f"{base}/kubernetes", f"{base}/etcd")
        server.shutdown()


def test_downloaded_programs_are_executable(published: tuple[Path, Releases], tmp_path: Path) -> None:
    _, releases = published
    assert releases.download(tmp_path / "got", print)
    assert {file.name: file.read_text() for file in (tmp_path / "got").iterdir()} == {name: name for name in BUILT}
    assert all(os.access(file, os.X_OK) for file in (tmp_path / "got").iterdir())


def test_a_file_with_another_hash_is_refused(published: tuple[Path, Releases], tmp_path: Path) -> None:
    site, releases = published
    next(site.rglob("kube-controller-manager")).write_text("something else")
    said: list[str] = []
    assert not releases.download(tmp_path / "got", said.append)
    assert "was published" in said[-1]
    assert not (tmp_path / "got").exists()


def test_an_unreachable_server_costs_seconds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts, and never answers
        base = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        started = time.monotonic()
        assert not Releases(base, base).download(tmp_path / "got", print)
        assert time.monotonic() - started < 25, "it waits for the first answer as long as for a large file"


@pytest.mark.parametrize(
    ("compiled", "total", "line"),
    [
        pytest.param(10, None, "  60 s, 10 packages compiled", id="Go cannot list the packages"),
        pytest.param(10, 1000, "  60 s, 10 of at most 1000 packages compiled", id="too early for an estimate"),
        pytest.param(
            500, 1000, "  60 s, 500 of at most 1000 packages compiled, about 1 min left", id="half of the packages"
        ),
        pytest.param(1000, 1000, "  60 s, 1000 of at most 1000 packages compiled", id="only the linker is left"),
    ],
)
def test_a_build_says_how_long_it_takes(compiled: int, total: int | None, line: str) -> None:
    assert build_progress(60, compiled, total) == line
