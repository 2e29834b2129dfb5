"""Calls the EC2 API. Only this file imports boto3. Its blocking calls run in threads, with timeouts."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.ec2.tags import to_aws
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Unavailable,
    Unreachable,
)

T = TypeVar("T")

CONNECT_SECONDS, READ_SECONDS = 5, 20
MAX_CALLS = 16
MAX_LAUNCHES = 8
PAGE_SIZE = 500

# fmt: off
CAPACITY_ERRORS = {
    "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity", "InsufficientCapacityOnHost",
    "InsufficientReservedInstanceCapacity", "InsufficientFreeAddressesInSubnet", "ReservationCapacityExceeded",
    "UnfulfillableCapacity", "InstanceLimitExceeded", "VcpuLimitExceeded", "HostLimitExceeded", "VolumeLimitExceeded",
    "MaxIOPSLimitExceeded", "NetworkInterfaceLimitExceeded", "MaxSpotInstanceCountExceeded", "ResourceCountExceeded"
}
"""errors that may pass without a change of the pool"""
THROTTLING_ERRORS = {
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
    "RequestThrottledException", "EC2ThrottledException", "TooManyRequestsException", "BandwidthLimitExceeded",
    "PriorRequestNotComplete", "SlowDown"
}
PERMISSION_ERRORS = {
    "UnauthorizedOperation", "AuthFailure", "AccessDenied", "AccessDeniedException", "OptInRequired",
    "PendingVerification", "Blocked", "ExpiredToken", "ExpiredTokenException", "RequestExpired",
    "InvalidClientTokenId", "UnrecognizedClientException", "InvalidIdentityToken", "SignatureDoesNotMatch"
}
"""errors of missing permissions; EC2 sends some with status 400"""
# fmt: on
FAILURES_OF_EC2 = {"InternalError", "ServiceUnavailable", "Unavailable", "RequestTimeout", "RequestTimeoutException"}
THROTTLE_SECONDS = 5.0
DOWNLOAD_SECONDS = 3600
"""Lifetime of a URL for the download of the agent. With temporary credentials the URL ends with the credentials."""


class EC2Client(Protocol):
    """Raises the error classes of the Kubernetes API client, with the same meaning."""

    async def run(self, parameters: Json) -> Json: ...
    async def describe(self, filters: Mapping[str, Iterable[str]]) -> list[Json]: ...
    async def tag(self, instance_id: str, tags: Mapping[str, str]) -> None: ...
    async def terminate(self, instance_id: str) -> None: ...
    async def download_url(self, bucket: str, key: str) -> str:
        """A URL with which anybody can read the object for `DOWNLOAD_SECONDS`."""


class Boto3EC2Client:
    def __init__(self, settings: EC2Settings) -> None:
        """Without a region in the settings, boto3 finds it as it finds credentials; raises Invalid if there is none."""
        import boto3
        from botocore.config import Config
        from botocore.exceptions import NoRegionError

        # Retries are safe: a launch has a client token, and all other calls are idempotent.
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "max_attempts": 2},
            max_pool_connections=MAX_CALLS + MAX_LAUNCHES,
            user_agent_extra="poolhouse",
        )
        session = boto3.Session()
        try:
            self._ec2, self._s3 = (
                session.client(
                    service, region_name=settings.region or None, endpoint_url=settings.endpoint, config=config
                )
                for service in ("ec2", "s3")
            )
        except NoRegionError as error:
            raise Invalid("no AWS region is configured") from error
        self._threads = ThreadPoolExecutor(MAX_CALLS, thread_name_prefix="ec2")
        # Launches have their own threads: a pool that scales out must not delay claims and health checks.
        self._launching = ThreadPoolExecutor(MAX_LAUNCHES, thread_name_prefix="ec2-launch")

    async def run(self, parameters: Json) -> Json:
        answer = await self._call(
            lambda: self._ec2.run_instances(MinCount=1, MaxCount=1, **parameters), self._launching
        )
        instance: Json = answer["Instances"][0]
        return instance

    async def describe(self, filters: Mapping[str, Iterable[str]]) -> list[Json]:
        aws_filters = [{"Name": name, "Values": list(values)} for name, values in filters.items()]

        def pages() -> list[Json]:
            pager = self._ec2.get_paginator("describe_instances")
            found = pager.paginate(Filters=aws_filters, PaginationConfig={"PageSize": PAGE_SIZE})
            return [each for page in found for group in page["Reservations"] for each in group["Instances"]]

        return await self._call(pages)

    async def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        await self._call(lambda: self._ec2.create_tags(Resources=[instance_id], Tags=to_aws(tags)))

    async def terminate(self, instance_id: str) -> None:
        await self._call(lambda: self._ec2.terminate_instances(InstanceIds=[instance_id]))

    async def download_url(self, bucket: str, key: str) -> str:
        found: str = await self._call(
            lambda: self._s3.generate_presigned_url(
                "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=DOWNLOAD_SECONDS
            )
        )
        return found

    async def _call(self, call: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            ConnectionError,
            HTTPClientError,
            IncompleteReadError,
        )
        from botocore.parsers import ResponseParserError

        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._threads, call)
        except ClientError as error:
            raise api_error(error.response) from error
        except (ConnectionError, HTTPClientError, IncompleteReadError) as error:
            raise Unreachable(f"EC2 did not answer: {error}") from error
        except ResponseParserError as error:  # no BotoCoreError
            raise Unreachable(f"the answer is not one of EC2, but perhaps of a proxy: {error}") from error
        except BotoCoreError as error:  # missing credentials or invalid parameters
            raise Forbidden(f"EC2 cannot be called: {error}") from error


def api_error(response: Json) -> ApiError:
    """Translates an error response of EC2 into the error class of the API client to which the controller reacts."""
    error = response.get("Error") or {}
    code, status = str(error.get("Code") or ""), (response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0
    message = f"EC2 answered {code or status}: {error.get('Message') or 'no reason given'}"
    if code in CAPACITY_ERRORS:
        # The API server also sends Forbidden for an exhausted ResourceQuota.
        return Forbidden(
            f"no capacity or quota for the instance: {message}", status=status, reason="InsufficientCapacity"
        )
    if code in THROTTLING_ERRORS:
        return Throttled(message, status=status, reason=code, retry_after_seconds=THROTTLE_SECONDS)
    if code == "InvalidInstanceID.NotFound":
        return NotFound(message, status=status, reason=code)
    if code == "IdempotentParameterMismatch":
        return AlreadyExists(message, status=status, reason=code)
    if code in PERMISSION_ERRORS or status in (401, 403):
        return Forbidden(message, status=status, reason=code)
    if status >= 500 or code in FAILURES_OF_EC2:
        return Unavailable(message, status=status, reason=code)
    return Invalid(message, status=status, reason=code)
