"""The documentation builds without a link that leads nowhere, and without a page to which no link leads."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


class Links(HTMLParser):
    """Collects the addresses that a page links or loads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.loaded: set[str] = set()
        """addresses that a browser loads without a click"""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        addresses = {value for name, value in attrs if name in ("href", "src") and value}
        self.found |= addresses
        if tag != "a":
            self.loaded |= addresses


@cache
def addresses(page: Path) -> set[str]:
    return Links(page.read_text()).found


def targets(page: Path, site: Path) -> Iterator[Path]:
    """The files of the site that a page links or loads."""
    for address in addresses(page):
        parts = urlsplit(address)
        if not parts.scheme and not parts.netloc and parts.path:
            base = site if parts.path.startswith("/") else page.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve()
            yield target / "index.html" if target.is_dir() or not target.suffix else target


def reachable(site: Path) -> set[Path]:
    """The pages to which links lead from the first page."""
    seen: set[Path] = set()
    todo = {site / "index.html"}
    while todo:
        page = todo.pop()
        seen.add(page)
        todo |= {each for each in targets(page, site) if each.suffix == ".html" and each.is_file()} - seen
    return seen


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site. Zensical itself ends with an error for a link to a page or a heading that does not exist."""
    directory = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", directory / "docs")
    shutil.copy(ROOT / "mkdocs.yml", directory)
    built = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return directory / "site"


def test_every_link_leads_to_a_file(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    lost = {f"{page.relative_to(site)}: {each}" for page in pages for each in targets(page, site) if not each.exists()}
    assert len(pages) > 40
    assert lost == set()


def test_links_lead_to_every_page(site: Path) -> None:
    found = reachable(site)
    assert [page for page in site.rglob("index.html") if page not in found] == []


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    assert [each for each in Links((site / "index.html").read_text()).loaded if urlsplit(each).netloc] == []


@pytest.mark.parametrize(
    ("html", "files"),
    [
        ('<a href="b/#c">', {"a/b/index.html"}),
        ('<img src="../p.svg">', {"p.svg"}),
        ('<a href="https://kubevirt.io">', set()),
        ('<a href="#here">', set()),
        ('<a href="/d">', {"d/index.html"}),
    ],
)
def test_targets_of_links(tmp_path: Path, html: str, files: set[str]) -> None:
    page = tmp_path / "a" / "index.html"
    page.parent.mkdir()
    page.write_text(html)
    assert {str(each.relative_to(tmp_path)) for each in targets(page, tmp_path)} == files
