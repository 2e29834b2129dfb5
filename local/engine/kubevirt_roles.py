"""What people may do with KubeVirt's and CDI's kinds, by KubeVirt's own ClusterRoles: part of Kubernetes' roles view,
edit and admin, and one more to migrate. On a cluster KubeVirt installs them; here there is nobody else to do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kinds.kubevirt import DATA_VOLUME, KUBEVIRT, VM, VMI, VMI_MIGRATION
from local.engine.virt_api import GROUP
from local.engine.vm.subresources import VERBS
from manifests.rbac import READ, WRITE

Json = dict[str, Any]

ALL = (*READ, *WRITE, "deletecollection")
MIGRATE = ("migrate",)
"""moving guests takes from everybody on a node: since KubeVirt 1.5 it is not the owner's of a namespace"""


def kubevirt_roles() -> list[Json]:
    """Owners of a namespace do as they please with VMs and disks; migrations they see, and a node's administrator makes
    them (`kubevirt.io:migrate`, to be bound by hand)."""
    seen = _kinds(READ, VMI_MIGRATION.plural)
    vms = VM.plural, VMI.plural
    view = [_kinds(READ, *vms), seen, _disks(READ)]
    own = [_kinds(ALL, *vms), seen, _disks(ALL), *_asked(exclude=MIGRATE)]
    edit = [*own, _kinds(("get", "list"), KUBEVIRT.plural)]
    migrate = [_kinds(ALL, VMI_MIGRATION.plural), *_asked(only=MIGRATE)]
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


def _disks(verbs: Sequence[str]) -> Json:
    return {"apiGroups": [DATA_VOLUME.group], "resources": [DATA_VOLUME.plural], "verbs": list(verbs)}


def _asked(*, only: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[Json]:
    """Requests such as start and stop."""
    found = [
        f"{plural}/{verb}"
        for plural, verbs in VERBS.items()
        for verb in verbs
        if verb not in exclude and (not only or verb in only)
    ]
    return [{"apiGroups": [GROUP], "resources": found, "verbs": ["update"]}]
