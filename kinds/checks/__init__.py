"""Checks that a kind's schema cannot express: one module a kind, and the metadata and VM template that they share."""
