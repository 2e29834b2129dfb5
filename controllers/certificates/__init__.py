"""Keeps the serving certificates of the webhook and the controllers, signed by a certificate authority of our own.

Begin with `plan`. All state is in the cluster: the authorities in one Secret, the serving certificate in another, and
the trusted CA bundle in the webhook configurations. Each step is one write with a precondition. Two leaders at once, or
a crash between two steps, do no harm, because the next reconcile continues from what is stored.
"""
