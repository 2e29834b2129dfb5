"""Labels and annotations by which GitOps tools find objects that they delete when they are not in Git any more.

A tool prunes an object that has its mark and no owner. Objects of a pool get marks from the pool's templates. A
retained disk or a detached VM has no owner, so that the tool would delete the only copy of the data.
"""

from collections.abc import Iterable

from poolhouse.api.apimachinery.unstructured import Json, at

LABELS = (
    # Argo CD, by label (the default before version 3) and as its documentation advises beside Helm
    "app.kubernetes.io/instance",
    "argocd.argoproj.io/instance",
    # kubectl apply --prune --applyset
    "applyset.kubernetes.io/part-of",
    # Flux
    "kustomize.toolkit.fluxcd.io/name",
    "kustomize.toolkit.fluxcd.io/namespace",
    "helm.toolkit.fluxcd.io/name",
    "helm.toolkit.fluxcd.io/namespace",
    # Rancher Fleet and K3s
    "objectset.rio.cattle.io/hash",
    # kapp
    "kapp.k14s.io/app",
    "kapp.k14s.io/association",
    # Config Sync
    "configsync.gke.io/declared-version",
    # Kubernetes' addon manager
    "addonmanager.kubernetes.io/mode",
    # Tanka, Kluctl, qbec and Sveltos
    "tanka.dev/environment",
    "kluctl.io/discriminator",
    "qbec.io/application",
    "qbec.io/environment",
    "qbec.io/tag",
    "projectsveltos.io/reference-kind",
    "projectsveltos.io/reference-name",
    "projectsveltos.io/reference-namespace",
)
ANNOTATIONS = (
    "argocd.argoproj.io/tracking-id",
    "argocd.argoproj.io/installation-id",
    "kustomize.toolkit.fluxcd.io/checksum",
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
    # kubectl apply --prune --selector deletes objects with this annotation
    "kubectl.kubernetes.io/last-applied-configuration",
    "objectset.rio.cattle.io/applied",
    "objectset.rio.cattle.io/id",
    "objectset.rio.cattle.io/owner-gvk",
    "objectset.rio.cattle.io/owner-name",
    "objectset.rio.cattle.io/owner-namespace",
    "kapp.k14s.io/identity",
    "kapp.k14s.io/original",
    # cli-utils of sig-cli
    "config.k8s.io/owning-inventory",
    # Config Sync
    "configmanagement.gke.io/managed",
    "configsync.gke.io/resource-id",
    # kubecfg
    "kubecfg.ksonnet.io/garbage-collect-tag",
)
"""Settings that protect an object, such as `argocd.argoproj.io/sync-options: Prune=false`, are not among them."""


def without_tracking_marks(metadata: Json) -> Json:
    """Returns a merge patch of `labels` and `annotations` that removes the marks that the object has."""
    marks = {
        "labels": _present(metadata, "labels", LABELS),
        "annotations": _present(metadata, "annotations", ANNOTATIONS),
    }
    return {field: found for field, found in marks.items() if found}


def _present(metadata: Json, field: str, names: Iterable[str]) -> Json:
    found = at(metadata, field) or {}
    return {name: None for name in names if name in found}
