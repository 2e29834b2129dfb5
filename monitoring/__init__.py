"""What administrators see of Poolhouse: metrics, the Grafana dashboard, alerts, and the generated reference pages.

Alerts and recording rules are in `charts/poolhouse/monitoring/`, with a runbook for each alert in `docs/alerts/`.
`make generate` rewrites the generated files. No service imports this package.
"""
