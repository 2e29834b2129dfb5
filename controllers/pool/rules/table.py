"""The rules of a pool. A new feature is a module with a rule, and a line here."""

from controllers.pool.rules.autohealing import HEALING
from controllers.pool.rules.evictions import EVICTIONS
from controllers.pool.rules.holds import holds
from controllers.pool.rules.lifetime import LIFETIMES
from controllers.pool.rules.membership import MEMBERSHIP
from controllers.pool.rules.outdated_disks import OUTDATED_DISKS
from controllers.pool.rules.references import REFERENCES
from controllers.pool.rules.removal import REMOVAL
from controllers.pool.rules.retention import RETENTION
from controllers.pool.rules.rollout import UPDATES
from controllers.pool.rules.rule import Rule
from controllers.pool.rules.scale_in import SCALE_IN
from controllers.pool.rules.scale_out import SCALE_OUT
from controllers.pool.rules.steps import STEPS
from controllers.pool.rules.stored_revisions import REVISIONS
from controllers.pool.rules.stored_snapshots import SNAPSHOTS

RULES: tuple[Rule, ...] = (
    REFERENCES,
    MEMBERSHIP,
    RETENTION,
    OUTDATED_DISKS,
    REVISIONS,
    SNAPSHOTS,
    EVICTIONS,
    holds(lambda: RULES),
    STEPS,
    # The first of these with actions ends the plan, because the next one needs a snapshot that has them. VMs that are
    # missing come first. VMs that nobody needs are deleted before others are replaced or updated.
    SCALE_OUT,
    REMOVAL,
    SCALE_IN,
    HEALING,
    UPDATES,
    LIFETIMES,
)
