"""The rights of the services."""

from __future__ import annotations

from poolhouse.api.kinds import CLAIM, KINDS
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.manifests import rbac, virtual_node
from poolhouse.manifests.rbac import PolicyRule


def test_no_rule_has_wildcards_or_secrets() -> None:
    """The engine runs on a developer's machine only. It reads Secrets as a kubelet does."""
    extra = rbac.ANALYSIS_JOB_RULES, virtual_node.rules("poolhouse"), virtual_node.lease_rules("poolhouse")
    services = [rules for name, rules in rbac.CLUSTER_RULES.items() if name != "engine"]
    for rules_of_service in (*services, *rbac.NAMESPACE_RULES.values(), *extra):
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
    def resources(*rules: PolicyRule) -> set[str]:
        roles = rbac.manifests(["controllers"], controllers=rules)
        return {r for role in roles for rule in role.get("rules") or () for r in rule["resources"]}

    assert resources(*rbac.ANALYSIS_JOB_RULES) - resources() == {"jobs", "cronjobs"}


def test_controllers_write_nodes_and_pods_only_with_a_virtual_node() -> None:
    def writes(*more: PolicyRule) -> set[tuple[str, str, tuple[str, ...]]]:
        roles = rbac.manifests(["controllers"], controllers=more)
        rules = [rule for role in roles for rule in role.get("rules") or () if rule["apiGroups"] == [""]]
        return {
            (resource, verb, tuple(rule.get("resourceNames") or ()))
            for rule in rules
            for resource in rule["resources"]
            for verb in rule["verbs"]
            if verb not in ("get", "list", "watch")
        }

    assert writes(*virtual_node.rules("mine")) - writes() == {
        ("nodes", "create", ()),
        ("nodes", "patch", ("mine",)),
        ("nodes/status", "patch", ("mine",)),
        ("pods", "delete", ()),
        ("pods/status", "patch", ()),
    }


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
