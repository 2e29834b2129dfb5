"""Manifests made from the kinds: CRDs, RBAC, webhook configurations, admission policy, chart files, reference pages.

Begin with `refresh`, which writes all generated files of the repository.
"""
