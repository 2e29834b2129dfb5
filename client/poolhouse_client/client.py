"""A typed client of Poolhouse: `Client`, and `AsyncClient` with the same methods for asyncio.

    from poolhouse.client import Client

    with Client() as client, client.claims.claim(pool="runners") as vm:
        print(vm.address)

A client has `pools`, `replica_sets`, `warm_pools`, `claims` and `policies`, each with get, list, create, apply, patch,
edit, delete, watch, wait and wait_ready. Errors of the API server are `ApiError`s with its message and the path of the
request, see `poolhouse.errors`. Every call has a deadline.
"""

from ._async import AsyncClient
from ._async_claims import AsyncClaimedVM, AsyncClaims
from ._async_objects import AsyncObjects, AsyncPools
from ._sync import Client
from ._sync_claims import ClaimedVM, Claims
from ._sync_objects import Objects, Pools
from .connection import ConfigError, Connection
from .errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    Throttled,
    Unauthorized,
    Unavailable,
    Unreachable,
    WebhookFailed,
)
from .failures import ClaimFailed, DeadlineExceeded, NotReady, Stalled
from .objects import Condition, Event, KubernetesObject

__all__ = [
    "AlreadyExists",
    "ApiError",
    "AsyncClaimedVM",
    "AsyncClaims",
    "AsyncClient",
    "AsyncObjects",
    "AsyncPools",
    "ClaimFailed",
    "ClaimedVM",
    "Claims",
    "Client",
    "Condition",
    "ConfigError",
    "Conflict",
    "Connection",
    "DeadlineExceeded",
    "Event",
    "Expired",
    "Forbidden",
    "Invalid",
    "KubernetesObject",
    "NotFound",
    "NotReady",
    "Objects",
    "Pools",
    "QuotaExceeded",
    "Stalled",
    "Throttled",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "WebhookFailed",
]
