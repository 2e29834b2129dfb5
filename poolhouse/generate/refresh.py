"""`python -m poolhouse.generate.refresh` rewrites the generated files of the repository, and prints their paths."""

import json
from pathlib import Path

import defaulter.app
import webhook.app
from poolhouse.generate import (
    agent_protocol,
    architecture,
    behaviours,
    dashboard,
    from_kinds,
    gates,
    kubevirt_versions,
    licences,
    metrics,
    reasons,
    recording,
    references,
    sentences,
    settings,
    warm_states,
)

ROOT = Path(__file__).resolve().parent.parent.parent


def generated() -> dict[Path, str]:
    """The content of every generated file, by its path in the repository."""
    return {
        **from_kinds.generated(),
        **agent_protocol.generated(),
        Path("docs/reference/metrics.md"): metrics.page(),
        Path("docs/reference/reasons.md"): reasons.page(),
        Path("tests/designs/sentences.md"): sentences.page(),
        Path("docs/reference/settings.md"): settings.page(),
        Path("docs/reference/kubevirt-versions.md"): kubevirt_versions.page(),
        Path("docs/reference/openapi-webhook.json"): json.dumps(webhook.app.openapi_document(), indent=2) + "\n",
        Path("docs/reference/openapi-defaulter.json"): json.dumps(defaulter.app.openapi_document(), indent=2) + "\n",
        Path("docs/reference/dashboard.md"): dashboard.page(),
        licences.PAGE: licences.page(),
        Path(f"docs/{architecture.DRAWING}"): architecture.drawing(),
        Path(f"docs/{recording.DRAWING}"): recording.drawing(),
        references.PAGE: references.page((ROOT / references.PAGE).read_text()),
        Path("docs/reference/gates.md"): gates.page(),
        Path("docs/reference/behaviours.md"): behaviours.page(),
        Path("docs/reference/warm-vm-states.md"): warm_states.page(),
        Path(f"docs/reference/{warm_states.DRAWING}"): warm_states.drawing(),
        Path("charts/poolhouse/monitoring/dashboard.json"): dashboard.text(),
    }


def _stale(root: Path) -> dict[Path, str]:
    files = {root / path: text for path, text in generated().items()}
    return {
        path.relative_to(root): text for path, text in files.items() if not path.is_file() or path.read_text() != text
    }


def stale(root: Path = ROOT) -> list[Path]:
    """Generated files whose content is out of date."""
    return [*_stale(root)]


if __name__ == "__main__":
    for path, text in _stale(ROOT).items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
        print(path)
