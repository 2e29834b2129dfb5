"""The autoscaling of warm pools against the best fixed size, in virtual time.

    python -m tests.bench.autoscaling                  all traces
    python -m tests.bench.autoscaling --trace office   one trace

Each trace has eight weeks, of which the autoscaling learns from the first two. The best fixed size is chosen in
hindsight: the smallest size whose wait p99 on the last six weeks is within the target. A ratio below 1 means that the
autoscaling keeps fewer idle VM-hours. The autoscaling has fewer late claims than the target allows, so a second ratio
compares with the smallest fixed size that has as few. A VM boots in 120 s, and the target is 1 s for 99 % of the
claims.
"""

import argparse
import math
import random
from collections.abc import Callable

from controllers.warmpool.autoscaling.history import DAY, HOUR
from controllers.warmpool.autoscaling.simulation import AutoscaledSize, FixedSize, Pool, best_fixed_size, simulate
from poolhouse.api.kinds.warm_autoscaling import Autoscaling
from tests.bench.harness import report, section

MONDAY = 1_767_571_200.0  # 2026-01-05T00:00:00Z
WEEK = 7 * DAY
WEEKS, LEARNING_WEEKS = 8, 2
BOOT_SECONDS, WAIT_SECONDS, PERCENTILE = 120.0, 1, 99


def poisson(rate: Callable[[float], float], highest: float, seed: int) -> list[float]:
    """Times since the beginning of a Poisson process with a rate per hour that changes with time."""
    random_, time, found = random.Random(seed), 0.0, []
    while (time := time + random_.expovariate(highest / HOUR)) < WEEKS * WEEK:
        if random_.random() * highest < rate(time):
            found.append(time)
    return found


def constant(per_hour: float, seed: int) -> list[float]:
    return poisson(lambda time: per_hour, per_hour, seed)


def office(seed: int) -> list[float]:
    """Developers on weekdays from 7 to 20 o'clock, with few claims at night and at weekends."""

    def rate(time: float) -> float:
        day, hour = int(time // DAY) % 7, time % DAY / HOUR
        if day >= 5:
            return 3.0
        return 2.0 if not 7 <= hour < 20 else 2 + 118 * math.sin(math.pi * (hour - 7) / 13) ** 0.7

    return poisson(rate, 120, seed)


def classes(seed: int) -> list[float]:
    """20 to 30 students in the five minutes after 8 and 13 o'clock on weekdays, and one other claim an hour."""
    random_, found = random.Random(seed), constant(1, seed + 1000)
    for day in range(WEEKS * 7):
        for hour in (8, 13) if day % 7 < 5 else ():
            start = day * DAY + hour * HOUR
            found += [start + random_.uniform(0, 300) for _ in range(random_.randint(20, 30))]
    return sorted(found)


def matrix(seed: int) -> list[float]:
    """CI jobs with a matrix: 5 to 30 claims within five seconds, once an hour on average, at any time."""
    random_, found = random.Random(seed), []
    for start in constant(1, seed + 1000):
        found += [start + random_.uniform(0, 5) for _ in range(random_.randint(5, 30))]
    return sorted(found)


def drift(seed: int) -> list[float]:
    """A rate between 2 and 220 claims an hour that drifts without a pattern."""
    random_, level, rates = random.Random(seed), 0.0, []
    for _ in range(int(WEEKS * WEEK // 600) + 1):
        level += 0.12 * random_.gauss(0, 1) - 0.01 * level
        rates.append(30 * math.exp(max(-2.5, min(2.0, level))))
    return poisson(lambda time: rates[int(time // 600)], max(rates), seed + 1000)


def rare(seed: int) -> list[float]:
    """One claim an hour with times between claims whose coefficient of variation is 4."""
    found: list[float] = []
    random_, time = random.Random(seed), 0.0
    share = 0.5 * (1 + math.sqrt(15 / 17))
    while True:
        time += random_.expovariate(2 * (share if random_.random() < share else 1 - share) / HOUR)
        if time >= WEEKS * WEEK:
            return found
        found.append(time)


def releases(seed: int) -> list[float]:
    """20 claims an hour, and 300 more within half an hour once a week at a random time."""
    random_, found = random.Random(seed), constant(20, seed + 1000)
    for week in range(WEEKS):
        start = week * WEEK + random_.uniform(0, WEEK - HOUR)
        found += [start + random_.uniform(0, 1800) for _ in range(300)]
    return sorted(found)


TRACES: dict[str, Callable[[int], list[float]]] = {
    "office": office,
    "classes": classes,
    "constant": lambda seed: constant(60, seed),
    "seldom": lambda seed: constant(2, seed),
    "rare": rare,
    "drift": drift,
    "releases": releases,
    "matrix": matrix,
}


def compare(trace: list[float]) -> dict[str, float]:
    """The results of the autoscaling and of the best fixed size for times since a Monday."""
    arrivals = [MONDAY + each for each in trace]
    begin, end = MONDAY + LEARNING_WEEKS * WEEK, MONDAY + WEEKS * WEEK
    pool, target = Pool(BOOT_SECONDS), {"waitSeconds": WAIT_SECONDS, "percentile": PERCENTILE}
    spec = Autoscaling.model_validate({"maxReplicas": 1000, "target": target})
    size = best_fixed_size(arrivals, pool, wait_seconds=WAIT_SECONDS, percentile=PERCENTILE, begin=begin, end=end)
    fixed = simulate(arrivals, pool, FixedSize(size), begin=begin, end=end)
    found = simulate(arrivals, pool, AutoscaledSize(spec, pool), begin=begin, end=end)
    # The autoscaling has fewer late claims than the target allows. A fixed size with as few keeps more VMs.
    as_few = 100 * (1 - found.late(WAIT_SECONDS))
    equal = best_fixed_size(arrivals, pool, wait_seconds=WAIT_SECONDS, percentile=as_few, begin=begin, end=end)
    as_late = simulate(arrivals, pool, FixedSize(equal), begin=begin, end=end)
    return {
        "size": size,
        "fixed_late": fixed.late(WAIT_SECONDS),
        "late": found.late(WAIT_SECONDS),
        "p99": found.wait(PERCENTILE),
        "idle": found.idle_hours / fixed.idle_hours,
        "idle_at_equal": found.idle_hours / as_late.idle_hours,
        "booted": found.booted / fixed.booted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", choices=TRACES, action="append", help="only this trace; can be repeated")
    parser.add_argument("--seeds", type=int, default=2, help="traces of each kind (default: 2)")
    parser.add_argument("--first-seed", type=int, default=1, help="seed of the first trace (default: 1)")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    section("late claims, and idle VM-hours and booted VMs as ratios to the best fixed size")
    for name in options.trace or TRACES:
        runs = [compare(TRACES[name](seed)) for seed in seeds]
        mean = {key: sum(run[key] for run in runs) / len(runs) for key in runs[0]}
        worst, equal = max(run["idle"] for run in runs), max(run["idle_at_equal"] for run in runs)
        fixed, late = f"size {mean['size']:.1f} with {mean['fixed_late']:.2%} late", f"late {mean['late']:.2%}"
        ratios = {"idle_ratio": mean["idle"], "worst_equal_idle_ratio": equal, "vms_ratio": mean["booted"]}
        idle = f"idle ratio {mean['idle']:.2f} (worst {worst:.2f}; with as few late claims {equal:.2f})"
        measured = f"{fixed}; {late}, {idle}, VMs ratio {mean['booted']:.2f}"
        report(name, measured, late=mean["late"], worst_idle_ratio=worst, **ratios)


if __name__ == "__main__":
    main()
