"""What the routes of the webhook share, and the lane of costly requests. `webhook.main` makes it, and lists the checks
of admission."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from starlette.requests import Request

from poolhouse.runtime.api import Api
from poolhouse.service.cpu_lane import CpuLane
from poolhouse.service.request_body import BodyReader
from webhook.admission import Admission
from webhook.callers import QUERY_HELD_BYTES, AdmissionBodies
from webhook.dryrun import DryRun
from webhook.metrics import Metrics
from webhook.rate_limit import RateLimiter

COSTLY_BODY_BYTES = 32 * 1024
COSTLY_OBJECTS = 400
"""A review of a usual VM or pool is smaller: it takes the event loop a few milliseconds."""


@dataclass
class WebhookParts:
    api: Api
    admission: Admission
    dry_run: DryRun
    metrics: Metrics
    reviews: AdmissionBodies = field(default_factory=AdmissionBodies)
    bodies: BodyReader = field(
        default_factory=lambda: BodyReader(held_bytes=QUERY_HELD_BYTES, held_bytes_per_holder=QUERY_HELD_BYTES // 2)
    )
    """of queries. Admission has memory of its own, so that queries never refuse a review."""
    rate_limiter: RateLimiter = field(default_factory=lambda: RateLimiter(per_second=20, burst=60))
    address_limiter: RateLimiter = field(default_factory=lambda: RateLimiter(per_second=100, burst=300))
    """of all tokens of an address, because tokens are verified only after the body is read"""
    lane: CpuLane = field(default_factory=lambda: CpuLane(budget_seconds=1.0, max_per_tenant=32))
    """for the computations of costly requests. The largest VM within the bounds takes about half a second."""
    max_queries_in_flight: int = 32
    """Limit for all callers. A token may hold a quarter of them, and an address half."""

    def lane_of(self, body: bytes, tenant: str) -> AbstractContextManager[None]:
        """Enters the lane with a costly body."""
        objects = body.count(b"{")
        costly = len(body) > COSTLY_BODY_BYTES or objects > COSTLY_OBJECTS
        return self.lane.enter(tenant, objects + len(body) // 100) if costly else nullcontext()


def parts_of(http: Request) -> WebhookParts:
    parts: WebhookParts = http.app.state.parts
    return parts
