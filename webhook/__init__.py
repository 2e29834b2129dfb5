"""The admission webhook, and endpoints that show users what admission would decide.

Begin with `review` (requests and responses as values) and `admission` (which handler decides which kind).

    app             the FastAPI application: routes of the API server, health checks and metrics
    queries         its routes for users and programs
    admission       dispatch by kind, checks that a kind declares, completion of claims
    defaulting      defaults of VMs and VMIs from the defaulter (fails open)
    hardware_drift  detection of changes by other webhooks after defaulting
    claims          right of a claim's user to read the Secret of its SSH keys
    templates       rights of a pool's user, dry run of one VM of its template
    conflicts       disk names, selectors of policies, the default warm pool
    callers         the API server's certificate, limits of all other callers
    patch           the JSON patch between two documents
    dryrun          all steps of admission on demand, with the caller's rights
    explain         the migration policy of a VM and the reasons, with the caller's rights

The webhook stores nothing and writes nothing. Every replica gives the same response to the same request.
"""
