"""The resources of our kinds, by their names alone: commands start in half of the time without the models."""

from poolhouse.api.kinds import resource_types
from poolhouse.runtime.resource import Resource

POOLS = Resource.of(resource_types.POOLS)
REPLICA_SETS = Resource.of(resource_types.REPLICA_SETS)
WARM_POOLS = Resource.of(resource_types.WARM_POOLS)
CLAIMS = Resource.of(resource_types.CLAIMS)
