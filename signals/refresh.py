"""`python -m signals.refresh` rewrites what is generated from the metrics and kept in the repository."""

from __future__ import annotations

from pathlib import Path

from signals import dashboard, metrics, reasons, settings

ROOT = Path(__file__).resolve().parent.parent


def generated() -> dict[Path, str]:
    """Every generated file, below the repository, and what it should hold."""
    return {
        Path("docs/reference/metrics.md"): metrics.page(),
        Path("docs/reference/reasons.md"): reasons.page(),
        Path("docs/reference/settings.md"): settings.page(),
        Path("charts/poolhouse/signals/dashboard.json"): dashboard.text(),
    }


def stale(root: Path = ROOT) -> list[Path]:
    """Generated files that do not hold what they should."""
    return [
        path for path, text in generated().items() if not (root / path).is_file() or (root / path).read_text() != text
    ]


if __name__ == "__main__":
    for path in stale():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(generated()[path])
        print(path)
