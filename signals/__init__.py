"""What an administrator sees of Poolhouse: metrics, the dashboard drawn from them, alerts and their runbooks.

`metrics` knows every metric of every service and writes their reference page; `dashboard` is the Grafana dashboard as
code. Alerts and recording rules are in `charts/poolhouse/signals/`, a runbook for each alert in `docs/alerts/`.
`python -m signals.refresh` rewrites what is generated. No service imports this.
"""
