#!/usr/bin/env python3
"""What a release needs of the repository. It uses only the standard library, because nothing is installed yet.

release.py check v1.2.3               exits with 1 and prints every place that has another version
release.py notes 1.2.3                prints the section of CHANGELOG.md
release.py images FILE IMAGE...       exits with 1 unless the manifests use exactly these images
release.py checksums DIST             writes DIST/SHA256SUMS, which sha256sum -c reads
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SUMS = "SHA256SUMS"
TAG = re.compile(r"v((?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)*)?)")
HEADING = re.compile(r"^## \[?(?P<name>[^\s\]]+)\]?(?: - \d{4}-\d{2}-\d{2})?$", re.MULTILINE)
"""`## 1.2.3` or `## 1.2.3 - 2026-12-01`"""
IMAGE_TAG = re.compile(r"poolhouse/poolhouse(?:-[a-z]+)?:(\d[\w.-]*)")


def versions(root: Path) -> Iterator[tuple[str, str]]:
    """Each place of the repository that has the version of the next release, and what it says."""
    for name in ("pyproject.toml", "client/pyproject.toml", "agent/pyproject.toml"):
        yield name, tomllib.loads((root / name).read_text())["project"]["version"]
    chart = "charts/poolhouse/Chart.yaml"
    for field in ("version", "appVersion"):
        yield f"{chart}: {field}", _first(rf'^{field}: "?([^"\s]+)"?$', root / chart)
    for name in ("Dockerfile", "Dockerfile.defaulter"):
        yield f"{name}: ARG VERSION", _first(r"^ARG VERSION=(\S+)$", root / name)
    for name in (chart, "Dockerfile", "Dockerfile.defaulter", "docs/install.md"):
        for found in sorted(set(IMAGE_TAG.findall((root / name).read_text()))):
            yield f"{name}: tags of images", found


def _first(pattern: str, path: Path) -> str:
    found = re.search(pattern, path.read_text(), re.MULTILINE)
    return found[1] if found else "no version"


def sections(changelog: str) -> dict[str, str]:
    """The sections of a changelog by their versions, in its order. `Unreleased` is one of them."""
    found = list(HEADING.finditer(changelog))
    ends = [*(each.start() for each in found[1:]), len(changelog)]
    return {each["name"]: changelog[each.end() : end].strip() for each, end in zip(found, ends, strict=True)}


def problems(tag: str, root: Path) -> Iterator[str]:
    """Why the tag cannot be released."""
    match = TAG.fullmatch(tag)
    if match is None:
        yield f"tag {tag}: must be a semantic version that starts with v, such as v1.2.3 or v1.2.3-rc.1"
        return
    version = match[1]
    for place, found in versions(root):
        if found != version:
            yield f"{place}: {found}: must be {version}, as the tag {tag} says"
    notes = sections((root / "CHANGELOG.md").read_text())
    released = [name for name in notes if name != "Unreleased"]
    if not notes.get(version):
        yield f"CHANGELOG.md: has no section `## {version}` with text: rename `## Unreleased`"
    elif released[0] != version:
        yield f"CHANGELOG.md: the section {released[0]} is above {version}: the newest version must be the first"
    if notes.get("Unreleased"):
        yield f"CHANGELOG.md: the section Unreleased has entries: move them to {version}"


def image_problems(manifests: str, images: list[str]) -> Iterator[str]:
    """Which images of the manifests the release did not build, and which of the release's they do not use."""
    used = set(re.findall(r"^\s*(?:- )?image: [\"']?([^\s\"']+)", manifests, re.MULTILINE))
    for each in sorted(used - set(images)):
        yield f"image {each} of the manifests: is not one of this release ({', '.join(images)}): set it in values.yaml"
    for each in sorted(set(images) - used):
        yield f"image {each} of this release: the manifests do not use it"


def checksums(directory: Path) -> str:
    """A line for each file of the directory, as sha256sum prints it."""
    files = sorted(path for path in directory.iterdir() if path.is_file() and path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def main(arguments: list[str]) -> int:
    match arguments:
        case ["check", tag]:
            return _report(list(problems(tag, ROOT)))
        case ["notes", version]:
            notes = sections((ROOT / "CHANGELOG.md").read_text()).get(version)
            print(notes or "", end="\n" if notes else "")
            return _report([] if notes else [f"CHANGELOG.md: has no section `## {version}` with text"])
        case ["images", file, *images] if images:
            return _report(list(image_problems(Path(file).read_text(), images)))
        case ["checksums", directory]:
            (Path(directory) / SUMS).write_text(checksums(Path(directory)))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


def _report(found: list[str]) -> int:
    for each in found:
        print(each, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
