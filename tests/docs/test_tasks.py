"""Runs every command of the task pages in a simulated stack and compares the output with the page."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from poolhouse.stack.paths import StackPaths
from tests.docs import python_client
from tests.docs.console_blocks import ROOT, follow, matches, output, sessions
from tests.docs.forked_commands import forked_commands
from tests.portal.running import Place

PAGES = [page for page in sorted((ROOT / "docs" / "tasks").glob("*.md")) if sessions(page.read_text())]
INSTALLED = ROOT / "docs" / "tasks" / "tour.md"
"""the page whose commands are the installed programs, and not forked"""
COMMANDS = ("attach", "detach", "disks", "hardware", "import", "plan", "rollout", "why")
"""commands of Poolhouse in the pages"""


@pytest.fixture
def cluster(simulated_stack: Place) -> StackPaths:
    return simulated_stack.paths


CHANGES = re.compile(
    "kubectl (apply|scale|patch|annotate|delete) |kubectl poolhouse (attach|detach|rollout (undo|promote|resume)) "
)
WAITS = re.compile("kubectl wait |kubectl poolhouse rollout status ")


def kubeconfig_of(page: Path, cluster: StackPaths, directory: Path) -> Path:
    """Writes a kubeconfig with a namespace for this page."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    for each in document["contexts"]:
        each["context"]["namespace"] = page.stem
    found = directory / f"{page.stem}.kubeconfig"
    found.write_text(yaml.safe_dump(document))
    return found


def differences(page: Path, environment: dict[str, str]) -> list[str]:
    """Returns the first difference. Later commands depend on it, so they do not run."""
    created = output(f"kubectl create namespace {page.stem}", environment)
    assert created == [f"namespace/{page.stem} created"], created
    steps = [step for session in sessions(page.read_text()) for step in session]
    return next(([found] for step in steps if (found := follow(step, environment))), [])


def test_the_examples_of_the_python_client_print_what_the_page_shows(cluster: StackPaths, tmp_path: Path) -> None:
    python = python_client.install(tmp_path / "environment")
    rooms = ("poolhouse", "webhook", "controllers", "client")
    others = f"import importlib.util as u; print([m for m in {rooms} if u.find_spec(m)])"
    assert python_client.run(python, others) == ["[]"]
    kubeconfig = kubeconfig_of(python_client.PAGE, cluster, tmp_path)
    for namespace in ("python", "plans"):
        output(f"kubectl create namespace {namespace}", {"KUBECONFIG": str(kubeconfig)})
    assert len(python_client.EXAMPLE.findall(python_client.PAGE.read_text())) == 6
    assert python_client.differences(python, kubeconfig, cluster.dir) == []


def test_commands_print_what_the_pages_show(cluster: StackPaths, tmp_path: Path) -> None:
    environments = {page: {"KUBECONFIG": str(kubeconfig_of(page, cluster, tmp_path))} for page in PAGES}
    with forked_commands(tmp_path / "programs", *COMMANDS) as programs, ThreadPoolExecutor(len(PAGES)) as threads:
        for page in set(PAGES) - {INSTALLED}:
            environments[page]["PATH"] = f"{programs}:{os.environ['PATH']}"
        found = dict(zip(PAGES, threads.map(differences, PAGES, environments.values()), strict=True))
    assert INSTALLED in PAGES
    different = [f"{page.name}:\n{each}" for page, shown in found.items() for each in shown]
    assert not different, "\n\n".join(different)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_waits_for_the_controllers_before_it_shows_what_they_did(page: Path) -> None:
    """The test above repeats a command that prints an earlier state. A reader who pastes a whole block sees that
    state."""
    for session in sessions(page.read_text()):
        waited = True
        for command in (step.command for step in session):
            waited = (waited and not CHANGES.search(command)) or WAITS.match(command) is not None
            assert waited or not shows_status(command), command


def shows_status(command: str) -> bool:
    """Whether the command prints what controllers have done. A change has written the spec at once."""
    is_spec = "{.spec." in command and ".status" not in command
    return command.startswith("kubectl get ") and not is_spec


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (("web-1  12s  Running",), ["web-1   3m4s   Running"], True),
        (("web-1  12s  Running",), ["web-1   3m4s   Stopped"], False),
        (("web-0123456789",), ["web-abcdef0123"], True),
        (("at 2026-01-01T00:00:00Z",), ["at 2027-02-03T04:05:06Z"], True),
        (("first", "..."), ["first", "second", "third"], True),
        (("first",), ["first", "second"], False),
        ((), ["anything"], False),
    ],
)
def test_variable_output_is_compared_by_its_kind(shown: tuple[str, ...], printed: list[str], same: bool) -> None:
    assert matches(shown, printed) is same
