"""Settings of the EC2 backend. Without a region, the backend is disabled."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Self

from pydantic import model_validator

from poolhouse.service.settings import EnvironmentSettings, setting

REGION = "POOLHOUSE_EC2_REGION"
SUBNET = "POOLHOUSE_EC2_SUBNET"
REQUIRED_MODULES = ("boto3",)


class EC2Settings(EnvironmentSettings):
    """boto3 finds the credentials itself: in the environment, a web identity or the node's profile."""

    region: str = setting(
        REGION,
        "",
        "AWS region of the EC2 instances in warm pools, such as `us-west-2`. Empty: no EC2 instances.",
        pattern=r"^([a-z]{2}(-[a-z]+)+-[0-9]{1,2})?$",
    )
    endpoint: str | None = setting(
        "POOLHOUSE_EC2_ENDPOINT",
        None,
        "Endpoint to use instead of AWS' own, for tests.",
        pattern=r"^https?://[^/\s]+/?$",
    )
    subnet: str = setting(SUBNET, "", "Subnet for pools that name none.")
    period_seconds: float = setting(
        "POOLHOUSE_EC2_PERIOD_SECONDS", 5.0, "Time between two lists of all instances.", unit="seconds", ge=0.1, le=300
    )

    @model_validator(mode="after")
    def _needs_region(self) -> Self:
        fields = type(self).model_fields
        given = [str(fields[name].validation_alias) for name in fields if name in self.model_fields_set - {"region"}]
        if given and not self.region:
            raise ValueError(f"{given[0]}: has no effect without {REGION}, the region of the instances")
        return self


def read_ec2_settings(environment: Mapping[str, str]) -> EC2Settings | None:
    """Returns None if no region is set. The message of a ValueError names the variable."""
    settings = EC2Settings.read(environment)
    missing = [module for module in REQUIRED_MODULES if settings.region and find_spec(module) is None]
    if missing:
        raise ValueError(f"{REGION}: EC2 instances need {', '.join(missing)}; build the image with EC2=1")
    return settings if settings.region else None
