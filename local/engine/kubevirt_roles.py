"""KubeVirt's ClusterRoles for users: aggregated to view, edit and admin, and one to migrate.

On a cluster KubeVirt installs them; the embedded stack has no KubeVirt.
"""

from __future__ import annotations

from collections.abc import Iterable

from apimachinery.unstructured import Json
from kinds.kubevirt import DATA_VOLUME, KUBEVIRT, VM, VMI, VMI_MIGRATION
from local.engine.virt_api import GROUP
from local.engine.vm.subresources import VERBS
from manifests.rbac import READ, WRITE

ALL = (*READ, *WRITE, "deletecollection")


def kubevirt_roles() -> list[Json]:
    """Namespace owners manage VMs and DataVolumes and can see migrations. A cluster administrator binds
    `kubevirt.io:migrate` to those who may create migrations.

    Since KubeVirt 1.5 namespace owners may not migrate, because a migration takes from all VMs of a node.
    """
    vms, subresources = (VM.plural, VMI.plural), [f"{plural}/{verb}" for plural in VERBS for verb in VERBS[plural]]
    migrations = [each for each in subresources if each.endswith("/migrate")]
    see_migrations = _rule(VM.group, (VMI_MIGRATION.plural,), READ)
    view = [_rule(VM.group, vms, READ), see_migrations, _rule(DATA_VOLUME.group, (DATA_VOLUME.plural,), READ)]
    admin = [
        _rule(VM.group, vms, ALL),
        see_migrations,
        _rule(DATA_VOLUME.group, (DATA_VOLUME.plural,), ALL),
        _rule(GROUP, (each for each in subresources if each not in migrations), ("update",)),
    ]
    edit = [*admin, _rule(VM.group, (KUBEVIRT.plural,), ("get", "list"))]
    migrate = [_rule(VM.group, (VMI_MIGRATION.plural,), ALL), _rule(GROUP, migrations, ("update",))]
    aggregated = [
        _role(name, rules, {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"})
        for name, rules in (("view", view), ("edit", edit), ("admin", admin))
    ]
    return [*aggregated, _role("migrate", migrate, {})]


def _role(name: str, rules: list[Json], labels: dict[str, str]) -> Json:
    metadata = {"name": f"kubevirt.io:{name}", "labels": {"kubevirt.io": "", **labels}}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}


def _rule(group: str, resources: Iterable[str], verbs: Iterable[str]) -> Json:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
