"""The kinds of Poolhouse, with a module for each kind. CRDs, RBAC, webhooks and pages are generated from the modules.

Begin with `pool`, then `kind`, which has all properties of a kind. `model` has the base classes and types of fields.
`schema` makes the schema of a CRD. `validation` reports the problems of a document. `checks/` has rules that schemas
cannot express. `meta` has labels and annotations, `resource_types` the names of the kinds' resources, and `registry`
the list of kinds. `kubevirt` has the kinds of KubeVirt that the engine serves.

To add a kind, write its resource type and its module, and add them to the lists `OURS` and `KINDS`; then add its
controller package to `controllers/main.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poolhouse.api.kinds.claim import CLAIM
    from poolhouse.api.kinds.kind import Kind
    from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
    from poolhouse.api.kinds.pool import POOL
    from poolhouse.api.kinds.registry import DISABLED_KINDS, KINDS, by_gvk, disabled_kinds
    from poolhouse.api.kinds.replicaset import REPLICA_SET
    from poolhouse.api.kinds.warmpool import WARM_POOL

__all__ = [
    "CLAIM",
    "DISABLED_KINDS",
    "KINDS",
    "MIGRATION_POLICY",
    "POOL",
    "REPLICA_SET",
    "WARM_POOL",
    "Kind",
    "by_gvk",
    "disabled_kinds",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports the kinds with their models only for code that uses them, and not for `from kinds import meta`."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("poolhouse.api.kinds.registry"), name)
