"""Marks by which GitOps tools find what they prune."""

from __future__ import annotations

import pytest

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.tracking_marks import ANNOTATIONS, LABELS, without_tracking_marks

PROTECTING = {
    "argocd.argoproj.io/sync-options": "Prune=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
    "helm.sh/resource-policy": "keep",
}


@pytest.mark.parametrize("label", LABELS)
def test_each_label_is_removed(label: str) -> None:
    assert without_tracking_marks({"labels": {label: "shop", "app": "web"}}) == {"labels": {label: None}}


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_each_annotation_is_removed(annotation: str) -> None:
    assert without_tracking_marks({"annotations": {annotation: "shop"}}) == {"annotations": {annotation: None}}


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({}, id="no metadata"),
        pytest.param({"labels": None, "annotations": None}, id="null"),
        pytest.param({"annotations": PROTECTING}, id="settings that protect"),
        pytest.param({"labels": {"app": "web", "app.kubernetes.io/name": "web"}}, id="labels of the user"),
    ],
)
def test_everything_else_stays(metadata: Json) -> None:
    assert without_tracking_marks(metadata) == {}
