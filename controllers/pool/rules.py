"""The rules of a pool. A new feature is a module with a rule, and a line here."""

from controllers.pool.autohealing import HEALING
from controllers.pool.holds import HOLDS
from controllers.pool.lifetime import LIFETIMES
from controllers.pool.membership import MEMBERSHIP
from controllers.pool.outdated_disks import OUTDATED_DISKS
from controllers.pool.retention import RETENTION
from controllers.pool.rollout import UPDATES
from controllers.pool.rule import Rule
from controllers.pool.scaling import SCALE_IN, SCALE_OUT
from controllers.pool.steps import STEPS
from controllers.pool.stored_revisions import REVISIONS
from controllers.pool.stored_snapshots import SNAPSHOTS

RULES: tuple[Rule, ...] = (
    MEMBERSHIP,
    RETENTION,
    OUTDATED_DISKS,
    REVISIONS,
    SNAPSHOTS,
    HOLDS,
    STEPS,
    # The first of these with actions ends the plan, because the next one needs a snapshot that has them. VMs that are
    # missing come first. VMs that nobody needs are deleted before others are replaced or updated.
    SCALE_OUT,
    SCALE_IN,
    HEALING,
    UPDATES,
    LIFETIMES,
)
