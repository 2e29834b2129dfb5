"""What holds for every kind: nothing undescribed, nothing that the API server refuses, nothing stale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kinds
from kinds import KINDS, Kind, by_gvk, meta
from kinds.kubevirt import KUBEVIRT_KINDS
from kinds.replicaset import REPLICA_SET
from kinds.warmpool import WARM_POOL
from manifests import admission_policy, rbac, webhooks
from manifests.crd import crd
from manifests.refresh import stale

ALL = tuple(dict.fromkeys((*KINDS, *KUBEVIRT_KINDS, REPLICA_SET)))
each = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.crd_name)


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
        yield from fields(field.get("items", {}), f"{path}.{name}[]")
        if isinstance(field.get("additionalProperties"), dict):
            yield from fields(field["additionalProperties"], f"{path}.{name}.*")


def versions(kind: Kind) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = crd(kind)["spec"]["versions"]
    return found


@each
def test_every_field_says_what_it_is_for(kind: Kind) -> None:
    for version in versions(kind):
        schema = version["schema"]["openAPIV3Schema"]
        bare = [path for path, field in fields(schema) if not field.get("description") and path != ".metadata"]
        assert bare == []


@each
def test_every_field_has_a_type_and_no_reference(kind: Kind) -> None:
    for version in versions(kind):
        for path, field in fields(version["schema"]["openAPIV3Schema"]):
            assert "type" in field or field.get("x-kubernetes-int-or-string"), path
            assert not field.keys() & {"$ref", "title", "x-rules", "x-hints", "x-expected", "x-model", "const"}, path


@each
def test_defaults_are_scalars_and_only_in_specs(kind: Kind) -> None:
    for version in versions(kind):
        for path, field in fields(version["schema"]["openAPIV3Schema"]):
            if "default" in field:
                assert path.startswith(".spec"), path
                assert isinstance(field["default"], str | int | bool), path


@each
def test_columns_of_ours_show_fields_that_exist(kind: Kind) -> None:
    known = dict(fields(versions(kind)[0]["schema"]["openAPIV3Schema"]))
    for column in kind.columns:
        path = column.path.split("[")[0]
        assert path.startswith(".metadata") or path in known, column


def test_names_are_taken_once_in_a_group() -> None:
    taken: dict[tuple[str, str], str] = {}
    for kind in ALL:
        for name in (kind.plural, kind.singular, *kind.short_names):
            owner = taken.setdefault((kind.group, name), kind.kind)
            assert owner == kind.kind, f"{name} is {owner}'s"


def test_exactly_one_version_is_stored() -> None:
    for kind in ALL:
        assert [version["storage"] for version in versions(kind)].count(True) == 1


def test_kinds_are_found_by_their_names() -> None:
    assert by_gvk("kubevirt.io/v1", "VirtualMachinePool") is kinds.POOL
    assert by_gvk("pool.kubevirt.io/v1beta1", "VirtualMachinePool") is None


def test_generated_files_are_fresh() -> None:
    assert stale() == [], "run `python -m manifests.refresh`"


CA = b"-----BEGIN CERTIFICATE-----\n"


def test_defaulting_fails_open_and_our_kinds_fail_closed() -> None:
    found = webhooks.configurations(url="https://127.0.0.1:1/", ca_bundle=CA, failure_policy="Fail")
    verification = next(c for c in found if c["webhooks"][0]["name"].startswith("defaulting-verification"))
    assert verification["webhooks"][0]["failurePolicy"] == "Ignore", "a webhook that only warns denies nothing"
    found = webhooks.configurations(url="https://127.0.0.1:1/", ca_bundle=CA)
    policies = {
        webhook["name"]: (webhook["failurePolicy"], webhook["clientConfig"]["url"])
        for configuration in found
        for webhook in configuration["webhooks"]
    }
    assert policies == {
        "defaulting.poolhouse.dev": ("Ignore", "https://127.0.0.1:1/mutate"),
        "defaulting-verification.poolhouse.dev": ("Ignore", "https://127.0.0.1:1/validate"),
        "pools.poolhouse.dev": ("Fail", "https://127.0.0.1:1/mutate"),
        "pools-validation.poolhouse.dev": ("Fail", "https://127.0.0.1:1/validate"),
    }


def test_every_kind_of_ours_is_asked_about() -> None:
    found = webhooks.configurations(service=webhooks.Service(), ca_bundle=CA)
    ours = [each for each in found if each["metadata"]["name"] == webhooks.KINDS_CONFIGURATION]
    assert len(ours) == 2
    for configuration in ours:
        rules = configuration["webhooks"][0]["rules"]
        assert {
            (group, resource) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]
        } == {(kind.group, kind.plural) for kind in KINDS}
        assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in rules), "nothing may stop a deletion"


@pytest.mark.parametrize("reached", [{}, {"url": "https://a", "service": webhooks.Service()}])
def test_a_webhook_is_reached_in_one_way(reached: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one of the two"):
        webhooks.configurations(ca_bundle=CA, **reached)


def test_nobody_has_more_rights_than_named() -> None:
    for grants in (*rbac.CLUSTER_RULES.values(), *rbac.NAMESPACE_RULES.values()):
        for grant in grants:
            words = {grant.group, *grant.resources, *grant.verbs}
            assert "*" not in words, grant
            assert not words & {"secrets", "escalate", "bind", "impersonate", "pods/exec"}, grant
            assert grant.why, grant


def test_the_defaulter_has_no_rights_and_no_token() -> None:
    (account,) = rbac.manifests(["defaulter"])
    assert account["kind"] == "ServiceAccount"
    assert account["automountServiceAccountToken"] is False


def test_controllers_may_own_and_report_on_every_kind_but_not_change_its_spec() -> None:
    rules = [grant.rule() for grant in rbac.CLUSTER_RULES["controllers"]]
    for kind in KINDS:
        verbs: dict[str, set[str]] = {}
        for rule in rules:
            for resource in rule["resources"] if rule["apiGroups"] == [kind.group] else ():
                verbs.setdefault(resource, set()).update(rule["verbs"])
        # A warm pool whose machines are to outlive it gets a finalizer, which is metadata.
        finalizes = {"patch"} if kind is WARM_POOL else set()
        assert verbs[kind.plural] == {"get", "list", "watch"} | finalizes
        assert "patch" in verbs[f"{kind.plural}/status"]
        assert "update" in verbs[f"{kind.plural}/finalizers"]


def test_every_label_of_ours_is_guarded_on_the_vm_and_on_what_becomes_its_instance() -> None:
    policy, binding = admission_policy.policies([rbac.service_account_user("controllers")])
    texts = [validation["message"] for validation in policy["spec"]["validations"]]
    for label in meta.PROTECTED_LABELS:
        assert any(text.startswith(f"metadata.labels[{label}]") for text in texts)
        assert any(text.startswith(f"spec.template.metadata.labels[{label}]") for text in texts)
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
