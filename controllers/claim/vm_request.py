"""The VM that is created for a claim: the pool's template with what the claim overrides, personalizes and runs."""

from datetime import datetime

from controllers.claim.application import with_application
from controllers.claim.overrides import apply_overrides
from controllers.claim.personalization import labels, personalize_template
from controllers.claim.snapshot import Claim
from controllers.claim.steps import CreateVM
from controllers.warmpool.backends import CreateRequest
from controllers.warmpool.naming import draw_placement
from poolhouse.api.apimachinery.timestamps import format_micro_time
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.claim import Personalization
from poolhouse.api.kinds.warm_states import WarmState


def create_request(
    claim: Claim, step: CreateVM, personalization: Personalization | None, draws: int, now: datetime
) -> CreateRequest:
    """The request of a step. After refusals, another number of `draws` may choose another placement."""
    pool = step.pool
    key = f"{step.name}/{draws}" if draws else step.name
    name = claim.overrides.placement or draw_placement(pool.uid, key, pool.spec.places)
    placement = pool.placements.get(name) or next(iter(pool.placements.values()))
    template = personalize_template(pool.pinned(apply_overrides(pool.template, claim.overrides)), personalization)
    return CreateRequest(
        namespace=claim.namespace,
        name=step.name,
        pool=pool.name,
        pool_uid=pool.uid,
        owner=claim.owner,
        template=with_application(template, claim.spec.application),
        template_hash=pool.hashes.get(str(placement["name"]), pool.template_hash),
        placement=placement,
        state=WarmState.ALLOCATING,
        claim_uid=claim.uid,
        labels=labels(personalization),
        annotations={
            **claim.notes,
            meta.ACTIVATED_AT: format_micro_time(now),  # the VM boots for this claim
            meta.STATE_REASON: f"created for claim {claim.name}",
        },
    )
