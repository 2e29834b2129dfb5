"""Explanations of the policy of a VMI, effective settings, and the impact of changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.migrationpolicies.effective_settings import (
    ClusterMigrations,
    Setting,
    effective_settings,
    ignored_settings,
    missing_settings,
)
from poolhouse.api.migrationpolicies.explanation import ClusterState, WinnerChange, explain, impact
from poolhouse.api.migrationpolicies.precedence import RankedPolicy, Selectors
from poolhouse.api.migrationpolicies.upstream import UpstreamPolicy, upstream_spec
from tests.kinds.policies import enforcer, policy, upstream

TLS = "KubeVirt has it for the whole cluster only, where it is {}"
STALLS, TUNING = "MigrationStallDetection", "MigrationDowntimeTuning"
AWD = "allowWorkloadDisruption"
NINE = ClusterMigrations.of({"status": {"observedKubeVirtVersion": "v1.9.0"}})
GATED = "it needs KubeVirt's feature gate MigrationStallDetection, which is off"
STAMP = "poolhouse.dev/migration-policy"


def kubevirt(**migrations):
    return {"spec": {"configuration": {"migrations": migrations}}}


@pytest.mark.parametrize(
    ("said", "cluster", "name", "setting"),
    [
        pytest.param({}, {}, "completionTimeoutPerGiB", Setting(150, "default"), id="the built-in default"),
        pytest.param(
            {},
            {"allowPostCopy": True},
            "allowPostCopy",
            Setting(True, "kubevirt"),
            id="KubeVirt says",
            marks=pytest.mark.sentence("3.15"),
        ),
        pytest.param(
            {"allowPostCopy": False},
            {"allowPostCopy": True},
            "allowPostCopy",
            Setting(False, "policy"),
            id="the policy",
            marks=pytest.mark.sentence("3.15"),
        ),
        pytest.param(
            {"bandwidthPerMigration": 0}, {}, "bandwidthPerMigration", Setting(0, "policy"), id="zero is said"
        ),
        pytest.param({"disableTLS": False}, {}, "disableTLS", Setting(False, "policy"), id="TLS as KubeVirt has it"),
        pytest.param(
            {"disableTLS": True},
            {},
            "disableTLS",
            Setting(False, "default", ignored=True, why=TLS.format("false")),
            id="TLS cannot be disabled",
        ),
        pytest.param(
            {"disableTLS": False},
            {"disableTLS": True},
            "disableTLS",
            Setting(True, "kubevirt", ignored=False, why=TLS.format("true")),
            id="TLS cannot be enabled for one policy",
        ),
        pytest.param({AWD: True}, {}, AWD, Setting(True, "policy"), id="the policy allows a disruption"),
        pytest.param({"allowPostCopy": True}, {AWD: False}, AWD, Setting(True, "policy"), id="post-copy allows it too"),
        pytest.param(
            {"allowPostCopy": False},
            {AWD: True},
            AWD,
            Setting(True, "kubevirt"),
            id="forbidden post-copy leaves it to KubeVirt's configuration",
            marks=pytest.mark.sentence("3.15"),
        ),
        pytest.param({}, {"allowPostCopy": True}, AWD, Setting(True, "kubevirt"), id="it follows post-copy"),
        pytest.param({}, {}, AWD, Setting(False, "default"), id="it follows the default of post-copy"),
        pytest.param({}, NINE, "maxDowntimeMs", None, id="a setting without its feature gate has no default"),
        pytest.param(
            {"maxDowntimeMs": 5},
            NINE,
            "maxDowntimeMs",
            Setting(None, "default", ignored=5, why=GATED),
            id="a setting without its feature gate is ignored",
        ),
        pytest.param({"maxDowntimeMs": 5}, {}, "maxDowntimeMs", Setting(5, "policy"), id="the downtime limit"),
        pytest.param({}, {}, "maxDowntimeMs", Setting(900, "default"), id="the default of the downtime limit"),
        pytest.param(
            {"experimental": {"compression": "zstd"}},
            NINE,
            "experimental.compression",
            Setting("zstd", "policy"),
            id="an experimental setting",
        ),
        pytest.param({}, {}, "experimental.compression", None, id="no experimental setting has a default"),
    ],
)
@pytest.mark.sentence("3.14")
def test_effective_settings_and_their_source(said, cluster, name, setting) -> None:
    known = cluster if isinstance(cluster, ClusterMigrations) else ClusterMigrations(cluster)
    assert effective_settings(said, known).get(name) == setting
    assert (name in ignored_settings(said, known)) is (setting is not None and setting.ignored is not None)


@pytest.mark.parametrize(
    ("release", "gates", "spec", "warnings"),
    [
        pytest.param("v1.5.0", (), {"allowWorkloadDisruption": True}, [], id="every supported KubeVirt has it"),
        pytest.param("", (), {"allowWorkloadDisruption": True}, [], id="every KubeVirt of an unknown release has it"),
        pytest.param(
            "v1.8.4",
            (),
            {"maxDowntimeMs": 1},
            ["spec.maxDowntimeMs: this cluster ignores it: it needs KubeVirt 1.9, and this cluster has 1.8"],
            id="an older KubeVirt",
        ),
        pytest.param(
            "v1.9.0",
            (),
            {"maxDowntimeMs": 1, "experimental": {"compression": "zstd"}},
            [
                "spec.maxDowntimeMs: this cluster ignores it: it needs KubeVirt's feature gate"
                " MigrationStallDetection, which is off"
            ],
            id="a feature gate that is off",
        ),
        pytest.param("v1.9.0", (STALLS,), {"maxDowntimeMs": 1}, [], id="a feature gate that is on"),
        pytest.param("v1.10.0", (TUNING,), {"maxDowntimeMs": 1}, [], id="the other feature gate"),
        pytest.param(
            "v1.10.0",
            (),
            {"maxDowntimeMs": 1},
            [
                "spec.maxDowntimeMs: this cluster ignores it: it needs KubeVirt's feature gate MigrationStallDetection"
                " or MigrationDowntimeTuning, which is off"
            ],
            id="two feature gates that are off",
        ),
        pytest.param(
            "v1.9.0",
            (TUNING,),
            {"experimental": {"downtimeTuning": {"steps": 3}}},
            [
                "spec.experimental.downtimeTuning: this cluster ignores it: it needs KubeVirt 1.10, and this cluster"
                " has 1.9"
            ],
            id="a setting of the next release",
        ),
        pytest.param(
            "v1.10.0", (TUNING,), {"experimental": {"downtimeTuning": {"steps": 3}}}, [], id="the next release"
        ),
        pytest.param(
            "",
            (STALLS,),
            {"maxDowntimeMs": 1, "experimental": {"stallDetector": {}, "compression": "zstd"}},
            [
                "spec.experimental.compression: this cluster ignores it: it needs KubeVirt 1.9, and this cluster's"
                " release is not known"
            ],
            id="an unknown release with a feature gate",
        ),
    ],
)
def test_settings_that_a_cluster_does_not_have(release, gates, spec, warnings) -> None:
    assert list(missing_settings(spec, ClusterSettings((release,) if release else (), frozenset(gates)))) == warnings


def test_the_explanation_of_one_vmi() -> None:
    both = policy("both", {"gpu": "nvidia"}, {"priority": "high"}, uid="both-uid", bandwidthPerMigration="64Mi")
    there = ClusterState(
        (
            both,
            policy("gpu", {"gpu": ""}),
            policy("intel", {"gpu": "intel"}),
            policy("copy", {"gpu": ""}),
            policy("draft"),
            policy("wrong", {"gpu": "nv idia"}),
        ),
        kubevirt(allowPostCopy=True),
        (enforcer(both),),
    )
    told = explain({"gpu": "nvidia"}, {"priority": "high"}, there)
    assert told["policy"] == "both"
    assert [each["name"] for each in told["candidates"]] == ["both", "copy"]
    assert told["candidates"][0]["labels"] == {
        "virtualMachineInstance": {"gpu": "nvidia"},
        "namespace": {"priority": "high"},
    }
    assert "2 to 1" in told["candidates"][1]["reason"]
    others = {each["name"]: each["reason"] for each in told["others"]}
    assert "gpu=intel" in others["intel"]
    assert "gpu=nvidia" in others["intel"]
    assert "copy" in others["gpu"]
    assert "no label" in others["draft"]
    assert "not valid" in others["wrong"]
    assert told["settings"]["bandwidthPerMigration"] == {"value": "64Mi", "source": "policy", "from": "both"}
    assert told["settings"]["allowPostCopy"] == {"value": True, "source": "kubevirt"}
    assert list(told["settings"]) == [
        "allowAutoConverge",
        "bandwidthPerMigration",
        "completionTimeoutPerGiB",
        "allowPostCopy",
        "allowWorkloadDisruption",
        "disableTLS",
    ]
    assert told["notes"] == []


def test_an_expired_policy_matches_nothing() -> None:
    event = policy("event", {"app": "web"}, {"site": ""}, expiresAt="2026-12-01T06:00:00Z")
    policies = (policy("web", {"app": "web"}), event)
    labels = {"app": "web"}, {"site": "a"}
    before = explain(*labels, ClusterState(policies, now=datetime(2026, 12, 1, 5, 59, 59, tzinfo=UTC)))
    assert before["policy"] == "event"
    assert "policy event expires at 2026-12-01T06:00:00Z; after that, policy web applies" in before["notes"]
    then = ClusterState(policies, now=datetime(2026, 12, 1, 6, tzinfo=UTC))
    after = explain(*labels, then)
    assert after["policy"] == "web"
    assert after["others"] == [{"name": "event", "reason": "it expired at 2026-12-01T06:00:00Z"}]
    renewed = then.with_policies([{**event, "spec": {**event["spec"], "expiresAt": "2027-01-01T00:00:00Z"}}])
    assert impact([("shop", "vm", labels[0])], {"shop": labels[1]}, then, renewed) == [
        WinnerChange("shop", "vm", "web", "event")
    ]


@pytest.mark.sentence("3.16")
def test_without_a_policy_kubevirts_settings_apply() -> None:
    told = explain({}, {}, ClusterState((policy("p", {"a": "1"}),), kubevirt(completionTimeoutPerGiB=800)))
    assert told["policy"] is None
    assert told["candidates"] == []
    assert told["settings"]["completionTimeoutPerGiB"] == {"value": 800, "source": "kubevirt"}


def test_the_label_of_the_winner_is_ignored() -> None:
    there = ClusterState((policy("p", {STAMP: "p"}),))
    assert explain({STAMP: "p"}, {}, there)["policy"] is None


def test_unsupported_settings_are_reported() -> None:
    there = ClusterState((policy("p", {"a": "1"}, disableTLS=True),), {}, (upstream("x", {"a": "1", "b": "2"}),))
    told = explain({"a": "1", "b": "2"}, {}, there)
    assert any("policy x instead of p" in note for note in told["notes"])
    assert any("disableTLS" in note for note in told["notes"])
    assert told["settings"]["disableTLS"] == {"value": False, "source": "default", "unheeded": True}


def saying(**condition):
    """The policy P with its condition Enforced."""
    return {**P, "status": {"conditions": [{"type": "Active"}, {"type": "Enforced", **condition}]}}


P = policy("p", {"a": "1"}, uid="p-uid", allowPostCopy=True)
MISSING = "not enforced: KubeVirt has no migration policy p of Poolhouse with the same settings"
THEIRS = "KubeVirt obeys its own policy {} instead of p: it is in migrations.kubevirt.io, not ours"


@pytest.mark.parametrize(
    ("ours", "upstreams", "notes"),
    [
        pytest.param(P, [enforcer(P)], [], id="it is enforced"),
        pytest.param(P, [], [MISSING], id="nothing enforces it"),
        pytest.param(P, [enforcer(P, allowPostCopy=False)], [MISSING], id="what enforces it says something else"),
        pytest.param(P, [upstream("p", {"b": "1"})], [MISSING], id="somebody else's has its name"),
        pytest.param(P, [upstream("p", {"a": "1"})], [MISSING, THEIRS.format("p")], id="KubeVirt obeys its namesake"),
        pytest.param(P, [upstream("z", {}, {})], [MISSING, THEIRS.format("z")], id="KubeVirt obeys one for all VMIs"),
        pytest.param(P, [enforcer(P), upstream("z", {}, {})], [], id="one for all VMIs loses to the enforcing one"),
        pytest.param(
            P,
            [enforcer(P), upstream("a", {"a": "1"}), upstream("z", {"a": "1", "b": "2"})],
            [THEIRS.format("z")],
            id="only the first of theirs is obeyed",
        ),
        pytest.param(
            saying(status="False", reason="FailedUpdate", message="It could not be written."),
            [],
            ["not enforced: It could not be written."],
            id="why is known",
        ),
        pytest.param(
            saying(status="False", reason="Overridden", message="by x"),
            [enforcer(P), upstream("x", {"c": "1", "d": "2"})],
            [],
            id="what outranks it for other VMs",
        ),
        pytest.param(saying(status="True", reason="InSync", message=""), [], [MISSING], id="it was a moment ago"),
        pytest.param(P, None, [], id="nobody may look"),
        pytest.param(
            saying(status="False", reason="CRDNotInstalled", message="There is none."),
            None,
            ["not enforced: There is none."],
            id="nobody may look, but the policy itself tells",
        ),
    ],
)
def test_a_policy_that_is_not_enforced_is_reported(ours, upstreams, notes) -> None:
    assert explain({"a": "1", "b": "2"}, {}, ClusterState((ours,), {}, upstreams))["notes"] == notes


def test_a_hypothetical_policy_needs_no_enforcement() -> None:
    refused = saying(status="False", reason="FailedUpdate", message="It could not be written.")
    there = ClusterState((refused,)).with_policies([policy("p", {"a": "1"})])
    assert explain({"a": "1"}, {}, there)["notes"] == []
    preferred = ClusterState((), {}, (upstream("x", {"a": "1", "b": "2"}),)).with_policies([policy("p", {"a": "1"})])
    assert explain({"a": "1", "b": "2"}, {}, preferred)["notes"] == [THEIRS.format("x")]


def test_hypothetical_policies_can_win() -> None:
    there = ClusterState((policy("p", {"a": "1"}, created="1"),))
    assert explain({"a": "1"}, {}, there.with_policies([policy("q", {"a": "1"}, {"n": ""})]))["policy"] == "p"
    assert explain({"a": "1"}, {"n": "x"}, there.with_policies([policy("q", {"a": "1"}, {"n": ""})]))["policy"] == "q"
    assert explain({"a": "1"}, {}, there.with_policies([policy("p", {"a": "2"})]))["policy"] is None
    assert explain({"a": "1"}, {}, there.with_policies([policy("0", {"a": "1"})]))["policy"] == "p"


def test_impact_lists_the_vmis_with_another_winner() -> None:
    instances = [("shop", "web", {"a": "1"}), ("shop", "db", {"a": "1", "b": "1"}), ("lab", "web", {"a": "1"})]
    there = ClusterState((policy("p", {"a": "1"}),))
    new = there.with_policies([policy("q", {"a": "1"}, {"n": ""}), policy("r", {"b": "", "a": ""})])
    assert impact(instances, {"shop": {}, "lab": {"n": "x"}}, there, new) == [
        WinnerChange("lab", "web", "p", "q"),
        WinnerChange("shop", "db", "p", "r"),
    ]


def test_other_settings_have_no_impact() -> None:
    there = ClusterState((policy("p", {"a": "1"}),))
    new = there.with_policies([policy("p", {"a": "1"}, allowPostCopy=True)])
    assert impact([("shop", "web", {"a": "1"})], {"shop": {}}, there, new) == []


def test_the_enforcing_policy_selects_by_our_label_alone() -> None:
    ours = policy("p", {"a": "1"}, allowPostCopy=True, disableTLS=True, bandwidthPerMigration="1Mi")["spec"]
    assert upstream_spec("p", ours, ClusterMigrations()) == {
        "allowPostCopy": True,
        "bandwidthPerMigration": "1Mi",
        "selectors": {"virtualMachineInstanceSelector": {STAMP: "p"}},
    }


OURS = RankedPolicy("p", Selectors.of({"size": "small", "gpu": ""}, {"tier": "gold"}))


@pytest.mark.parametrize(
    ("theirs", "threatens"),
    [
        pytest.param(upstream("z", {"size": "small", "gpu": "x"}), True, id="two labels"),
        pytest.param(upstream("z", {"other": "x", "more": "y"}), True, id="two labels that a VM could have as well"),
        pytest.param(upstream("z", {"other": "x"}, {"tier": "gold"}), True, id="one of each"),
        pytest.param(upstream("a", {"size": "small"}), True, id="one label and a name that comes first"),
        pytest.param(upstream("z", {"size": "small"}), False, id="one label and a name that comes after"),
        pytest.param(upstream("a", None, {"tier": "gold"}), False, id="one of the namespace's"),
        pytest.param(upstream("a", None, {"tier": "gold", "x": "y"}), True, id="two of the namespace's"),
        pytest.param(upstream("z", {"size": "large", "gpu": "x"}), False, id="no VM of ours has that label"),
        pytest.param(upstream("z", {"size": "small"}, {"tier": "lead"}), False, id="no namespace of ours has it"),
        pytest.param(upstream("z", {"size": "small", "gpu": ""}), True, id="the empty value, which is one of any"),
        pytest.param(upstream("z", {STAMP: "q", "a": "b"}), False, id="another policy's stamp"),
        pytest.param(upstream("a"), False, id="everybody, which counts nothing"),
        pytest.param({"metadata": {"name": "a"}, "spec": {}}, False, id="nobody"),
    ],
)
def test_which_policies_of_kubevirt_may_override_ours(theirs, threatens) -> None:
    assert UpstreamPolicy.of(theirs).may_override(OURS) is threatens
