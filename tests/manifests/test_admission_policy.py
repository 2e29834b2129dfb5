"""The labels that only Poolhouse may write."""

from __future__ import annotations

from poolhouse.api.kinds import meta
from poolhouse.manifests import admission_policy, rbac


def test_every_protected_label_is_checked_on_the_vm_and_its_vmi_template() -> None:
    policy, binding = admission_policy.policies([rbac.service_account_user("controllers")])
    texts = [validation["message"] for validation in policy["spec"]["validations"]]
    for label in meta.PROTECTED_LABELS:
        assert any(text.startswith(f"metadata.labels[{label}]") for text in texts)
        assert any(text.startswith(f"spec.template.metadata.labels[{label}]") for text in texts)
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]


def test_no_policy_is_left_out() -> None:
    """The chart, the embedded stack and the tests install those of one list."""
    functions = [each for name, each in vars(admission_policy).items() if name.endswith("policies")]
    found = admission_policy.documents(virtual_node="poolhouse")
    names = {each["metadata"]["name"] for each in found}
    assert len(found) == 2 * len(functions) == 2 * len(names)
    assert len(admission_policy.documents()) == len(found) - 2, "without a virtual node, the controllers write no Node"
