"""Generates the Grafana dashboard and the reference pages of metrics, settings and reasons.

Alerts and recording rules are in `charts/poolhouse/monitoring/`, with a runbook for each alert in `docs/alerts/`.
`make generate` rewrites the generated files. No service imports this package.
"""
