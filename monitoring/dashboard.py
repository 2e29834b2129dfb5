"""Defines the Grafana dashboard as a table of rows and panels, and generates its JSON and its reference page.

Grafana's own SDK builds the JSON, so its types ensure the schema. The chart puts the JSON into a ConfigMap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

UID = "poolhouse"
P = "kubevirt_poolhouse_"
WIDTH, HEIGHT = 8, 8
"""A dashboard has 24 columns: three panels side by side."""

CHOSEN = 'namespace=~"$namespace"'
"""Selects the series of the namespaces that the dashboard's variable contains."""


@dataclass(frozen=True)
class Panel:
    title: str
    asks: str
    """The question that the panel answers; Grafana shows it as the panel's description."""
    queries: tuple[tuple[str, str], ...]
    """Pairs of a PromQL query and the legend of its series."""
    unit: str = "short"


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def _quantile(quantile: float, histogram: str, by: str, where: str = "") -> str:
    return (
        f"histogram_quantile({quantile}, sum by (le, {by}) (rate({P}{histogram}_bucket{{{where}}}[$__rate_interval])))"
    )


ROWS = (
    Row(
        "Pools",
        (
            Panel(
                "VMs that are missing or not available",
                "Does a pool give less than it was asked for?",
                ((f"{P}vmpool_unavailable_replicas{{{CHOSEN}}} > 0", "{{namespace}}/{{vmpool}}"),),
            ),
            Panel(
                "Desired and ready VMs",
                "Are all requested VMs present and ready?",
                (
                    (f"sum by (vmpool) ({P}vmpool_desired_replicas{{{CHOSEN}}})", "{{vmpool}} desired"),
                    (f"sum by (vmpool) ({P}vmpool_ready_replicas{{{CHOSEN}}})", "{{vmpool}} ready"),
                ),
            ),
            Panel(
                "VMs with an old template",
                "Does the rollout make progress?",
                (
                    (
                        f"{P}vmpool_replicas{{{CHOSEN}}} - {P}vmpool_updated_replicas{{{CHOSEN}}}",
                        "{{namespace}}/{{vmpool}}",
                    ),
                ),
            ),
            Panel(
                "VMs replaced by healing",
                "Which pool has failing VMs, and has healing stopped?",
                (
                    (f"rate({P}vmpool_heals_total{{{CHOSEN}}}[$__rate_interval]) * 3600", "{{vmpool}} per hour"),
                    (f"{P}vmpool_healing_stopped{{{CHOSEN}}} > 0", "{{vmpool}} stopped"),
                ),
            ),
            Panel(
                "Retained disks",
                "How many disks has scale-in retained, and does their pool still exist?",
                (
                    (f"{P}vmpool_kept_disks{{{CHOSEN}}} > 0", "{{vmpool}}"),
                    (f"max by (namespace) ({P}orphaned_disks{{{CHOSEN}}})", "{{namespace}}: pool deleted"),
                ),
            ),
            Panel(
                "VMs created and deleted",
                "How much do the pools change?",
                (
                    (
                        f"sum(rate({P}vmpool_vms_created_total{{{CHOSEN}}}[$__rate_interval])) * 60",
                        "created/min",
                    ),
                    (
                        f"sum(rate({P}vmpool_vms_deleted_total{{{CHOSEN}}}[$__rate_interval])) * 60",
                        "deleted/min",
                    ),
                ),
            ),
            Panel(
                "VM starts and stops",
                "Are VMs being restarted?",
                (
                    (f"sum(rate({P}vmpool_vm_starts_total{{{CHOSEN}}}[$__rate_interval])) * 60", "starts per minute"),
                    (f"sum(rate({P}vmpool_vm_stops_total{{{CHOSEN}}}[$__rate_interval])) * 60", "stops per minute"),
                ),
            ),
            Panel(
                "Time from creation to running",
                "How long does a user wait for a VM of a pool?",
                (
                    (
                        _quantile(
                            0.5,
                            "vmi_phase_transition_time_from_creation_seconds",
                            "vmpool",
                            f'{CHOSEN}, phase="Running"',
                        ),
                        "{{vmpool}} median",
                    ),
                    (
                        _quantile(
                            0.95,
                            "vmi_phase_transition_time_from_creation_seconds",
                            "vmpool",
                            f'{CHOSEN}, phase="Running"',
                        ),
                        "{{vmpool}} p95",
                    ),
                ),
                unit="s",
            ),
        ),
    ),
    Row(
        "Admission and hardware",
        (
            Panel(
                "Admission latency",
                "Does Poolhouse slow down the cluster? The API server waits at most 3 seconds.",
                (
                    (_quantile(0.5, "admission_duration_seconds", "entry"), "{{entry}} median"),
                    (_quantile(0.99, "admission_duration_seconds", "entry"), "{{entry}} p99"),
                ),
                unit="s",
            ),
            Panel(
                "Admissions",
                "How many requests are denied?",
                (
                    (
                        f"sum by (kind, result) (rate({P}admission_duration_seconds_count[$__rate_interval]))",
                        "{{kind}} {{result}}",
                    ),
                ),
                unit="reqps",
            ),
            Panel(
                "VMs stored without defaulting",
                "Does the defaulter fail? The controllers fill these VMs later.",
                ((f"sum by (reason) (rate({P}admission_fail_open_total[$__rate_interval]))", "{{reason}}"),),
                unit="reqps",
            ),
            Panel(
                "Defaulter workers",
                "Is libvirt available?",
                (
                    (f"{P}defaulter_workers_ready", "{{instance}} ready"),
                    (f"{P}defaulter_requests_waiting", "{{instance}} requests waiting"),
                ),
            ),
            Panel(
                "Defaulter latency",
                "How long does libvirt need?",
                (
                    (_quantile(0.5, "defaulter_request_duration_seconds", "job"), "median"),
                    (_quantile(0.99, "defaulter_request_duration_seconds", "job"), "p99"),
                ),
                unit="s",
            ),
            Panel(
                "Workers replaced",
                "Does libvirt hang, crash or leak memory?",
                (
                    (
                        f"sum by (reason) (rate({P}defaulter_worker_replacements_total[$__rate_interval])) * 60",
                        "{{reason}} per minute",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Warm pools and claims",
        (
            Panel(
                "VMs ready for claims",
                "Are warm VMs available?",
                (
                    (f"{P}warmpool_available{{{CHOSEN}}}", "{{namespace}}/{{warmpool}}"),
                    (f"{P}warmpool_desired{{{CHOSEN}}}", "{{namespace}}/{{warmpool}} desired"),
                ),
            ),
            Panel(
                "VMs by state",
                "In which state are VMs?",
                ((f"sum by (state) ({P}warmpool_vms{{{CHOSEN}}})", "{{state}}"),),
            ),
            Panel(
                "Waiting claims",
                "Are claims in the queue?",
                ((f"{P}warmpool_queued_claims{{{CHOSEN}}}", "{{namespace}}/{{warmpool}}"),),
            ),
            Panel(
                "Time from claim to Ready",
                "How fast are claims served?",
                (
                    (_quantile(0.5, "claim_duration_seconds", "launch", 'phase="total"'), "{{launch}} median"),
                    (_quantile(0.99, "claim_duration_seconds", "launch", 'phase="total"'), "{{launch}} p99"),
                ),
                unit="s",
            ),
            Panel(
                "Claims",
                "With which result do claims end?",
                (
                    (
                        f"sum by (launch, result) (rate({P}claims_total{{{CHOSEN}}}[$__rate_interval])) * 60",
                        "{{launch}} {{result}} per minute",
                    ),
                ),
            ),
            Panel(
                "Hit rate and idle VMs",
                "Is the pool too small, or too large?",
                (
                    (
                        f'sum by (warmpool) (rate({P}claims_total{{{CHOSEN}, result="Ready", launch!="Cold"}}[30m])) / '
                        f"sum by (warmpool) (rate({P}claims_total{{{CHOSEN}}}[30m]))",
                        "{{warmpool}} warm share",
                    ),
                    (f"rate({P}warmpool_idle_vm_seconds_total{{{CHOSEN}}}[30m])", "{{warmpool}} VMs idle"),
                ),
            ),
        ),
    ),
    Row(
        "Migration policies",
        (
            Panel(
                "VMIs that use a policy",
                "Which policies win?",
                ((f"{P}migration_policy_wins", "{{policy}}"),),
            ),
            Panel(
                "Policies that KubeVirt does not enforce",
                "Does KubeVirt use another policy?",
                ((f"{P}migration_policy_enforced == 0", "{{policy}}"),),
            ),
            Panel(
                "Policy labels and repairs",
                "Does another client change the labels or policies that Poolhouse writes?",
                (
                    (f"rate({P}migration_policy_stamps_total[$__rate_interval]) * 60", "labels per minute"),
                    (f"rate({P}migration_policy_repairs_total[$__rate_interval]) * 60", "repairs per minute"),
                ),
            ),
        ),
    ),
    Row(
        "Services",
        (
            Panel(
                "Leaders",
                "Does exactly one replica lead?",
                ((f"sum by (lease) ({P}leader)", "{{lease}}"),),
            ),
            Panel(
                "Failed reconciles",
                "Which controller fails repeatedly?",
                (
                    (
                        f"sum by (name, error) (rate({P}reconcile_errors_total[$__rate_interval])) * 60",
                        "{{name}} {{error}} per minute",
                    ),
                ),
            ),
            Panel(
                "Work queue length",
                "Do the controllers keep up?",
                ((f"sum by (name) ({P}workqueue_depth)", "{{name}}"),),
            ),
            Panel(
                "Requests to the API server",
                "How many requests does Poolhouse send?",
                ((f"sum by (verb, code) (rate({P}api_requests_total[$__rate_interval]))", "{{verb}} {{code}}"),),
                unit="reqps",
            ),
            Panel(
                "Age of informer data",
                "Does a watch receive nothing?",
                (
                    (
                        f"max by (resource) (time() - {P}informer_last_contact_timestamp_seconds)",
                        "{{resource}}",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Certificate lifetime left",
                "Are certificates renewed?",
                ((f"min by (job) ({P}certificate_expiry_timestamp_seconds) - time()", "{{job}}"),),
                unit="s",
            ),
            Panel(
                "Memory",
                "Does a service leak memory?",
                (('process_resident_memory_bytes{job=~".*poolhouse.*"}', "{{job}} {{instance}}"),),
                unit="bytes",
            ),
        ),
    ),
)


def expressions() -> Iterator[str]:
    """Every query of every panel, as Prometheus gets it."""
    return (expression for row in ROWS for panel in row.panels for expression in asked(panel))


def asked(panel: Panel) -> Iterator[str]:
    """A panel's queries as Prometheus gets them when all namespaces are chosen and a point is per minute."""
    for expression, _ in panel.queries:
        yield expression.replace("$__rate_interval", "1m").replace("$namespace", ".*")


def text() -> str:
    """The dashboard as the JSON that Grafana imports."""
    return JSONEncoder(sort_keys=True, indent=1).encode(_dashboard().build()) + "\n"


def page() -> str:
    """The reference page: each panel with the question that it answers."""
    lines = [
        "<!-- Generated by `make generate`. -->",
        "",
        "# Dashboard",
        "",
        "`charts/poolhouse/monitoring/dashboard.json` is a Grafana dashboard. You can import the file. With",
        "`metrics.dashboard.enabled` the chart puts it into a ConfigMap for Grafana's sidecar. It works with every",
        "Prometheus that scrapes [our metrics](metrics.md). A test runs every query on a running stack.",
    ]
    for row in ROWS:
        lines += ["", f"## {row.title}", "", "| Panel | Question |", "| --- | --- |"]
        lines += [f"| {panel.title} | {panel.asks} |" for panel in row.panels]
    return "\n".join(lines) + "\n"


def _dashboard() -> Any:
    made = (
        dashboard.Dashboard("Poolhouse")
        .uid(UID)
        .tags(["kubevirt", "poolhouse"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .readonly()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("namespace")
            .label("Namespace")
            .datasource(_source())
            .query(f"label_values({P}vmpool_desired_replicas, namespace)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .include_all(True)
            .all_value(".*")
            .multi(True)
        )
    )
    for row in ROWS:
        made = made.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(_panel(panel))
    return made


def _panel(panel: Panel) -> Any:
    made = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.asks)
        .datasource(_source())
        .unit(panel.unit)
        .min(0)
        .span(WIDTH)
        .height(HEIGHT)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    for index, (expression, name) in enumerate(panel.queries):
        made = made.with_target(
            prometheus.Dataquery().expr(expression).legend_format(name).ref_id(chr(ord("A") + index))
        )
    return made


def _source() -> DataSourceRef:
    return DataSourceRef(type_val="prometheus", uid="${datasource}")
