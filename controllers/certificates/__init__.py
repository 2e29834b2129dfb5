"""Manages the serving certificates of the webhook and the controllers, and the certificate authority that signs them.

Start reading at `plan`. The cluster stores all state: one Secret has the CAs, another Secret the serving certificate,
and the webhook configurations the trusted CA bundle. A step is one write with a precondition. Two leaders, or a crash
between two steps, do no harm, because the next reconcile continues from the stored state.
"""
