"""EC2 itself. The only file that imports boto3, which blocks: every call is made in a thread, with deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.ec2.tags import written
from runtime.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound, Throttled, Unavailable, Unreachable

Json = dict[str, Any]
T = TypeVar("T")

CONNECT_SECONDS, READ_SECONDS = 5, 20
AT_ONCE = 16
LAUNCHES_AT_ONCE = 8
PAGE = 500

CAPACITY = {
    "InsufficientInstanceCapacity",
    "InsufficientHostCapacity",
    "InsufficientCapacity",
    "InsufficientCapacityOnHost",
    "InsufficientReservedInstanceCapacity",
    "InsufficientFreeAddressesInSubnet",
    "ReservationCapacityExceeded",
    "UnfulfillableCapacity",
    "InstanceLimitExceeded",
    "VcpuLimitExceeded",
    "HostLimitExceeded",
    "VolumeLimitExceeded",
    "MaxIOPSLimitExceeded",
    "NetworkInterfaceLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "ResourceCountExceeded",
}
"""it is not there now, and may be there later, without anybody changing the pool"""
THROTTLED = {
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "EC2ThrottledException",
    "TooManyRequestsException",
    "BandwidthLimitExceeded",
    "PriorRequestNotComplete",
    "SlowDown",
}
RIGHTS = {
    "UnauthorizedOperation",
    "AuthFailure",
    "AccessDenied",
    "AccessDeniedException",
    "OptInRequired",
    "PendingVerification",
    "Blocked",
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "InvalidIdentityToken",
    "SignatureDoesNotMatch",
}
"""some of them come with the status 400"""
PAUSE_SECONDS = 5.0


class EC2Client(Protocol):
    """What is asked of EC2. Raises what the API server's client raises, in the same sense."""

    async def run(self, wanted: Json) -> Json: ...
    async def describe(self, filters: Mapping[str, Iterable[str]]) -> list[Json]: ...
    async def tag(self, instance_id: str, tags: Mapping[str, str]) -> None: ...
    async def terminate(self, instance_id: str) -> None: ...


class Boto3EC2Client:
    def __init__(self, terms: EC2Settings) -> None:
        import boto3
        from botocore.config import Config

        # Tokens make it safe to repeat a launch; everything else says the same when it is said twice.
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "max_attempts": 2},
            max_pool_connections=AT_ONCE + LAUNCHES_AT_ONCE,
            user_agent_extra="poolhouse",
        )
        self._ec2 = boto3.Session().client("ec2", region_name=terms.region, endpoint_url=terms.endpoint, config=config)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ec2")
        # A pool that fills launches hundreds: claims and checks wait for none of them.
        self._launching = ThreadPoolExecutor(LAUNCHES_AT_ONCE, thread_name_prefix="ec2-launch")

    async def run(self, wanted: Json) -> Json:
        """One instance."""
        answer = await self._call(lambda: self._ec2.run_instances(MinCount=1, MaxCount=1, **wanted), self._launching)
        instance: Json = answer["Instances"][0]
        return instance

    async def describe(self, filters: Mapping[str, Iterable[str]]) -> list[Json]:
        wanted = [{"Name": name, "Values": list(values)} for name, values in filters.items()]

        def pages() -> list[Json]:
            pager = self._ec2.get_paginator("describe_instances")
            found = pager.paginate(Filters=wanted, PaginationConfig={"PageSize": PAGE})
            return [each for page in found for group in page["Reservations"] for each in group["Instances"]]

        return await self._call(pages)

    async def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        await self._call(lambda: self._ec2.create_tags(Resources=[instance_id], Tags=written(tags)))

    async def terminate(self, instance_id: str) -> None:
        await self._call(lambda: self._ec2.terminate_instances(InstanceIds=[instance_id]))

    async def _call(self, call: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._threads, call)
        except ClientError as error:
            raise refusal(error.response) from error
        except (ConnectionError, HTTPClientError) as error:
            raise Unreachable(f"EC2 gave no answer: {error}") from error
        except BotoCoreError as error:  # no credentials, or a parameter that boto3 itself refuses
            raise Forbidden(f"EC2 could not be asked: {error}") from error


def refusal(response: Json) -> ApiError:
    """What EC2's answer means, in the words of the API server's: each class is another way to react."""
    said = response.get("Error") or {}
    code, status = str(said.get("Code") or ""), (response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0
    message = f"EC2 answered {code or status}: {said.get('Message') or 'no reason given'}"
    if code in CAPACITY:
        # As the API server says it of a ResourceQuota that is full.
        return Forbidden(f"no capacity or quota for it: {message}", status=status, reason="InsufficientCapacity")
    if code in THROTTLED:
        return Throttled(message, status=status, reason=code, retry_after_seconds=PAUSE_SECONDS)
    if code == "InvalidInstanceID.NotFound":
        return NotFound(message, status=status, reason=code)
    if code == "IdempotentParameterMismatch":
        return AlreadyExists(message, status=status, reason=code)
    if code in RIGHTS or status in (401, 403):
        return Forbidden(message, status=status, reason=code)
    if status >= 500 or code in ("InternalError", "ServiceUnavailable", "Unavailable"):
        return Unavailable(message, status=status, reason=code)
    return Invalid(message, status=status, reason=code)
