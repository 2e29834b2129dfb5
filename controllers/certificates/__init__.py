"""Certificates of our servers, by an authority of our own: renewed while everybody is at work, by whoever leads.

Begin with `plan`. Everything is kept in the cluster, nothing here: the authorities in one Secret, the certificate that
the servers show in another, and what API servers trust in the webhook configurations. Each step is one write with a
precondition, so two of us at once, or one that dies in the middle, do no harm: the next look sees what is missing.
"""
