"""`python -m manifests.refresh` rewrites what is generated from the kinds and kept in the repository."""

from __future__ import annotations

from pathlib import Path

from kinds import KINDS
from manifests import chart
from manifests.reference import pages

ROOT = Path(__file__).resolve().parent.parent


def generated() -> dict[Path, str]:
    """Every generated file, below the repository, and what it should hold."""
    return {**{Path("docs/reference") / name: text for name, text in pages(KINDS).items()}, **chart.files()}


def stale(root: Path = ROOT) -> list[Path]:
    """Generated files that do not hold what they should."""
    return [
        path for path, text in generated().items() if not (root / path).is_file() or (root / path).read_text() != text
    ]


def refresh(root: Path = ROOT) -> list[Path]:
    """Write what is stale; says which files."""
    found = stale(root)
    for path in found:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(generated()[path])
    return found


if __name__ == "__main__":
    for written in refresh():
        print(written)
