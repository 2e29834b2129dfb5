"""KubeVirt's own admission, which a cluster applies before and after the webhooks of Poolhouse.

`mutation` fills what virt-api fills when a VM or VMI is written. `validation` refuses what virt-api refuses, with its
messages. Both are pure functions of documents. `server` answers the API server's AdmissionReviews with them.

The rules were read in KubeVirt's pkg/virt-api/webhooks and pkg/defaults, at the tags of the releases 1.5 to 1.9. Rules
about features that Poolhouse neither writes nor reads are left out.
"""
