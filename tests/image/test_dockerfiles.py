"""What both Dockerfiles promise, read from them; that they build and run is `clean_root`'s to show."""

from __future__ import annotations

import fnmatch
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image.clean_root import expand, instructions

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


def test_hadolint_is_asked_strictly(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian:latest\nRUN cd /tmp && apt-get install curl\n")
    done = linted(bad)
    assert done.returncode != 0
    for rule in ("DL3007", "DL3003", "DL3008", "DL3049"):
        assert rule in done.stdout


@pytest.mark.parametrize("name", DOCKERFILES)
def test_the_last_stage_is_nobodys_and_has_no_way_to_install(name: str) -> None:
    last = STEPS[name][max(at for at, (step, _) in enumerate(STEPS[name]) if step == "FROM") :]
    assert [rest for step, rest in last if step == "USER"][-1] == "65532:65532"
    assert any(step == "COPY" and rest.startswith("--from=build /opt/poolhouse ") for step, rest in last)
    runs = " ".join(rest for step, rest in last if step == "RUN")
    assert not {"pip", "gcc", "python3-venv", "python3-dev"} & set(shlex.split(runs))


@pytest.mark.parametrize("name", DOCKERFILES)
def test_every_base_can_be_pinned_and_every_package_is(name: str) -> None:
    shared = {"BASE": "a", "DIGEST": "sha256:b"}
    shared["BUILD"] = expand(dict(r.split("=", 1) for s, r in STEPS[name] if s == "ARG").get("BUILD", ""), shared)
    bases = [expand(rest, shared).split(" AS ")[0] for step, rest in STEPS[name] if step == "FROM"]
    assert set(bases) <= {"a@sha256:b", "scratch"}
    for step, rest in STEPS[name]:
        if step == "RUN":
            assert rest.count("pip install") == rest.count("--require-hashes") + rest.count("--no-deps .")


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_is_copied_is_there_and_is_sent_to_the_builder(name: str) -> None:
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for step, rest in STEPS[name]:
        if step == "COPY" and not rest.startswith("--from="):
            for source in shlex.split(rest)[:-1]:
                assert (ROOT / source).exists(), source
                assert any(fnmatch.fnmatch(source.removeprefix("./"), each) for each in sent), source
