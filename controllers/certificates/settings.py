"""Settings of the certificates that the controllers manage."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Self

from pydantic import BeforeValidator, model_validator

from controllers.certificates.observe import CertificatePolicy
from poolhouse.service.settings import EnvironmentSettings, setting, split

CERTIFICATE_HOURS = "POOLHOUSE_CERTIFICATE_HOURS"
CA_HOURS = "POOLHOUSE_AUTHORITY_HOURS"


class CertificateSettings(EnvironmentSettings):
    hosts: Annotated[tuple[str, ...], BeforeValidator(split)] = setting(
        "POOLHOUSE_CERTIFICATE_HOSTS",
        (),
        "DNS names, separated by commas, for which the controllers keep a certificate. Empty: another program does.",
    )
    certificate_hours: int = setting(
        CERTIFICATE_HOURS, 7 * 24, "Lifetime of the serving certificate.", unit="hours", ge=1
    )
    ca_hours: int = setting(
        CA_HOURS, 365 * 24, "Lifetime of the authority, at least twice the certificate's.", unit="hours", ge=1
    )

    @model_validator(mode="after")
    def _ca_outlives_certificates(self) -> Self:
        if self.ca_hours < 2 * self.certificate_hours:
            raise ValueError(f"{CA_HOURS}: must be at least twice {CERTIFICATE_HOURS}")
        return self


def read_policy(environment: Mapping[str, str]) -> CertificatePolicy | None:
    """Returns None if another program manages the certificates. The message of a ValueError names the variable."""
    found = CertificateSettings.read(environment)
    if not found.hosts:
        return None
    return CertificatePolicy(found.hosts, timedelta(hours=found.certificate_hours), timedelta(hours=found.ca_hours))
