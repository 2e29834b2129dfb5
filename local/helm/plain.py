"""`python -m local.helm.plain DIRECTORY`: the chart as manifests that kubectl applies, for clusters without Helm.

Helm's hooks and labels are removed, because no Helm manages the result. The manifests are for clusters with KubeVirt,
so they leave out the CRD of the kind that KubeVirt has itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from apimachinery.unstructured import Json
from kinds import KINDS, meta
from local.components import StackError
from local.helm import find_helm

CHART = Path(__file__).resolve().parent.parent.parent / "charts" / "poolhouse"
HELMS = ("app.kubernetes.io/managed-by", "helm.sh/chart")
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": meta.NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
}
KUSTOMIZATION = {
    "apiVersion": "kustomize.config.k8s.io/v1beta1",
    "kind": "Kustomization",
    "resources": ["install.yaml"],
}


def manifests() -> Iterator[Json]:
    """In the order in which they can be applied."""
    left = [f"kinds.{kind.plural}=false" for kind in KINDS if kind.yields_to_kubevirt]
    done = subprocess.run(
        [
            str(find_helm(lambda text: None)),
            *("template", meta.POOLHOUSE, str(CHART), "--namespace", meta.NAMESPACE, "--no-hooks"),
            *("--set", ",".join(left)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise StackError(done.stderr)
    yield NAMESPACE
    yield from (_plain(each) for each in yaml.safe_load_all(done.stdout) if each)


def _plain(document: Json) -> Json:
    for place in (document["metadata"], document.get("spec", {}).get("template", {}).get("metadata", {})):
        for label in HELMS:
            place.get("labels", {}).pop(label, None)
        notes = place.get("annotations", {})
        for note in [each for each in notes if each.startswith("helm.sh/")]:
            del notes[note]
    return document


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    pages = [yaml.safe_dump(each, sort_keys=False, width=120) for each in manifests()]
    (directory / "install.yaml").write_text("---\n".join(pages))
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(KUSTOMIZATION, sort_keys=False))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except StackError as broken:
        sys.exit(str(broken))
