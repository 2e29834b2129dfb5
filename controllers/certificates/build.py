"""Builds the certificate controller."""

from __future__ import annotations

from controllers.certificates.controller import CertificateController
from controllers.certificates.observe import CertificatePolicy
from controllers.shared.component import Component
from runtime.api import Api


def build(api: Api, namespace: str, policy: CertificatePolicy) -> Component:
    return Component("certificates", (), CertificateController(api, namespace, policy, api.now).run)
