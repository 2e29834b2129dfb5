"""Tests of alerts: when they fire, when they do not, and that each has a runbook."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from poolhouse.generate.metrics import MAKERS, measures
from tests.generate.prometheus import program, rules_directory

RUNBOOKS = rules_directory().parent.parent.parent / "docs" / "alerts"
HEADINGS = ("## Meaning", "## Impact", "## Diagnosis", "## Mitigation")
SEVERITIES = {"critical", "warning", "info"}
P = "kubevirt_poolhouse_"


@dataclass(frozen=True)
class Scenario:
    """Series in the notation of promtool, and the minutes at which the alert is inactive and fires."""

    series: dict[str, str]
    inactive: int
    fires: int


HOUR = 3600


def _certificate(instance: str, life: int, left: int) -> dict[str, str]:
    labels = f'{{job="w", instance="{instance}", file="tls.crt"}}'
    return {
        f"{P}certificate_begin_timestamp_seconds{labels}": f"{left - life}x60",
        f"{P}certificate_expiry_timestamp_seconds{labels}": f"{left}x60",
    }


SCENARIOS = {
    "PoolhouseNoLeader": Scenario({f'{P}leader{{lease="poolhouse-controllers"}}': "1x20 0x20"}, inactive=20, fires=30),
    "PoolhouseTwoLeaders": Scenario(
        {
            f'{P}leader{{lease="poolhouse-controllers", instance="a"}}': "1x40",
            f'{P}leader{{lease="poolhouse-controllers", instance="b"}}': "0x20 1x20",
        },
        inactive=20,
        fires=25,
    ),
    "PoolhouseWebhookDown": Scenario({f"{P}admission_defaulter_breaker_state": "0x20 _x40"}, inactive=20, fires=45),
    "PoolhouseAdmissionSlow": Scenario(
        {
            f'{P}admission_duration_seconds_bucket{{entry="mutate", le="0.5"}}': "0+100x60",
            f'{P}admission_duration_seconds_bucket{{entry="mutate", le="2"}}': "0+100x30 3100+150x30",
            f'{P}admission_duration_seconds_bucket{{entry="mutate", le="+Inf"}}': "0+100x30 3100+150x30",
        },
        inactive=29,
        fires=58,
    ),
    "PoolhouseWebhookErrors": Scenario(
        {
            f'{P}admission_unreadable_requests_total{{path="/mutate", code="400"}}': "0x30 0+6x30",
            f'{P}admission_unreadable_requests_total{{path="/elsewhere", code="404"}}': "0+6x60",
            f'{P}admission_question_duration_seconds_count{{entry="dryrun", code="400"}}': "0+6x60",
        },
        inactive=30,
        fires=45,
    ),
    "PoolhouseDefaulterFallback": Scenario(
        {f'{P}admission_fail_open_total{{reason="DefaulterTimeout"}}': "0x30 0+1x30"}, inactive=32, fires=50
    ),
    "PoolhouseDefaulterNewer": Scenario(
        {f'{P}admission_defaulter_newer_than_nodes{{component="qemu"}}': "0x60 1x120"}, inactive=100, fires=130
    ),
    "PoolhouseHardwareDrift": Scenario(
        {f'{P}admission_hardware_changed_later_total{{reason="HardwareChanged"}}': "0x30 1x60"}, inactive=30, fires=40
    ),
    "PoolhouseCertificateExpires": Scenario(
        # Both are valid for a day. Less than a quarter of that is left for `a`; `b` is renewed in time.
        {**_certificate("a", 24 * HOUR, left=6 * HOUR + 1800), **_certificate("b", 24 * HOUR, left=10 * HOUR)},
        inactive=30,
        fires=55,
    ),
    "PoolhouseClocksDiffer": Scenario(
        {f'{P}api_clock_offset_seconds{{job="c", instance="a"}}': "0.4x30 -3600x30"}, inactive=30, fires=45
    ),
    "PoolhouseOrphanedDisks": Scenario(
        {
            f'{P}orphaned_disks{{namespace="n", instance="a"}}': "0x30 3x400",
            f'{P}orphaned_disks{{namespace="n", instance="b"}}': "0x30 3x400",
        },
        inactive=380,
        fires=400,
    ),
    "PoolhouseDefaulterAway": Scenario(
        {
            f'{P}admission_defaulter_breaker_state{{instance="a"}}': "2x60",
            f'{P}admission_defaulter_breaker_state{{instance="b"}}': "0x30 2x30",
        },
        inactive=30,
        fires=45,
    ),
    "PoolhouseDefaulterReplacesWorkers": Scenario(
        {
            f'{P}defaulter_worker_replacements_total{{reason="old"}}': "0+10x60",
            f'{P}defaulter_worker_replacements_total{{reason="crashed"}}': "0x30 0+1x30",
        },
        inactive=30,
        fires=55,
    ),
    "PoolhouseReconcileErrors": Scenario(
        {f'{P}reconcile_errors_total{{name="pool", error="Conflict"}}': "0+2x30 60+60x60"}, inactive=29, fires=60
    ),
    "PoolhouseStale": Scenario(
        {
            # Only the leader reads KubeVirt resources: first `a`, then `b`, which loses contact.
            f'{P}informer_last_contact_timestamp_seconds{{resource="kubevirts", pod="a"}}': "0+60x20 _x60",
            f'{P}informer_last_contact_timestamp_seconds{{resource="kubevirts", pod="b"}}': "_x20 1260+60x30 3060x40",
            f'{P}informer_last_contact_timestamp_seconds{{resource="nodes", instance="a"}}': "0+60x90",
            f'{P}informer_last_contact_timestamp_seconds{{resource="nodes", instance="b"}}': "0+60x90",
        },
        inactive=50,
        fires=75,
    ),
    "PoolhousePoolDegraded": Scenario(
        {
            f'{P}vmpool_desired_replicas{{namespace="n", vmpool="p"}}': "10x120",
            f'{P}vmpool_unavailable_replicas{{namespace="n", vmpool="p"}}': "2x40 3x80",
        },
        inactive=40,
        fires=80,
    ),
    "PoolhouseRolloutStalled": Scenario(
        {f'{P}vmpool_rollout_stalled{{vmpool="p"}}': "0x30 1x30"}, inactive=30, fires=40
    ),
    "PoolhouseSnapshotsFail": Scenario(
        {f'{P}vmpool_snapshot_failing{{vmpool="p"}}': "0x30 1x30"}, inactive=35, fires=50
    ),
    "PoolhouseHealingStopped": Scenario(
        {f'{P}vmpool_healing_stopped{{vmpool="p"}}': "0x30 1x30"}, inactive=35, fires=50
    ),
    "PoolhouseVMsHeld": Scenario({f'{P}vmpool_held_replicas{{vmpool="p"}}': "0x30 2x150"}, inactive=149, fires=155),
    "PoolhouseReplicaSetFailing": Scenario({f'{P}vmirs_failing{{vmirs="s"}}': "0x30 1x30"}, inactive=40, fires=55),
    "PoolhouseWarmPoolEmpty": Scenario(
        {f'{P}warmpool_desired{{warmpool="w"}}': "5x60", f'{P}warmpool_available{{warmpool="w"}}': "1x30 0x30"},
        inactive=39,
        fires=50,
    ),
    "PoolhouseClaimsWait": Scenario({f'{P}warmpool_queued_claims{{warmpool="w"}}': "0x30 7x30"}, inactive=40, fires=55),
    "PoolhouseWarmPoolFailing": Scenario(
        {f'{P}warmpool_breaker_open{{warmpool="w"}}': "0x30 1x30"}, inactive=35, fires=50
    ),
    "PoolhouseWarmRolloutStalled": Scenario(
        {f'{P}warmpool_rollout_stalled{{warmpool="w"}}': "0x30 1x30"}, inactive=30, fires=40
    ),
    "PoolhouseInvariantViolated": Scenario(
        {f'{P}warmpool_invariant_violations_total{{warmpool="w", invariant="I1"}}': "0x30 1x30"}, inactive=30, fires=32
    ),
    "PoolhousePolicyNotEnforced": Scenario(
        {f'{P}migration_policy_enforced{{policy="fast"}}': "1x30 0x30"}, inactive=30, fires=55
    ),
}

MORE_SCENARIOS = [
    # A certificate that is valid for a year.
    (
        "PoolhouseCertificateExpires",
        Scenario(_certificate("a", 8760 * HOUR, left=48 * HOUR + 1800), inactive=30, fires=55),
    )
]
"""further scenarios of an alert"""


def rules(file: str) -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load((rules_directory() / file).read_text())["groups"] for rule in group["rules"]
    ]


ALERTS = {rule["alert"]: rule for rule in rules("alerts.yaml")}


def test_every_alert_has_a_scenario() -> None:
    assert set(SCENARIOS) == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_has_severity_and_runbook(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in SEVERITIES
    assert rule["labels"]["operator_health_impact"] in {"critical", "warning", "none"}
    assert rule["labels"]["kubernetes_operator_part_of"] == "kubevirt"
    assert rule["labels"]["kubernetes_operator_component"] == "poolhouse"
    assert {"summary", "description"} <= set(rule["annotations"])
    page = (RUNBOOKS / f"{alert}.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("## ")] == list(HEADINGS)


def test_list_of_alerts_matches_the_runbooks() -> None:
    pages = {alert: (RUNBOOKS / f"{alert}.md").read_text().split("## Meaning\n\n")[1] for alert in ALERTS}
    rows = [f"| [{alert}]({alert}.md) | {page.splitlines()[0]} |" for alert, page in pages.items()]
    assert set(rows) <= set((RUNBOOKS / "README.md").read_text().splitlines())


def test_runbooks_read_logs_of_all_pods() -> None:
    """`kubectl logs deploy/NAME` shows one Pod, perhaps the standby. With `-l`, it needs `--tail`."""
    lines = [line for page in RUNBOOKS.glob("*.md") for line in page.read_text().splitlines()]
    commands = [line for line in lines if line.startswith("kubectl ") and " logs " in line]
    assert commands
    assert all(re.search(r" logs -l app.kubernetes.io/component=\w+ --prefix --tail ", line) for line in commands)


@pytest.mark.parametrize(
    "rule", [*rules("alerts.yaml"), *rules("recording.yaml")], ids=lambda r: r.get("alert", "rule")
)
def test_rule_uses_existing_metrics(rule: dict[str, Any]) -> None:
    known = {each.name for service in MAKERS for each in measures(service)}
    recorded = {each["record"] for each in rules("recording.yaml")}
    words = {word for word in _names(rule["expr"]) if P in word}
    assert words
    for word in words:
        base = next((word.removesuffix(end) for end in ("_bucket", "_count", "_sum") if word.endswith(end)), word)
        assert base in known or word in recorded, f"{word} is not a metric of Poolhouse"


def _names(expression: str) -> set[str]:
    return set("".join(c if c.isalnum() or c in "_:" else " " for c in expression).split())


def test_alerts_fire_only_in_their_scenarios(tmp_path: Path) -> None:
    found = [*SCENARIOS.items(), *MORE_SCENARIOS]
    files = [_unit_test(tmp_path / f"{number}.yaml", *each) for number, each in enumerate(found)]
    command = [program("promtool"), "test", "rules", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _unit_test(file: Path, alert: str, scenario: Scenario) -> Path:
    """A file for promtool, with the rule of this alert only: promtool evaluates each rule for each minute."""
    own = file.with_suffix(".rules.yaml")
    own.write_text(yaml.safe_dump({"groups": [{"name": alert, "rules": [ALERTS[alert]]}]}))
    test = {
        "name": alert,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in scenario.series.items()],
        "promql_expr_test": [_firing(alert, scenario.inactive, 0), _firing(alert, scenario.fires, 1)],
    }
    files = [str(own), str(rules_directory() / "recording.yaml")]
    file.write_text(yaml.safe_dump({"rule_files": files, "evaluation_interval": "1m", "tests": [test]}))
    return file


def _firing(alert: str, minute: int, count: int) -> dict[str, Any]:
    return {
        "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": "{}", "value": count}] if count else [],
    }
