"""The rights of the services."""

from __future__ import annotations

from poolhouse.api.kinds import CLAIM, KINDS
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.manifests import rbac


def test_no_rule_has_wildcards_or_secrets() -> None:
    for rules_of_service in (*rbac.CLUSTER_RULES.values(), *rbac.NAMESPACE_RULES.values(), rbac.ANALYSIS_JOB_RULES):
        for rule in rules_of_service:
            words = {rule.group, *rule.resources, *rule.verbs}
            assert "*" not in words, rule
            assert not words & {"secrets", "escalate", "bind", "impersonate", "pods/exec"}, rule
            assert rule.why, rule


def test_the_defaulter_has_no_rights_and_no_token() -> None:
    (account,) = rbac.manifests(["defaulter"])
    assert account["kind"] == "ServiceAccount"
    assert account["automountServiceAccountToken"] is False


def test_controllers_create_jobs_only_if_the_operator_allows_it() -> None:
    def resources(**given: bool) -> set[str]:
        roles = rbac.manifests(["controllers"], **given)
        return {r for role in roles for rule in role.get("rules") or () for r in rule["resources"]}

    assert resources(analysis_jobs=True) - resources() == {"jobs", "cronjobs"}


def test_controllers_cannot_change_the_spec_of_a_kind() -> None:
    rules = [rule.rule() for rule in rbac.CLUSTER_RULES["controllers"]]
    for kind in KINDS:
        verbs: dict[str, set[str]] = {}
        for rule in rules:
            for resource in rule["resources"] if rule["apiGroups"] == [kind.group] else ():
                verbs.setdefault(resource, set()).update(rule["verbs"])
        # A warm pool whose machines are to outlive it gets a finalizer, which is metadata.
        finalizes = {"patch"} if kind is WARM_POOL else set()
        deletes = {"delete"} if kind is CLAIM else set()
        assert verbs[kind.plural] == {"get", "list", "watch"} | finalizes | deletes
        assert "patch" in verbs[f"{kind.plural}/status"]
        assert "update" in verbs[f"{kind.plural}/finalizers"]
