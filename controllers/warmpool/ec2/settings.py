"""Whether and how the controllers reach EC2. Off unless a region is given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

REGION = "POOLHOUSE_EC2_REGION"
ENDPOINT = "POOLHOUSE_EC2_ENDPOINT"
SUBNET = "POOLHOUSE_EC2_SUBNET"
PERIOD = "POOLHOUSE_EC2_PERIOD_SECONDS"
NEEDED = ("boto3", "grpc", "grpc_health")


@dataclass(frozen=True)
class EC2Settings:
    """Credentials are found by boto3's own rules: environment, web identity, the node's profile."""

    region: str
    endpoint: str | None = None
    """another than AWS' own, as for tests"""
    subnet: str = ""
    """for pools that name none: the document's management subnet"""
    period_seconds: float = 5.0
    """from one look at all instances to the next"""


def read_settings(environment: Mapping[str, str]) -> EC2Settings | None:
    """None where EC2 is off. Raises ValueError with a sentence that names the variable."""
    region = environment.get(REGION, "")
    if not region:
        alone = [each for each in (ENDPOINT, SUBNET, PERIOD) if environment.get(each)]
        if alone:
            raise ValueError(f"{alone[0]}: means nothing without {REGION}, the region of the instances")
        return None
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-[0-9]{1,2}", region):
        raise ValueError(f"{REGION}: must be the code of a region, such as us-west-2, not {region!r:.80}")
    endpoint = environment.get(ENDPOINT) or None
    if endpoint is not None and not re.fullmatch(r"https?://[^/\s]+/?", endpoint):
        raise ValueError(f"{ENDPOINT}: must be http://HOST:PORT or https://HOST, not {endpoint!r:.80}")
    period = environment.get(PERIOD, "5")
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]+)?", period) or not 0.1 <= float(period) <= 300:
        raise ValueError(f"{PERIOD}: must be a number of seconds between 0.1 and 300, not {period!r:.80}")
    missing = [each for each in NEEDED if find_spec(each) is None]
    if missing:
        raise ValueError(f"{REGION}: instances of EC2 need {', '.join(missing)}; install poolhouse[controllers,ec2]")
    return EC2Settings(region, endpoint, environment.get(SUBNET, ""), float(period))
