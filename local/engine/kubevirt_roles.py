"""KubeVirt's ClusterRoles for users: aggregated to view, edit and admin, and one to migrate.

On a cluster KubeVirt installs them; the embedded stack has no KubeVirt.
"""

from __future__ import annotations

from collections.abc import Sequence

from apimachinery.unstructured import Json
from kinds.kubevirt import DATA_VOLUME, KUBEVIRT, VM, VMI, VMI_MIGRATION
from local.engine.virt_api import GROUP
from local.engine.vm.subresources import VERBS
from manifests.rbac import READ, WRITE

ALL = (*READ, *WRITE, "deletecollection")
MIGRATE = ("migrate",)
"""Since KubeVirt 1.5 namespace owners may not migrate, because a migration takes from all VMs of a node."""


def kubevirt_roles() -> list[Json]:
    """Namespace owners manage VMs and DataVolumes and can see migrations. A cluster administrator binds
    `kubevirt.io:migrate` to those who may create migrations."""
    see_migrations = _kinds(READ, VMI_MIGRATION.plural)
    vms = VM.plural, VMI.plural
    view = [_kinds(READ, *vms), see_migrations, _data_volumes(READ)]
    own = [_kinds(ALL, *vms), see_migrations, _data_volumes(ALL), *_subresources(exclude=MIGRATE)]
    edit = [*own, _kinds(("get", "list"), KUBEVIRT.plural)]
    migrate = [_kinds(ALL, VMI_MIGRATION.plural), *_subresources(only=MIGRATE)]
    return [
        _role("view", view, aggregated=True),
        _role("edit", edit, aggregated=True),
        _role("admin", own, aggregated=True),
        _role("migrate", migrate, aggregated=False),
    ]


def _role(name: str, rules: list[Json], *, aggregated: bool) -> Json:
    labels = {"kubevirt.io": ""}
    if aggregated:
        labels[f"rbac.authorization.k8s.io/aggregate-to-{name}"] = "true"
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"kubevirt.io:{name}", "labels": labels},
        "rules": rules,
    }


def _kinds(verbs: Sequence[str], *plurals: str) -> Json:
    return {"apiGroups": [VM.group], "resources": list(plurals), "verbs": list(verbs)}


def _data_volumes(verbs: Sequence[str]) -> Json:
    return {"apiGroups": [DATA_VOLUME.group], "resources": [DATA_VOLUME.plural], "verbs": list(verbs)}


def _subresources(*, only: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[Json]:
    resources = [
        f"{plural}/{verb}"
        for plural, verbs in VERBS.items()
        for verb in verbs
        if verb not in exclude and (not only or verb in only)
    ]
    return [{"apiGroups": [GROUP], "resources": resources, "verbs": ["update"]}]
