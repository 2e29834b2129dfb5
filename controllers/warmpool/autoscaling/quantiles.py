"""How many VMs must wait so that few enough claims find none.

A VM that a claim takes is replaced after the boot time. A claim therefore finds a VM if fewer claims than VMs came in
the boot time before it. `DemandTable` counts for each claim how many came before it in this window, and in which
context: the demand that was expected when a VM for the claim would have had to be created. The number of VMs for a
context is a quantile of its counts. This is the base-stock level of inventory theory, learned instead of assumed, so
bursts need no model. A context with few claims is filled up with a Poisson distribution.

A context with few bursts says little about the rare ones, which decide the quantile. If its claims do not differ from
those of all contexts by more than chance explains, `DemandTable` therefore uses the claims of all contexts. The weight
of all contexts is that of the positive-part James-Stein estimator.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

CONTEXTS_PER_UNIT = 8
"""The first context ends at an expected demand of 1/8 VM; each further context has about twice the demand."""
PRIOR_CLAIMS = 50
"""Weight of the Poisson distribution in each context, in claims."""
LEAST_VARIANCE = 0.1
"""Smallest variance of the claims in a window, for a table whose claims all came alone."""
MAX_CLAIMS = 4000
"""When a context has more claims, all its counts are halved, so that old claims lose weight."""
EXACT_COUNTS = 32
"""Counts from this number on are rounded up to four significant bits, which bounds the size of the table."""
NORMAL_MEAN = 500.0
"""Poisson distributions with a larger mean are computed as normal distributions, because exp(-mean) becomes 0."""


def context(expected: float) -> int:
    return int(math.log2(CONTEXTS_PER_UNIT * expected + 1))


def bucket(count: int) -> int:
    """The count, rounded up to four significant bits."""
    if count < EXACT_COUNTS:
        return count
    unit = 1 << (count.bit_length() - 4)
    return -(-count // unit) * unit


@dataclass
class DemandTable:
    window_seconds: float = 0.0
    """Length of the window before a claim. A table for another window is of no use."""
    counts: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """By context, how many claims came how many claims after others in the window."""

    total: Counter[int] = field(init=False)
    """The sum of all contexts."""

    def __post_init__(self) -> None:
        self.total = self._sum()

    def add(self, where: int, before: int) -> None:
        counts, before = self.counts[where], bucket(before)
        counts[before] += 1
        self.total[before] += 1
        if counts.total() > MAX_CLAIMS:
            self.counts[where] = Counter({each: count // 2 for each, count in counts.items() if count > 1})
            self.total = self._sum()

    def _sum(self) -> Counter[int]:
        return sum(self.counts.values(), Counter())

    def replicas(self, expected: float, late_share: float) -> int:
        """The smallest number of VMs with which at most `late_share` of the claims find none."""
        own, every = self.counts.get(context(expected), Counter()), self.total
        pooled = _pooled_share(own, every, expected)
        here, anywhere = _Above(own), _Above(every)
        for before, tail in enumerate(poisson_tails(expected)):
            late = (1 - pooled) * here.share(before, tail) + pooled * anywhere.share(before, tail)
            if late <= late_share:
                return before + 1
        raise AssertionError("the tails do not end")


class _Above:
    """Shares of the counts that are larger than 0, 1, 2, ..., filled up with the tails of a Poisson distribution."""

    def __init__(self, counts: Counter[int]) -> None:
        self._counts, self._size, self._above = counts, PRIOR_CLAIMS + counts.total(), counts.total()

    def share(self, before: int, tail: float) -> float:
        """Must be called for 0, 1, 2, ... with the tail of the Poisson distribution."""
        self._above -= self._counts.get(before, 0)
        return (PRIOR_CLAIMS * tail + self._above) / self._size


def _pooled_share(own: Counter[int], every: Counter[int], expected: float) -> float:
    """The weight of the claims of all contexts, from 0 to 1: the variance that the mean of this context has by chance,
    divided by the squared distance of the two means.

    Claims that come together are one observation, so the number of observations is that of the claims divided by the
    mean size of a burst."""
    if not every:
        return 0.0
    mean = sum(before * claims for before, claims in every.items()) / every.total()
    variance = sum((before - mean) ** 2 * claims for before, claims in every.items()) / every.total()
    claims = PRIOR_CLAIMS + own.total()
    own_mean = (PRIOR_CLAIMS * expected + sum(before * count for before, count in own.items())) / claims
    by_chance = max(variance, LEAST_VARIANCE) * (1 + mean) / claims
    distance = (own_mean - mean) ** 2
    return 1.0 if distance <= by_chance else by_chance / distance


def poisson_tails(mean: float) -> Iterator[float]:
    """The probabilities of more than 0, 1, 2, ... events, without an end."""
    probability = cumulated = math.exp(-mean)
    for count in itertools.count():
        if mean <= NORMAL_MEAN:
            yield max(0.0, 1 - cumulated)
            probability *= mean / (count + 1)
            cumulated += probability
        else:
            yield math.erfc((count + 0.5 - mean) / math.sqrt(2 * mean)) / 2
