"""Generates manifests from the kinds: CRDs, RBAC, webhook configurations, admission policy, chart and reference pages.

Begin with `refresh`, which writes all generated files of the repository.
"""
