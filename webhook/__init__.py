"""Admission: what the API server, and a person before creating anything, may ask about an object.

Begin with `review` (a request and a verdict as values) and `app` (the routes). Deciding is apart from asking:

    body       bytes in, a document out, or a sentence that says why not
    review     AdmissionReview in, Verdict, AdmissionReview out
    scope      which updates are nobody's business
    patch      the small guarded JSON patch between two documents
    bounds     what a defaulter's answer may change
    declared   the verdict on our own kinds (fails closed)
    defaulting the verdict on VirtualMachines, with the defaulter's help (fails open)
    template   a pool's template, tried as the VM it will become
    rivals     policies with the same selectors, compared with what is there
    elected    a second default among the warm pools of a namespace
    claims     what is written into a claim: who made it, and its annotations as fields
    dryrun     every step of admission, on demand and with the asker's own rights
    explain    which migration policy a VM obeys and why, with the asker's own rights

It keeps nothing: any replica gives the same answer to the same request, and no request writes anything.
"""
