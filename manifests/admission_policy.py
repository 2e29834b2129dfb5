"""The ValidatingAdmissionPolicy that protects labels of VMs and VMIs: only Poolhouse's ServiceAccounts may write them.

These labels record the state of a warm VM, its pool, its claim and its migration policy. A user who could write them
could take over another user's VM or escape a policy. The API server evaluates the policy itself, so the policy
applies even while the webhook is unavailable.
"""

from collections.abc import Iterable

from apimachinery.unstructured import Json
from kinds import meta

POLICY_NAME = "poolhouse-labels"
_RESOURCES = ("virtualmachines", "virtualmachineinstances")

KUBEVIRT_ACCOUNT = "system:serviceaccount:kubevirt:kubevirt-controller"
"""user that may create VMIs with these labels: it copies them from VMs, which the policy has checked"""


def policies(writers: Iterable[str]) -> list[Json]:
    """The policy and its binding. `writers` are user names of the form `system:serviceaccount:NAMESPACE:NAME`."""
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
        # A label that is absent before and after counts as unchanged, even if the object has no labels.
        "expression": f"(oldObject == null ? optional.none() : oldObject{read}) == object{read}",
        "message": f"{where}[{label}] is written by Poolhouse only, to identify this VM",
        "reason": "Forbidden",
    }


def _named(kind: str) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": POLICY_NAME, "labels": {meta.PART_OF: meta.POOLHOUSE}},
    }
