"""Writes the generated files of the repository: the chart's parts, the reference pages and the Grafana dashboard.

Begin with `refresh`, which lists them; `make generate` runs it. No service imports this package. Alerts and recording
rules are in `charts/poolhouse/monitoring/`, with a runbook for each alert in `docs/alerts/`.
"""
