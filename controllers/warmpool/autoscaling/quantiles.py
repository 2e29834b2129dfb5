"""How many VMs must wait so that few enough claims find none.

A VM that a claim takes is replaced after the boot time. A claim therefore finds a VM if fewer claims than VMs came in
the boot time before it. `DemandTable` counts for each claim how many came before it in this window, and in which
context: the demand that was expected when a VM for the claim would have had to be created. The number of VMs for a
context is a quantile of its counts. This is the base-stock level of inventory theory, learned instead of assumed, so
bursts need no model. A context with few claims is filled up with a Poisson distribution.
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

    def add(self, where: int, before: int) -> None:
        counts = self.counts[where]
        counts[bucket(before)] += 1
        if counts.total() > MAX_CLAIMS:
            self.counts[where] = Counter({each: count // 2 for each, count in counts.items() if count > 1})

    def replicas(self, expected: float, late_share: float) -> int:
        """The smallest number of VMs with which at most `late_share` of the claims find none."""
        counts = self.counts.get(context(expected), Counter())
        above, steps = counts.total(), sorted(counts)
        allowed = late_share * (PRIOR_CLAIMS + above)
        tails, seen = poisson_tails(expected), 0
        for before, tail in enumerate(tails):
            while seen < len(steps) and steps[seen] <= before:
                above -= counts[steps[seen]]
                seen += 1
            if PRIOR_CLAIMS * tail + above <= allowed:
                return before + 1
        raise AssertionError("the tails do not end")


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
