"""The table of everything that the console changes: forms, routes and tests are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from poolhouse.cli.cluster import Cluster
from poolhouse.cli.parameters import short_name
from poolhouse.console.act import Act, Done, Target, Values
from poolhouse.console.claim_acts import CLAIM_ACTS
from poolhouse.console.set_acts import SET_ACTS
from poolhouse.console.vm_membership import MEMBERSHIP_ACTS
from poolhouse.console.vm_power import POWER_ACTS
from poolhouse.console.vm_snapshots import RESTORE, TAKE

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api


def short(target: Target) -> str:
    return f"{short_name(target.kind)}/{target.name}"


ACTS: tuple[Act, ...] = (*SET_ACTS, *POWER_ACTS, TAKE, RESTORE, *MEMBERSHIP_ACTS, *CLAIM_ACTS)
BY_NAME: Mapping[str, Act] = {each.name: each for each in ACTS}


def acts_of(target: Target) -> list[Act]:
    """The acts that make sense for the object now, in the order of the table."""
    return [each for each in ACTS if target.kind in each.kinds and not each.in_row and each.available(target)]


async def perform(api: Api, cluster: Cluster, act: Act, target: Target, values: Values) -> Done:
    done = await act.run(api, replace(cluster, namespace=target.namespace), target, values)
    return done if isinstance(done, Done) else Done(done)
