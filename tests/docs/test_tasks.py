"""What the pages of tasks show is what happens: every command of theirs is run, side by side in one simulated stack."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from local.paths import StackPaths
from tests.conftest import stack
from tests.docs.consoles import ROOT, agree, follow, said, sessions

PAGES = [page for page in sorted((ROOT / "docs" / "tasks").glob("*.md")) if sessions(page.read_text())]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackPaths]:
    paths = StackPaths(tmp_path_factory.mktemp("docs"))
    with stack(paths, "--engine", "simulated"):
        yield paths


def home(page: Path, cluster: StackPaths, directory: Path) -> Path:
    """A kubeconfig whose namespace is the page's own."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    for each in document["contexts"]:
        each["context"]["namespace"] = page.stem
    found = directory / f"{page.stem}.kubeconfig"
    found.write_text(yaml.safe_dump(document))
    return found


def untruths(page: Path, kubeconfig: Path) -> list[str]:
    """The first of them; what follows it has no ground."""
    environment = {"KUBECONFIG": str(kubeconfig)}
    made = said(f"kubectl create namespace {page.stem}", environment)
    assert made == [f"namespace/{page.stem} created"], made
    steps = [step for session in sessions(page.read_text()) for step in session]
    return next(([found] for step in steps if (found := follow(step, environment))), [])


def test_every_command_does_what_its_page_shows(cluster: StackPaths, tmp_path: Path) -> None:
    homes = {page: home(page, cluster, tmp_path) for page in PAGES}
    with ThreadPoolExecutor(len(PAGES)) as threads:
        found = dict(zip(PAGES, threads.map(lambda page: untruths(page, homes[page]), PAGES), strict=True))
    assert PAGES
    wrong = [f"{page.name}:\n{each}" for page, said in found.items() for each in said]
    assert not wrong, "\n\n".join(wrong)


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
def test_what_differs_from_run_to_run_is_compared_by_its_kind(
    shown: tuple[str, ...], printed: list[str], same: bool
) -> None:
    assert agree(shown, printed) is same
