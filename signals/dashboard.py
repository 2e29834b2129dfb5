"""The Grafana dashboard, as code: a table of rows of panels, each a question that somebody on duty asks.

Made with Grafana's own SDK, whose types are the schema that Grafana reads. The chart puts the JSON into a ConfigMap
that Grafana's sidecar finds; by hand it is imported as it is.
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
"""of the 24 columns that a dashboard has: three panels side by side"""

CHOSEN = 'namespace=~"$namespace"'
"""every series about an object has its namespace; the variable chooses among them"""


@dataclass(frozen=True)
class Panel:
    title: str
    asks: str
    """the question that it answers, shown behind the panel's (i)"""
    queries: tuple[tuple[str, str], ...]
    """PromQL, and how its series are called"""
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
                "Does what is wanted exist, and is it ready?",
                (
                    (f"sum by (vmpool) ({P}vmpool_desired_replicas{{{CHOSEN}}})", "{{vmpool}} desired"),
                    (f"sum by (vmpool) ({P}vmpool_ready_replicas{{{CHOSEN}}})", "{{vmpool}} ready"),
                ),
            ),
            Panel(
                "VMs with an old template",
                "Does an update go on?",
                (
                    (
                        f"{P}vmpool_replicas{{{CHOSEN}}} - {P}vmpool_updated_replicas{{{CHOSEN}}}",
                        "{{namespace}}/{{vmpool}}",
                    ),
                ),
            ),
            Panel(
                "VMs replaced by healing",
                "Which pool keeps failing, and has healing stopped?",
                (
                    (f"rate({P}vmpool_heals_total{{{CHOSEN}}}[$__rate_interval]) * 3600", "{{vmpool}} an hour"),
                    (f"{P}vmpool_healing_stopped{{{CHOSEN}}} > 0", "{{vmpool}} stopped"),
                ),
            ),
            Panel(
                "Kept disks",
                "What does scale-in leave behind, and who will ever want it?",
                (
                    (f"{P}vmpool_kept_disks{{{CHOSEN}}} > 0", "{{vmpool}}"),
                    (f"max by (namespace) ({P}orphaned_disks{{{CHOSEN}}})", "{{namespace}}: pool is gone"),
                ),
            ),
            Panel(
                "VMs made and removed",
                "What moves?",
                (
                    (f"sum(rate({P}vmpool_vms_created_total{{{CHOSEN}}}[$__rate_interval])) * 60", "made a minute"),
                    (f"sum(rate({P}vmpool_vms_deleted_total{{{CHOSEN}}}[$__rate_interval])) * 60", "removed a minute"),
                ),
            ),
            Panel(
                "VM starts and stops",
                "Is something restarting VMs?",
                (
                    (f"sum(rate({P}vmpool_vm_starts_total{{{CHOSEN}}}[$__rate_interval])) * 60", "starts a minute"),
                    (f"sum(rate({P}vmpool_vm_stops_total{{{CHOSEN}}}[$__rate_interval])) * 60", "stops a minute"),
                ),
            ),
            Panel(
                "Time from creation to running",
                "How long does somebody wait for a VM of a pool?",
                (
                    (
                        _quantile(
                            0.5,
                            "vmi_phase_transition_time_from_creation_seconds",
                            "vmpool",
                            f'{CHOSEN}, phase="Running"',
                        ),
                        "{{vmpool}} half of them",
                    ),
                    (
                        _quantile(
                            0.95,
                            "vmi_phase_transition_time_from_creation_seconds",
                            "vmpool",
                            f'{CHOSEN}, phase="Running"',
                        ),
                        "{{vmpool}} 95 %",
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
                "Time to answer an admission",
                "Does Poolhouse slow the cluster down? The API server waits 3 seconds at most.",
                (
                    (_quantile(0.5, "admission_duration_seconds", "entry"), "{{entry}} half of them"),
                    (_quantile(0.99, "admission_duration_seconds", "entry"), "{{entry}} 99 %"),
                ),
                unit="s",
            ),
            Panel(
                "Admissions",
                "Who is refused?",
                (
                    (
                        f"sum by (kind, result) (rate({P}admission_duration_seconds_count[$__rate_interval]))",
                        "{{kind}} {{result}}",
                    ),
                ),
                unit="reqps",
            ),
            Panel(
                "VMs let through undecided",
                "Is the defaulter ill? These are completed later.",
                ((f"sum by (reason) (rate({P}admission_fail_open_total[$__rate_interval]))", "{{reason}}"),),
                unit="reqps",
            ),
            Panel(
                "Defaulter's workers",
                "Can libvirt be asked?",
                (
                    (f"{P}defaulter_workers_ready", "{{instance}} ready"),
                    (f"{P}defaulter_requests_waiting", "{{instance}} requests waiting"),
                ),
            ),
            Panel(
                "Defaulter's answers",
                "How long does libvirt take?",
                (
                    (_quantile(0.5, "defaulter_request_duration_seconds", "job"), "half of them"),
                    (_quantile(0.99, "defaulter_request_duration_seconds", "job"), "99 %"),
                ),
                unit="s",
            ),
            Panel(
                "Workers replaced",
                "Does libvirt hang, crash or leak?",
                (
                    (
                        f"sum by (reason) (rate({P}defaulter_worker_replacements_total[$__rate_interval])) * 60",
                        "{{reason}} a minute",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Warm pools and claims",
        (
            Panel(
                "VMs that a claim would get now",
                "Is there something to give?",
                (
                    (f"{P}warmpool_available{{{CHOSEN}}}", "{{namespace}}/{{warmpool}}"),
                    (f"{P}warmpool_desired{{{CHOSEN}}}", "{{namespace}}/{{warmpool}} desired"),
                ),
            ),
            Panel(
                "VMs by state",
                "Where do VMs stay?",
                ((f"sum by (state) ({P}warmpool_vms{{{CHOSEN}}})", "{{state}}"),),
            ),
            Panel(
                "Claims that wait",
                "Does anybody stand in line?",
                ((f"{P}warmpool_queued_claims{{{CHOSEN}}}", "{{namespace}}/{{warmpool}}"),),
            ),
            Panel(
                "Time from claim to Ready",
                "Is it as quick as it should be?",
                (
                    (_quantile(0.5, "claim_duration_seconds", "launch", 'phase="total"'), "{{launch}} half of them"),
                    (_quantile(0.99, "claim_duration_seconds", "launch", 'phase="total"'), "{{launch}} 99 %"),
                ),
                unit="s",
            ),
            Panel(
                "Claims",
                "How do they end?",
                (
                    (
                        f"sum by (launch, result) (rate({P}claims_total{{{CHOSEN}}}[$__rate_interval])) * 60",
                        "{{launch}} {{result}} a minute",
                    ),
                ),
            ),
            Panel(
                "Hit rate, and what idles for it",
                "Is the pool too small, or too large?",
                (
                    (
                        f'sum by (warmpool) (rate({P}claims_total{{{CHOSEN}, result="Ready", launch!="Cold"}}[30m])) / '
                        f"sum by (warmpool) (rate({P}claims_total{{{CHOSEN}}}[30m]))",
                        "{{warmpool}} not cold",
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
                "VMIs that obey a policy",
                "Which policies matter?",
                ((f"{P}migration_policy_wins", "{{policy}}"),),
            ),
            Panel(
                "Policies that are not enforced",
                "Does KubeVirt obey another one?",
                ((f"{P}migration_policy_enforced == 0", "{{policy}}"),),
            ),
            Panel(
                "Stamps and repairs",
                "Is somebody changing what we keep in step?",
                (
                    (f"rate({P}migration_policy_stamps_total[$__rate_interval]) * 60", "stamps a minute"),
                    (f"rate({P}migration_policy_repairs_total[$__rate_interval]) * 60", "repairs a minute"),
                ),
            ),
        ),
    ),
    Row(
        "The services themselves",
        (
            Panel(
                "Leaders",
                "Is exactly one at work?",
                ((f"sum by (lease) ({P}leader)", "{{lease}}"),),
            ),
            Panel(
                "Reconciles that failed",
                "What goes wrong again and again?",
                (
                    (
                        f"sum by (name, error) (rate({P}reconcile_errors_total[$__rate_interval])) * 60",
                        "{{name}} {{error}} a minute",
                    ),
                ),
            ),
            Panel(
                "Keys that wait",
                "Do the controllers keep up?",
                ((f"sum by (name) ({P}workqueue_depth)", "{{name}}"),),
            ),
            Panel(
                "Requests to the API server",
                "What do we cost the cluster?",
                ((f"sum by (verb, code) (rate({P}api_requests_total[$__rate_interval]))", "{{verb}} {{code}}"),),
                unit="reqps",
            ),
            Panel(
                "How old what we know is",
                "Has a watch died?",
                (
                    (
                        f"max by (resource) (time() - {P}informer_last_contact_timestamp_seconds)",
                        "{{resource}}",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Time until certificates end",
                "Are they renewed?",
                ((f"min by (job) ({P}certificate_expiry_timestamp_seconds) - time()", "{{job}}"),),
                unit="s",
            ),
            Panel(
                "Memory",
                "Does a service grow?",
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
    """A panel's queries as Prometheus gets them when all namespaces are chosen and a point is a minute."""
    for expression, _ in panel.queries:
        yield expression.replace("$__rate_interval", "1m").replace("$namespace", ".*")


def text() -> str:
    """The dashboard as the JSON that Grafana imports."""
    return JSONEncoder(sort_keys=True, indent=1).encode(_dashboard().build()) + "\n"


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
