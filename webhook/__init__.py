"""The admission webhook, and endpoints that show users what admission would decide.

Begin with `review` (requests and responses as values) and `admission` (which handler decides which kind).

    app                the FastAPI application: routes of the API server, health checks and metrics
    callers            the API server's certificate, limits of all other callers
    admission          dispatch by kind, checks that a kind declares, completion of claims
    patch              the JSON patch between two documents
    defaulting         defaults of VMs and VMIs from the defaulter (fails open)
    strict_defaulting  denial of VMs that stay without defaults
    hook_sidecar       KubeVirt's sidecar for new VMIs with a hardware record
    hardware_drift     detection of changes by other webhooks after defaulting
    references         right of an author to get what the services read for the object
    pod_claims         who decides which claims belong to Pods
    templates          rights of a pool's user, dry run of one VM of its template
    replica_limits     limit of a namespace, ResourceQuotas and nodes that are too small
    conflicts          disk names, selectors of policies, the default warm pool
    queries            the routes for users and programs
    dryrun             all steps of admission on demand, with the caller's rights
    explain            the migration policy of a VM and the reasons, with the caller's rights

Checks that only warn: `claimed_pools`, `cloud_init`, `migration_settings`, `snapshots`.

The webhook stores nothing and writes nothing. Every replica gives the same response to the same request.
"""
