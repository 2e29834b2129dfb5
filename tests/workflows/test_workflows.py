"""The workflows of the public CI: what they may do, what they call, and that they name no host."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").iterdir())
SCRIPTS = sorted(path for path in (GITHUB / "scripts").glob("**/*") if path.suffix in (".py", ".sh"))
EVENTS = {"push", "pull_request", "schedule", "workflow_call", "workflow_dispatch"}
PINNED = re.compile(r"uses: ([\w./-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)\n")
SCRIPT = re.compile(r"\.github/(?:scripts|e2e)/[\w./-]+")

Json = dict[str, Any]


def load(path: Path) -> Json:
    # A plain `on` is the boolean true in YAML 1.1.
    return {"on" if key is True else key: value for key, value in yaml.safe_load(path.read_text()).items()}


def jobs() -> Iterator[Any]:
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            yield pytest.param(job, id=f"{path.stem}-{name}")


def steps() -> Iterator[Json]:
    for path in WORKFLOWS:
        for job in load(path)["jobs"].values():
            yield from job.get("steps", ())


workflows = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


@workflows
def test_a_workflow_begins_with_the_right_to_read_only(path: Path) -> None:
    assert load(path)["permissions"] == {"contents": "read"}


@workflows
def test_a_workflow_runs_for_events_whose_code_may_be_trusted(path: Path) -> None:
    """`pull_request_target` would run a stranger's code with the secrets of this repository."""
    assert set(load(path)["on"]) <= EVENTS


@workflows
def test_runs_of_one_branch_wait_for_each_other(path: Path) -> None:
    group = load(path)["concurrency"]["group"]
    assert "${{ github.ref }}" in group or "${{ github.ref_name }}" in group


def test_groups_differ() -> None:
    """A workflow that is called shares `github.workflow` with its caller, and would wait for it."""
    groups = [load(path)["concurrency"]["group"] for path in WORKFLOWS]
    assert len(set(groups)) == len(groups)


@pytest.mark.parametrize("job", list(jobs()))
def test_a_job_ends(job: Json) -> None:
    """A job that calls a workflow has the limits of that workflow's jobs."""
    assert str(job.get("uses", "")).startswith("./.github/workflows/") or 0 < job["timeout-minutes"] <= 150


@pytest.mark.parametrize("job", list(jobs()))
def test_a_job_is_named(job: Json) -> None:
    assert re.fullmatch(r"[A-Z][\w ${}.,()-]+", job["name"])


@workflows
def test_actions_are_pinned_by_commit_and_say_their_version(path: Path) -> None:
    text = path.read_text()
    foreign = [each for each in re.findall(r"uses: (\S+)", text) if not each.startswith("./")]
    assert [f"{name}@{commit}" for name, commit, _ in PINNED.findall(text)] == foreign


def test_an_action_has_one_version() -> None:
    used = {each for path in WORKFLOWS for each in PINNED.findall(path.read_text())}
    assert len({name for name, _, _ in used}) == len(used)


def test_no_checkout_leaves_its_token_behind() -> None:
    found = [step for step in steps() if str(step.get("uses")).startswith("actions/checkout@")]
    assert found
    assert all(step["with"]["persist-credentials"] is False for step in found)


def test_no_value_of_an_event_is_part_of_a_script() -> None:
    """An expression in `run` is replaced before the shell reads it: a branch's name could be a command."""
    assert [step["run"] for step in steps() if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize(
    "path", [*WORKFLOWS, *SCRIPTS, *sorted((GITHUB / "e2e").glob("*"))], ids=lambda path: path.name
)
def test_no_host_is_named(path: Path) -> None:
    """Addresses are variables of the repository, so that mirrors can be used."""
    text = path.read_text()
    addresses = re.findall(r"https?://(?![$({]|127\.0\.0\.1)\S+", text)
    images = re.findall(r"(?<![\w/.-])[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?/[\w./-]+:\w[\w.-]*", text)
    assert addresses + [each for each in images if ".github/" not in each] == []


def test_scripts_exist_and_can_run() -> None:
    named = {each for path in WORKFLOWS for each in SCRIPT.findall(path.read_text())}
    assert {each for each in named if not (ROOT / each).is_file()} == set()
    assert [str(path) for path in SCRIPTS if not os.access(path, os.X_OK)] == []


def test_scripts_are_used() -> None:
    text = "".join(path.read_text() for path in [*WORKFLOWS, *SCRIPTS])
    assert [path.name for path in SCRIPTS if path.name not in text] == []


def test_programs_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    called = {
        each
        for step in steps()
        for each in re.findall(r"(?:^|&& )make ([a-z][a-z0-9-]*)", step.get("run", ""), re.MULTILINE)
    }
    assert {each for each in called if f"\n{each}:" not in makefile} == set()


@pytest.mark.parametrize("path", [path for path in SCRIPTS if path.suffix == ".sh"], ids=lambda path: path.name)
def test_shell_scripts_parse_and_stop_at_errors(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text or "\nset -uo pipefail\n" in text
    subprocess.run(["bash", "-n", str(path)], check=True, timeout=60)


def test_lint_checks_workflows_and_scripts() -> None:
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    assert "actionlint" in lint
    assert ".github/workflows/*.yml" in lint
    assert {path.suffix for path in WORKFLOWS} == {".yml"}
