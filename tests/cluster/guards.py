"""An admission policy that refuses PodDisruptionBudgets in a namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from controllers.shared.evictions import BUDGETS
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from tests.builders import manifest
from tests.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS
from tests.waiting import until

GROUP = "admissionregistration.k8s.io"
MESSAGE = "no budgets here"


@asynccontextmanager
async def budgets_refused(api: Api, namespace: str) -> AsyncIterator[None]:
    """The API server refuses to create and to change PodDisruptionBudgets of the namespace."""
    rule = {"apiGroups": [BUDGETS.group], "apiVersions": ["*"], "resources": [BUDGETS.plural]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    constraints: dict[str, Any] = {"resourceRules": [{**rule, "operations": ["CREATE", "UPDATE"]}]}
    spec: dict[str, Any] = {
        "matchConstraints": {**constraints, "namespaceSelector": here},
        "validations": [{"expression": "false", "message": MESSAGE}],
    }
    await api.create(ADMISSION_POLICIES, {"metadata": {"name": namespace}, "spec": spec})
    binding = {"policyName": namespace, "validationActions": ["Deny"]}
    await api.create(ADMISSION_POLICY_BINDINGS, {"metadata": {"name": namespace}, "spec": binding})

    async def refuses() -> bool:
        probe = manifest(BUDGETS, "probe", {"minAvailable": 1}, namespace)
        try:
            await api.create(BUDGETS, probe, dry_run=True)
        except ApiError as error:
            return MESSAGE in error.message
        return False

    try:
        await until(refuses, True)
        yield
    finally:
        await api.delete(ADMISSION_POLICY_BINDINGS, None, namespace)
        await api.delete(ADMISSION_POLICIES, None, namespace)
