"""`python -m poolhouse.stack.helm.plain DIRECTORY` renders the chart as manifests, for clusters without Helm.

The manifests contain no hooks and labels of Helm, because Helm does not manage the result. They omit the CRDs that a
cluster with KubeVirt already has.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import KINDS, meta
from poolhouse.stack.components import StackError
from poolhouse.stack.helm import find_helm

CHART = Path(__file__).resolve().parent.parent.parent.parent / "charts" / "poolhouse"
HELM_LABELS = ("app.kubernetes.io/managed-by", "helm.sh/chart")
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
    """Yields the manifests in the order in which they can be applied."""
    disabled = ",".join(f"kinds.{kind.plural}=false" for kind in KINDS if kind.yields_to_kubevirt)
    command = [str(find_helm(lambda text: None)), "template", meta.POOLHOUSE, str(CHART)]
    command += ["--namespace", meta.NAMESPACE, "--no-hooks", "--set", disabled]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise StackError(done.stderr)
    yield NAMESPACE
    for document in filter(None, yaml.safe_load_all(done.stdout)):
        if at(document, "metadata", "labels", "app.kubernetes.io/component") == "hook":
            continue
        _remove_helm_metadata(document["metadata"])
        _remove_helm_metadata(at(document, "spec", "template", "metadata") or {})
        yield document


def _remove_helm_metadata(metadata: Json) -> None:
    for label in HELM_LABELS:
        metadata.get("labels", {}).pop(label, None)
    annotations = metadata.get("annotations", {})
    for annotation in [each for each in annotations if each.startswith("helm.sh/")]:
        del annotations[annotation]


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    documents = [yaml.safe_dump(each, sort_keys=False, width=120) for each in manifests()]
    (directory / "install.yaml").write_text("---\n".join(documents))
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(KUSTOMIZATION, sort_keys=False))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except StackError as error:
        sys.exit(str(error))
