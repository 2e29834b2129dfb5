"""Validation of migration policies, and their conflicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY, MigrationPolicySpec
from poolhouse.api.migrationpolicies.conflicts import conflicts, overlaps
from poolhouse.api.migrationpolicies.precedence import candidates, ranked_policy
from tests.kinds.policies import policy

FULL = """
apiVersion: kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata:
  name: my-awesome-policy
spec:
  # Migration Configuration
  allowAutoConverge: true
  bandwidthPerMigration: 217Ki
  completionTimeoutPerGiB: 23
  allowPostCopy: false
  disableTLS: false

  # Matching to VMs
  selectors:
    namespaceSelector:
      matchLabels:
        hpc-workloads: true
        xyz-workloads-type: ""
    virtualMachineInstanceSelector:
      matchLabels:
        workload-type: db
        operating-system: ""
"""

STALLS = "spec.experimental.stallDetector"
INSTANCE = "spec.selectors.virtualMachineInstanceSelector.matchLabels"


def stalls(**options: Any) -> dict[str, Any]:
    return policy("p", experimental={"stallDetector": options})


def problems(document: dict[str, Any]) -> dict[str, str]:
    return {problem.path: problem.message for problem in MIGRATION_POLICY.problems(document)}


@pytest.mark.sentence("3.14")
def test_the_full_example_of_the_design_document_is_valid() -> None:
    assert MIGRATION_POLICY.problems(yaml.safe_load(FULL)) == []
    (warning,) = MIGRATION_POLICY.warnings(yaml.safe_load(FULL))
    assert warning.startswith("spec.bandwidthPerMigration: 217Ki a second becomes 1Mi")


@pytest.mark.sentence("3.19")
def test_a_boolean_in_a_selector_becomes_text() -> None:
    stored = MIGRATION_POLICY.normalize(yaml.safe_load(FULL))
    assert stored["spec"]["selectors"]["namespaceSelector"]["matchLabels"] == {
        "hpc-workloads": "true",
        "xyz-workloads-type": "",
    }
    assert MIGRATION_POLICY.normalize(stored) is stored


@pytest.mark.sentence("3.19")
def test_a_stored_boolean_is_read_as_text() -> None:
    assert ("hpc-workloads", "true") in ranked_policy(yaml.safe_load(FULL)).selectors.namespace
    spec = MigrationPolicySpec.model_validate(yaml.safe_load(FULL)["spec"])
    assert spec.selectors.namespace_selector.match_labels["hpc-workloads"] == "true"


@pytest.mark.parametrize(
    ("document", "path", "said"),
    [
        pytest.param(
            policy("p", bandwidthPerMigration="-1Mi"), "spec.bandwidthPerMigration", "not negative", id="-1Mi"
        ),
        pytest.param(policy("p", bandwidthPerMigration=-1), "spec.bandwidthPerMigration", "not negative", id="-1"),
        pytest.param(policy("p", bandwidthPerMigration="fast"), "spec.bandwidthPerMigration", "quantity", id="fast"),
        pytest.param(policy("p", bandwidthPerMigration="10Ei"), "spec.bandwidthPerMigration", "8Ei", id="10Ei"),
        pytest.param(
            policy("p", completionTimeoutPerGiB=-1), "spec.completionTimeoutPerGiB", "at least 0", id="timeout"
        ),
        pytest.param(policy("p", allowPostCopy="yes"), "spec.allowPostCopy", "true or false", id="text for a boolean"),
        pytest.param(policy("p", maxDowntimeMs=0), "spec.maxDowntimeMs", "at least 1", id="no downtime"),
        pytest.param(
            policy("p", expiresAt="9999-12-31T00:00:00Z"), "spec.expiresAt", "not 9999; for a policy", id="far away"
        ),
        pytest.param(policy("p", expiresAt="tomorrow"), "spec.expiresAt", "time with its zone", id="no time"),
        pytest.param(
            policy("p", expiresAt="2026-12-01T06:00:00"),
            "spec.expiresAt",
            "time with its zone",
            id="a time without a zone",
        ),
        pytest.param(stalls(ewmaAlpha="0"), f"{STALLS}.ewmaAlpha", "greater than 0", id="no weight"),
        pytest.param(stalls(ewmaAlpha="1.1"), f"{STALLS}.ewmaAlpha", "at most 1", id="too much weight"),
        pytest.param(stalls(ewmaAlpha=0.4), f"{STALLS}.ewmaAlpha", "in quotes", id="a number"),
        pytest.param(stalls(ewmaAlpha="0.1234"), f"{STALLS}.ewmaAlpha", "three decimal places", id="four places"),
        pytest.param(
            stalls(precopyPossibleFactor="0.9"), f"{STALLS}.precopyPossibleFactor", "at least 1", id="a small factor"
        ),
        pytest.param(
            stalls(patienceWindowDecayFactor="2"), f"{STALLS}.patienceWindowDecayFactor", "at most 1", id="growth"
        ),
        pytest.param(
            stalls(completionTimeoutFactor="0"), f"{STALLS}.completionTimeoutFactor", "at least 1", id="no time"
        ),
        pytest.param(
            policy("p", experimental={"stallDetector": {}, "downtimeTuning": {}}),
            "spec.experimental",
            "exclude each other",
            id="two that KubeVirt does not combine",
        ),
        pytest.param(policy("x" * 64, {"a": ""}), "metadata.name", "63", id="a name that is no label value"),
        pytest.param(policy("p", {"a b": ""}), f'{INSTANCE}["a b"]', "label key", id="a key with a space"),
        pytest.param(policy("p", {"a": "b c"}), f"{INSTANCE}.a", "letters, digits", id="a value with a space"),
        pytest.param(policy("p", {"a": "x" * 64}), f"{INSTANCE}.a", "63", id="a value that is too long"),
        pytest.param(policy("p", {"a": 1}), f"{INSTANCE}.a", 'in quotes, "1"', id="a number"),
        pytest.param(policy("p", {"a": None}), f"{INSTANCE}.a", '"" for any value', id="null"),
        pytest.param(policy("p", {"a": ["x"]}), f"{INSTANCE}.a", "not a list", id="a list"),
        pytest.param(
            policy("p", {"poolhouse.dev/migration-policy": "q"}),
            f'{INSTANCE}["poolhouse.dev/migration-policy"]',
            "writes down",
            id="our own stamp, which would decide about itself",
        ),
    ],
)
def test_an_invalid_policy_has_a_problem_with_its_path(document: dict[str, Any], path: str, said: str) -> None:
    assert said in problems(document)[path]


def test_a_misplaced_field_gets_a_hint() -> None:
    found = problems(policy("p", matchLabels={}, namespaceSelector={}, progressTimeout=1, stallDetector={}))
    assert "inside experimental" in found["spec.stallDetector"]
    assert "spec.configuration.migrations of the KubeVirt object" in found["spec.progressTimeout"]
    assert "selectors" in found["spec.matchLabels"]
    assert "selectors" in found["spec.namespaceSelector"]


@pytest.mark.parametrize("document", [policy("p"), policy("p", {}), policy("p", {}, {})], ids=["none", "one", "both"])
def test_a_policy_without_labels_gets_a_warning(document: dict[str, Any]) -> None:
    assert MIGRATION_POLICY.problems(document) == []
    (warning,) = MIGRATION_POLICY.warnings(document)
    assert "matches no VM" in warning


def test_one_empty_selector_gets_no_warning() -> None:
    assert MIGRATION_POLICY.warnings(policy("p", {"a": "1"}, {})) == []


@pytest.mark.sentence("3.24")
def test_disabling_tls_gets_a_warning() -> None:
    (warning,) = MIGRATION_POLICY.warnings(policy("p", {"a": "1"}, disableTLS=True))
    assert "whole cluster" in warning


@pytest.mark.parametrize(
    ("asked", "others", "elder"),
    [
        pytest.param(policy("new", {"a": "1"}), [policy("old", {"a": "1"}, created="1")], "old", id="the same labels"),
        pytest.param(
            policy("new", {"a": True}, {}), [policy("old", {"a": "true"}, created="1")], "old", id="written differently"
        ),
        pytest.param(
            policy("p", {"a": "1"}), [policy("p", {"a": "1"}, created="1")], None, id="itself, as it is stored"
        ),
        pytest.param(policy("new", {"a": "1"}), [policy("old", {"a": "2"}, created="1")], None, id="another value"),
        pytest.param(
            policy("new", {"a": ""}), [policy("old", {"a": "1"}, created="1")], None, id="any value is another"
        ),
        pytest.param(
            policy("new", {"a": "1"}), [policy("old", None, {"a": "1"}, created="1")], None, id="another place"
        ),
        pytest.param(policy("new"), [policy("old", created="1")], None, id="two for nobody"),
    ],
)
@pytest.mark.sentence("3.8")
def test_the_same_selectors_are_denied(asked, others, elder) -> None:
    found = list(conflicts(ranked_policy(asked), map(ranked_policy, others)))
    if elder is None:
        assert found == []
    else:
        (problem,) = found
        assert isinstance(problem, Problem)
        assert problem.path == "spec.selectors"
        assert f'"{elder}"' in problem.message


def test_an_overlap_decided_by_the_tie_break_gets_a_warning() -> None:
    (warning,) = overlaps(ranked_policy(policy("a", {"z": "1"})), [ranked_policy(policy("b", None, {"y": "1"}))])
    assert "'y' comes before 'z'" in warning
    assert '"b"' in warning


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(policy("a", {"k": "1"}), policy("b", {"k": "2"}), id="no VM matches both"),
        pytest.param(policy("a", {"k": "1"}), policy("b", {"k": "1", "l": "1"}), id="the number of labels decides"),
        pytest.param(policy("a", {"k": "1"}), policy("a", {"l": "1"}), id="the policy itself as it was"),
        pytest.param(policy("a"), policy("b"), id="for nobody"),
    ],
)
def test_other_overlaps_get_no_warning(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert list(overlaps(ranked_policy(one), [ranked_policy(other)])) == []


def test_the_number_of_warnings_about_overlaps_is_limited() -> None:
    many = [ranked_policy(policy(f"p{n}", {f"k{n}": ""})) for n in range(100)]
    told = list(overlaps(ranked_policy(policy("p", {"a": ""})), many))
    assert len(told) == 6
    assert "95 more" in told[-1]


@pytest.mark.parametrize(
    ("text", "number"),
    [("217Ki", 217 * 1024), ("0", 0), (5, 5), ("1.5k", 1500), ("1e3", 1000), ("1m", 1), ("", None), ("x", None)],
)
def test_quantities_are_numbers(text: Any, number: int | None) -> None:
    assert to_int(text) == number


def test_the_example_is_valid_and_its_first_policy_wins() -> None:
    page = Path(__file__).parents[2] / "examples" / "migration-policies.yaml"
    databases, computing = yaml.safe_load_all(page.read_text())
    assert MIGRATION_POLICY.problems(databases) == MIGRATION_POLICY.problems(computing) == []
    both = [ranked_policy(computing), ranked_policy(databases)]
    labels = {"workload-type": "db", "operating-system": "debian"}
    found = candidates(both, labels, {"hpc-workloads": "true"})
    assert [each.name for each in found] == ["databases", "computing"]


@pytest.mark.parametrize(
    ("said", "warns"),
    [
        *[(each, True) for each in ("1", 5, "1023Ki", "100m", "1n", "1500u", "5e-1", "0.5", "1.5")],
        *[(each, False) for each in ("1Mi", "64M", "0", "0m", "1048576000m")],
    ],
)
def test_a_bandwidth_below_one_mebibyte_gets_a_warning(said: Any, warns: bool) -> None:
    slow = policy("p", {"a": "1"}, bandwidthPerMigration=said)
    assert MIGRATION_POLICY.problems(slow) == []
    warnings = MIGRATION_POLICY.warnings(slow)
    assert [each.split(":")[0] for each in warnings] == (["spec.bandwidthPerMigration"] if warns else [])
