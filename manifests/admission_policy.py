"""Who may write the labels that are the truth about a VM: our ServiceAccounts, and nobody else.

A warm VM's state, its pool, its claim and the policy it obeys are labels on VMs and their instances. Whoever could
write them could take somebody's VM or escape a policy, so a ValidatingAdmissionPolicy in the API server refuses,
without asking us: it holds while we are away.
"""

from __future__ import annotations

from collections.abc import Iterable

from apimachinery.unstructured import Json
from kinds import meta

POLICY_NAME = "poolhouse-labels"
_RESOURCES = ("virtualmachines", "virtualmachineinstances")

KUBEVIRT_ACCOUNT = "system:serviceaccount:kubevirt:kubevirt-controller"
"""makes instances from VMs, with the labels that the VM's template has: the VM's own were checked already"""


def policies(writers: Iterable[str]) -> list[Json]:
    """The policy and its binding. `writers` are user names, `system:serviceaccount:NAMESPACE:NAME`."""
    policy = {
        **_named("ValidatingAdmissionPolicy"),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["kubevirt.io"],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": list(_RESOURCES),
                    }
                ]
            },
            "matchConditions": [
                {
                    "name": "others",
                    "expression": f"!(request.userInfo.username in [{', '.join(repr(w) for w in writers)}])",
                }
            ],
            "validations": [_validation(path, label) for path in _PATHS for label in meta.PROTECTED_LABELS],
        },
    }
    binding = {
        **_named("ValidatingAdmissionPolicyBinding"),
        "spec": {"policyName": POLICY_NAME, "validationActions": ["Deny"]},
    }
    return [policy, binding]


_PATHS = (("metadata",), ("spec", "template", "metadata"))


def _validation(path: tuple[str, ...], label: str) -> Json:
    where = ".".join((*path, "labels"))
    read = "".join(f".?{part}" for part in path) + f".?labels[?'{label}']"
    return {
        # Absent before and after is unchanged; so is an object that has no such path at all.
        "expression": f"(oldObject == null ? optional.none() : oldObject{read}) == object{read}",
        "message": f"{where}[{label}] is written by Poolhouse only: it is how Poolhouse knows this VM",
        "reason": "Forbidden",
    }


def _named(kind: str) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": POLICY_NAME, "labels": {meta.PART_OF: meta.POOLHOUSE}},
    }
