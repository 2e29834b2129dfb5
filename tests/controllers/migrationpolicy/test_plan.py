"""The actions for KubeVirt's policy and for the label of a VMI."""

from __future__ import annotations

import pytest

from controllers.migrationpolicy.observe import parse_vmi
from controllers.migrationpolicy.plan import CreateUpstream, DeleteUpstream, LabelVMI, RepairUpstream, plan, plan_label
from poolhouse.api.migrationpolicies.upstream import upstream_spec
from tests.controllers.migrationpolicy.builders import enforcing, given, policy

DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("known", "action"),
    [
        pytest.param(given(), CreateUpstream(upstream_spec("gold", {})), id="KubeVirt has no policy of this name"),
        pytest.param(given(enforcing=enforcing()), None, id="in sync"),
        pytest.param(given(served=False), None, id="the CRD is not installed"),
        pytest.param(given(policy(metadata=DELETED), enforcing=enforcing()), None, id="the policy is being deleted"),
        pytest.param(given(enforcing=enforcing(metadata=DELETED)), None, id="KubeVirt's policy is being deleted"),
        pytest.param(
            given(enforcing=enforcing(spec={"allowPostCopy": True})),
            RepairUpstream(
                "uid-of-gold", upstream_spec("gold", {}), "allowPostCopy, selectors differed from the policy"
            ),
            id="another client changed it",
        ),
        pytest.param(
            given(policy(allowPostCopy=True, disableTLS=True), enforcing=enforcing()),
            RepairUpstream(
                "uid-of-gold", upstream_spec("gold", {"allowPostCopy": True}), "allowPostCopy differed from the policy"
            ),
            id="the author changed the policy",
        ),
        pytest.param(given(enforcing=enforcing(owner="", managed=False)), None, id="a foreign policy of the same name"),
        pytest.param(
            given(enforcing=enforcing(owner="another", managed=True)), None, id="our label without our owner reference"
        ),
        pytest.param(
            given(enforcing=enforcing(owner="")),
            RepairUpstream("uid-of-gold", upstream_spec("gold", {}), "its owner reference was missing"),
            id="an orphan of a deleted policy is adopted",
        ),
        pytest.param(
            given(older="old", enforcing=enforcing()),
            DeleteUpstream("uid-of-gold", "the policy is not active"),
            id="a duplicate of an older policy",
        ),
        pytest.param(given(older="old"), None, id="a duplicate without a policy of KubeVirt"),
        pytest.param(
            given(older="old", enforcing=enforcing(owner="", managed=False)),
            None,
            id="a duplicate, and KubeVirt's policy is foreign",
        ),
        pytest.param(
            given(policy(instance={}), enforcing=enforcing()),
            DeleteUpstream("uid-of-gold", "the policy is not active"),
            id="no selectors any more",
        ),
        pytest.param(given(policy(instance={"bad key": ""})), None, id="invalid"),
    ],
)
def test_kubevirts_policy_is_kept_in_sync(known, action) -> None:
    assert plan(known) == action


def vmi(*, labelled: str | None = None, phase: str = "Running", **metadata):
    labels = {"app": "web", **({"poolhouse.dev/migration-policy": labelled} if labelled else {})}
    return parse_vmi(
        {
            "metadata": {"namespace": "shop", "name": "web", "uid": "u", "labels": labels, **metadata},
            "status": {"phase": phase},
        }
    )


@pytest.mark.parametrize(
    ("found", "winner", "action"),
    [
        pytest.param(vmi(), "gold", LabelVMI("u", "gold", "gold wins"), id="not labelled"),
        pytest.param(vmi(labelled="gold"), "gold", None, id="labelled already"),
        pytest.param(
            vmi(labelled="lead"), "gold", LabelVMI("u", "gold", "gold wins instead of lead"), id="another winner"
        ),
        pytest.param(vmi(labelled="gold"), None, LabelVMI("u", None, "no policy matches it"), id="no winner"),
        pytest.param(vmi(), None, None, id="no winner and no label"),
        pytest.param(vmi(**DELETED), "gold", None, id="being deleted"),
        pytest.param(vmi(phase="Succeeded"), "gold", None, id="finished"),
    ],
)
def test_a_vmi_is_labelled_with_its_winner(found, winner, action) -> None:
    assert plan_label(found, winner) == action


def test_the_label_of_the_winner_does_not_count_for_selectors() -> None:
    assert vmi(labelled="gold").labels == {"app": "web"}
