"""Checks that schemas cannot express: a module for each kind, and modules for metadata and VM templates."""
