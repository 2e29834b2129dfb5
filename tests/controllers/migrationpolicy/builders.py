"""States in which a test says only what matters to it."""

from __future__ import annotations

from typing import Any

from controllers.migrationpolicy import state
from controllers.migrationpolicy.state import Enforcer, Policy, State
from migrationpolicies.upstream import upstream_spec
from tests.kinds.policies import policy as document
from tests.kinds.policies import upstream

UID = "the-policys-uid"


def policy(name: str = "gold", instance: Any = None, *, uid: str = UID, **changed: Any) -> Policy:
    settings = {key: changed.pop(key) for key in list(changed) if key.startswith(("allow", "band", "disable"))}
    found = document(name, {"app": "web"} if instance is None else instance, **settings)
    found["metadata"] |= {"uid": uid, "generation": 1, **changed.pop("metadata", {})}
    return state.policy({**found, **changed})


def enforcer(name: str = "gold", *, owner: str = UID, marked: bool = True, **changed: Any) -> Enforcer:
    found = upstream(name)
    found["metadata"] |= {
        "uid": f"uid-of-{name}",
        "labels": {"app.kubernetes.io/managed-by": "poolhouse"} if marked else {},
        "ownerReferences": [{"uid": owner, "controller": True}] if owner else [],
        **changed.pop("metadata", {}),
    }
    return state.enforcer({**found, "spec": changed.pop("spec", None) or upstream_spec(name, {})})


def given(of: Policy | None = None, **known: Any) -> State:
    return State(of or policy(), **known)
