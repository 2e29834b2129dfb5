"""The manifests that follow from the kinds: CRDs, RBAC, webhook configurations, admission policy."""
