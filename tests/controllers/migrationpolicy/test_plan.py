"""The actions for KubeVirt's policy and for the label of a VMI."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.migrationpolicy.observe import parse_vmi
from controllers.migrationpolicy.plan import CreateUpstream, DeleteUpstream, LabelVMI, RepairUpstream, plan, plan_label
from tests.controllers.migrationpolicy.builders import cluster, enforcing, given, policy

LABEL = {"virtualMachineInstanceSelector": {"poolhouse.dev/migration-policy": "gold"}}


def spec(**settings: Any) -> dict[str, Any]:
    return {**settings, "selectors": LABEL}


NO_DISRUPTION = {"allowPostCopy": False, "allowWorkloadDisruption": False}
STALLS = "MigrationStallDetection"
STALL, ZSTD = {"stallDetector": {"stallMargin": 8}}, {"compression": "zstd"}
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("known", "action"),
    [
        pytest.param(given(), CreateUpstream(spec()), id="KubeVirt has no policy of this name"),
        pytest.param(given(enforcing=enforcing()), None, id="in sync"),
        pytest.param(given(served=False), None, id="the CRD is not installed"),
        pytest.param(given(policy(metadata=DELETED), enforcing=enforcing()), None, id="the policy is being deleted"),
        pytest.param(given(enforcing=enforcing(metadata=DELETED)), None, id="KubeVirt's policy is being deleted"),
        pytest.param(
            given(enforcing=enforcing(spec={"allowPostCopy": True})),
            RepairUpstream("uid-of-gold", spec(), "allowPostCopy, selectors differed from the policy"),
            id="another client changed it",
        ),
        pytest.param(
            given(policy(allowPostCopy=True, disableTLS=True), enforcing=enforcing()),
            RepairUpstream("uid-of-gold", spec(allowPostCopy=True), "allowPostCopy differed from the policy"),
            id="the author changed the policy",
        ),
        pytest.param(
            given(policy(allowWorkloadDisruption=True, maxDowntimeMs=500), cluster=cluster(STALLS)),
            CreateUpstream(spec(allowWorkloadDisruption=True, maxDowntimeMs=500)),
            id="all settings that KubeVirt has",
            marks=pytest.mark.sentence("3.14"),
        ),
        pytest.param(
            given(policy(allowWorkloadDisruption=True, maxDowntimeMs=500), cluster=cluster()),
            CreateUpstream(spec(allowWorkloadDisruption=True)),
            id="a setting whose feature gate is off is not sent",
        ),
        pytest.param(
            given(policy(maxDowntimeMs=500), cluster=cluster(STALLS), enforcing=enforcing()),
            RepairUpstream("uid-of-gold", spec(maxDowntimeMs=500), "maxDowntimeMs differed from the policy"),
            id="a setting whose feature gate was switched on is added",
        ),
        pytest.param(
            given(policy(maxDowntimeMs=500), cluster=cluster(), enforcing=enforcing(spec=spec(maxDowntimeMs=500))),
            RepairUpstream("uid-of-gold", spec(), "maxDowntimeMs differed from the policy"),
            id="a setting whose feature gate was switched off is removed",
        ),
        pytest.param(
            given(policy(experimental=STALL | ZSTD), cluster=cluster(release="v1.8.4")),
            CreateUpstream(spec()),
            id="an older KubeVirt gets no experimental settings",
        ),
        pytest.param(
            given(policy(experimental=STALL | ZSTD), cluster=cluster(STALLS)),
            CreateUpstream(spec(experimental=STALL | ZSTD)),
            id="experimental settings",
        ),
        pytest.param(
            given(policy(experimental=STALL | ZSTD), cluster=cluster()),
            CreateUpstream(spec(experimental=ZSTD)),
            id="experimental settings without the feature gate of some",
        ),
        pytest.param(
            given(policy(allowPostCopy=False), cluster=cluster(allowWorkloadDisruption=True)),
            CreateUpstream(spec(allowPostCopy=False, allowWorkloadDisruption=True)),
            id="forbidden post-copy does not forbid the disruption that KubeVirt's configuration allows",
            marks=pytest.mark.sentence("3.15"),
        ),
        pytest.param(
            given(policy(**NO_DISRUPTION), cluster=cluster(allowWorkloadDisruption=True)),
            CreateUpstream(spec(**NO_DISRUPTION)),
            id="the policy forbids the disruption itself",
        ),
        pytest.param(
            given(cluster=cluster(allowWorkloadDisruption=True)),
            CreateUpstream(spec()),
            id="a policy without either leaves both to KubeVirt's configuration",
        ),
        pytest.param(
            given(policy(allowPostCopy=True), cluster=cluster(allowWorkloadDisruption=False)),
            CreateUpstream(spec(allowPostCopy=True)),
            id="allowed post-copy allows its disruption",
        ),
        pytest.param(
            given(enforcing=enforcing(spec=spec(multifd=4, experimental={"new": 1}))),
            None,
            id="settings that Poolhouse does not know stay",
        ),
        pytest.param(
            given(policy(experimental=ZSTD), enforcing=enforcing(spec=spec(experimental={"new": 1}))),
            RepairUpstream(
                "uid-of-gold", spec(experimental={"new": 1, **ZSTD}), "experimental differed from the policy"
            ),
            id="settings that Poolhouse does not know stay when others change",
        ),
        pytest.param(
            given(enforcing=enforcing(spec=spec(experimental=ZSTD))),
            RepairUpstream("uid-of-gold", spec(), "experimental differed from the policy"),
            id="an experimental setting that the policy does not have",
        ),
        pytest.param(
            given(enforcing=enforcing(spec=spec(allowWorkloadDisruption=True))),
            RepairUpstream("uid-of-gold", spec(), "allowWorkloadDisruption differed from the policy"),
            id="another client added a setting that the policy leaves to KubeVirt's configuration",
        ),
        pytest.param(given(enforcing=enforcing(owner="", managed=False)), None, id="a foreign policy of the same name"),
        pytest.param(
            given(enforcing=enforcing(owner="another", managed=True)), None, id="our label without our owner reference"
        ),
        pytest.param(
            given(enforcing=enforcing(owner="")),
            RepairUpstream("uid-of-gold", spec(), "its owner reference was missing"),
            id="an orphan of a deleted policy is adopted",
        ),
        pytest.param(
            given(older="old", enforcing=enforcing()),
            DeleteUpstream("uid-of-gold", "the policy is not active"),
            id="a duplicate of an older policy",
        ),
        pytest.param(
            given(expired=True, enforcing=enforcing()),
            DeleteUpstream("uid-of-gold", "the policy is not active"),
            id="it has expired",
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
