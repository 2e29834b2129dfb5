"""`poolhouse warmpool advise` and `poolhouse warmpool why`: the size of a warm pool, compared and explained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.cluster import Cluster, cluster_options, list_visible
from poolhouse.cli.demand import WEEK, Demand, demand_of
from poolhouse.cli.output import Column, Failed, Listing, echo, is_structured, output_option, print_structured
from poolhouse.cli.output import field as column
from poolhouse.cli.parameters import WARM_POOL
from poolhouse.cli.svg import Series, step_chart

if TYPE_CHECKING:
    from controllers.warmpool.autoscaling.simulation import Policy, Pool
    from controllers.warmpool.warm_pool import WarmPool
    from poolhouse.api.kinds.warm_autoscaling import Autoscaling
    from poolhouse.runtime.api import Api

MAX_CLAIMS = 100_000
"""Limit on the replayed claims: the newest ones, so that the answer takes seconds."""
RESUME_SECONDS = 1.0
HANDOVER_SECONDS = 0.1
MAX_REPLICAS = 1_000_000

ADVICE = Listing(
    (
        column("POLICY", "policy"),
        column("STANDBY", "standby"),
        Column("WAIT P50", lambda row: _seconds(row["waitP50"])),
        Column("WAIT P99", lambda row: _seconds(row["waitP99"])),
        column("COLD STARTS", "coldStarts"),
        Column("IDLE VM-HOURS", lambda row: f"{row['idleVMHours']:.1f}"),
        column("VMS CREATED", "created"),
        Column(
            "TARGET",
            lambda row: "met" if row["meetsTarget"] else "missed",
            colour=lambda row: "green" if row["meetsTarget"] else "red",
        ),
    )
)


@dataclass
class _Recorded:
    """A policy that keeps the sizes that another one decides, for the plot."""

    policy: Policy
    sizes: list[tuple[float, int]] = field(default_factory=list)

    def arrived(self, time: float) -> None:
        self.policy.arrived(time)

    def served(self, wait_seconds: float) -> None:
        self.policy.served(wait_seconds)

    def replicas(self, time: float, waiting: int, claimed: int) -> int:
        size = self.policy.replicas(time, waiting, claimed)
        if not self.sizes or self.sizes[-1][1] != size:
            self.sizes.append((time, size))
        return size


@click.command()
@click.argument("pool", type=WARM_POOL)
@click.option("--wait-seconds", type=click.IntRange(1), help="Target of the wait. Default: that of the pool, or 1.")
@click.option("--percentile", type=click.IntRange(50, 99), help="Percentile of the target. Default: the pool's, or 99.")
@click.option("--size", "sizes", type=click.IntRange(0, 10_000), multiple=True, help="Another fixed size; repeatable.")
@click.option("--boot-seconds", type=click.FloatRange(1, 3600), help="Default: the measured time.")
@click.option(
    "--resume-seconds", type=click.FloatRange(0), default=RESUME_SECONDS, show_default=True, help="Of a paused VM."
)
@click.option(
    "--claim-seconds", type=click.FloatRange(0), default=3600.0, show_default=True, help="Time that claims hold a VM."
)
@click.option("--plot", type=click.File("w", lazy=True), help="Write an SVG of claims and sizes to this file.")
@ADVICE.option
@cluster_options
def advise(
    cluster: Cluster,
    pool: str,
    wait_seconds: int | None,
    percentile: int | None,
    sizes: tuple[int, ...],
    boot_seconds: float | None,
    resume_seconds: float,
    claim_seconds: float,
    plot: TextIO | None,
    output: str,
) -> None:
    """Compare sizes, standby modes and autoscaling of a warm pool for the claims of its last week.

    The controller records how many claims come in each quarter of an hour, and how many of them within one boot. The
    claims are replayed in virtual time; nothing is changed. The autoscaling learns from one replay of the same claims
    before the one that counts. Cold starts are claims that found no VM.
    """
    replay = replay_of(
        *_read(cluster, pool),
        wait_seconds=wait_seconds,
        percentile=percentile,
        boot_seconds=boot_seconds,
        resume_seconds=resume_seconds,
        claim_seconds=claim_seconds,
    )
    rows = list(replay.rows(sizes))
    if not is_structured(output):
        echo(replay.title)
        if replay.measured:
            echo(replay.measured)
    ADVICE.show(output, rows, nothing="")
    if plot is not None:
        plot.write(replay.plot(pool))
        echo(f"wrote {plot.name}", err=True)


def replay_of(
    pool: WarmPool,
    demand: Demand,
    *,
    wait_seconds: int | None = None,
    percentile: int | None = None,
    boot_seconds: float | None = None,
    resume_seconds: float = RESUME_SECONDS,
    claim_seconds: float = 3600.0,
) -> Replay:
    """The claims of the pool's last week, for comparisons. Raises `Failed` if too little is known."""
    arrivals = demand.arrivals[-MAX_CLAIMS:]
    if not arrivals:
        raise Failed(f"no claims of {pool.name} are recorded in the last week")
    boot = boot_seconds or demand.history.boot_seconds
    if boot is None:
        raise Failed(f"the controller has not yet measured how long a VM of {pool.name} boots; give --boot-seconds")
    target = pool.spec.autoscaling.target if pool.spec.autoscaling else None
    wait = wait_seconds or (target.wait_seconds if target else None) or 1
    share = percentile or (target.percentile if target else 99)
    return Replay(pool, arrivals, boot, resume_seconds, claim_seconds, wait, share, demand.measured)


def _read(cluster: Cluster, name: str) -> tuple[WarmPool, Demand]:
    from controllers.warmpool.warm_pool import InvalidWarmPool, parse_warm_pool
    from poolhouse.cli.resources import CLAIMS, WARM_POOLS

    async def read(api: Api) -> tuple[Json, list[Json] | None, datetime]:
        document = await api.get(WARM_POOLS, cluster.namespace, name)
        return document, await list_visible(api, CLAIMS, cluster.namespace), api.now()

    document, claims, now = cluster.run(read)
    pool = parse_warm_pool(document)
    if isinstance(pool, InvalidWarmPool):
        raise Failed(f"warm pool {name} is invalid: {pool.problem}")
    return pool, demand_of(pool, claims, now)


class Replay:
    """The claims of a pool with the policies that are compared."""

    def __init__(
        self,
        pool: WarmPool,
        arrivals: Sequence[float],
        boot_seconds: float,
        resume_seconds: float,
        claim_seconds: float,
        wait_seconds: int,
        percentile: int,
        measured: str = "",
    ) -> None:
        self.pool, self.measured = pool, measured
        self.boot_seconds, self.claim_seconds = boot_seconds, claim_seconds
        self.wait_seconds, self.percentile = wait_seconds, percentile
        self.begin = math.floor(arrivals[0] / 900) * 900.0
        self.end = math.ceil((arrivals[-1] + 1) / 900) * 900.0
        self.arrivals = arrivals
        self.handover = {"Running": HANDOVER_SECONDS, "Paused": resume_seconds, "Stopped": boot_seconds}
        self.best: int | None = None
        self.recorded: list[tuple[str, _Recorded]] = []

    @property
    def title(self) -> str:
        hours = (self.end - self.begin) / 3600
        span = f"{hours / 24:.1f} days" if hours >= 24 else count_noun(max(1, round(hours)), "hour")
        begin = format_time(datetime.fromtimestamp(self.begin, UTC))
        return (
            f"{count_noun(len(self.arrivals), 'claim')} in {span} from {begin}; a VM boots in"
            f" {self.boot_seconds:.0f} s; target: {self.percentile} % of the claims within {self.wait_seconds} s"
        )

    def rows(self, sizes: Sequence[int]) -> Iterator[Json]:
        """The pool as it is, other sizes and the autoscaling, in all standby modes that can meet the target."""
        from controllers.warmpool.autoscaling.simulation import FixedSize, best_fixed_size

        own = self.pool.spec.standby.mode
        for standby in sorted(self.handover, key=lambda each: (each != own, self.handover[each])):
            simulated = self._simulated(standby)
            if standby == own:
                yield self._current(standby)
                for size in sizes:
                    yield self._row(f"replicas: {size}", standby, FixedSize(size))
            if simulated.handover_seconds > self.wait_seconds:
                if standby != own:
                    yield self._row(f"replicas: {self.pool.spec.replicas}", standby, FixedSize(self.pool.spec.replicas))
                continue
            best = best_fixed_size(
                self.arrivals,
                simulated,
                wait_seconds=self.wait_seconds,
                percentile=self.percentile,
                begin=self.begin,
                end=self.end,
            )
            best_row = self._row(f"replicas: {best} (smallest)", standby, FixedSize(best))
            yield best_row
            yield self._row("autoscaling", standby, self._autoscaled(simulated, self._spec()), plotted=standby == own)
            if standby == own:
                self.best = best

    def _current(self, standby: str) -> Json:
        from controllers.warmpool.autoscaling.simulation import FixedSize

        spec = self.pool.spec
        if spec.autoscaling is None:
            return self._row(f"replicas: {spec.replicas} (now)", standby, FixedSize(spec.replicas))
        return self._row(
            "spec.autoscaling (now)", standby, self._autoscaled(self._simulated(standby), spec.autoscaling)
        )

    def _spec(self) -> Autoscaling:
        """The target without bounds, schedules and ceiling."""
        from poolhouse.api.kinds.warm_autoscaling import Autoscaling

        target = {"waitSeconds": self.wait_seconds, "percentile": self.percentile}
        return Autoscaling.model_validate({"maxReplicas": MAX_REPLICAS, "target": target})

    def _simulated(self, standby: str) -> Pool:
        from controllers.warmpool.autoscaling.simulation import Pool

        return Pool(self.boot_seconds, self.handover[standby], self.pool.spec.claim_policy.on_empty)

    def _autoscaled(self, simulated: Pool, spec: Autoscaling) -> Policy:
        from controllers.warmpool.autoscaling.simulation import AutoscaledSize

        return AutoscaledSize(spec, simulated)

    def _row(self, name: str, standby: str, policy: Policy, *, plotted: bool = False) -> Json:
        from controllers.warmpool.autoscaling.simulation import FixedSize, simulate

        arrivals = self.arrivals
        if not isinstance(policy, FixedSize):
            # Whole weeks earlier, so that the days of the week and the bursts on them stay the same.
            earlier = math.ceil((self.end - self.begin) / WEEK) * WEEK
            arrivals = [*(each - earlier for each in arrivals), *arrivals]
        if plotted:
            policy = _Recorded(policy)
            self.recorded.append((name, policy))
        result = simulate(
            arrivals,
            self._simulated(standby),
            policy,
            begin=self.begin,
            end=self.end,
            claim_seconds=self.claim_seconds,
        )
        return {
            "policy": name,
            "standby": standby,
            "waitP50": _finite(result.wait(50)),
            "waitP99": _finite(result.wait(99)),
            "coldStarts": result.cold_starts,
            "idleVMHours": round(result.idle_hours, 2),
            "created": result.booted,
            "meetsTarget": result.wait(self.percentile) <= self.wait_seconds,
        }

    def plot(self, title: str) -> str:
        """An SVG with the claims of each quarter of an hour, and the sizes of the policies."""
        slots = range(int(self.begin // 900), int(self.end // 900))
        counts = dict.fromkeys(slots, 0)
        for each in self.arrivals:
            counts[int(each // 900)] += 1
        sizes = [
            Series(name, [(time, size) for time, size in each.sizes if size < MAX_REPLICAS])
            for name, each in self.recorded
        ]
        if self.best is not None:
            sizes.insert(0, Series(f"replicas: {self.best}", [(self.begin, self.best)]))
        claims = Series("claims in 15 minutes", [(each * 900.0, count) for each, count in counts.items()])
        return step_chart(title, self.begin, self.end, [claims], sizes)


@click.command()
@click.argument("pool", type=WARM_POOL)
@output_option("text")
@cluster_options
def why(cluster: Cluster, pool: str, output: str) -> None:
    """Explain how many VMs of a warm pool wait, why, and what changes next."""
    explained = explain(*_read(cluster, pool))
    if is_structured(output):
        print_structured(output, explained)
        return
    for line in lines(explained):
        echo(line)


def explain(pool: WarmPool, demand: Demand) -> Json:
    status = pool.status
    decided = status.autoscaling
    unavailable = any((each.type, each.status) == ("Available", "False") for each in status.conditions)
    return {
        "pool": pool.name,
        "desiredReplicas": pool.spec.replicas if status.desired_replicas is None else status.desired_replicas,
        "availableReplicas": status.available_replicas,
        "provisioning": status.provisioning,
        "queuedClaims": status.queued_claims,
        "autoscaling": decided.json() if decided and pool.spec.autoscaling else None,
        "decidedBy": "spec.autoscaling" if pool.spec.autoscaling else "spec.replicas",
        "demand": _explain_demand(demand),
        "images": [each.json() for each in status.data_sources],
        "problems": [
            f"{each.type}: {each.reason}: {each.message}"
            for each in status.conditions
            if (each.type, each.status) in PROBLEMS
            or each.reason == "ScaleIgnored"
            or (unavailable and each.type == "Progressing")
        ],
    }


def _explain_demand(demand: Demand) -> Json | None:
    history, hidden = demand.history, demand.existing is None
    if not history.saved_at and not demand.arrivals:
        return None
    return {
        "claims": len(demand.arrivals),
        "countedUntil": format_time(datetime.fromtimestamp(history.saved_at, UTC)) if hidden else None,
        "bootSeconds": history.boot_seconds,
    }


PROBLEMS = {
    ("Valid", "False"),
    ("Available", "False"),
    ("Progressing", "False"),
    ("Degraded", "True"),
    ("RolloutComplete", "False"),
}
"""Types and statuses of conditions that explain why a pool has fewer VMs than desired."""


def lines(explained: Json) -> Iterator[str]:
    wanted, decided = explained["desiredReplicas"], explained["autoscaling"]
    available = explained["availableReplicas"]
    now = f"{available} of {count_noun(wanted, 'VM')} can be claimed, {explained['provisioning']} not ready yet"
    yield f"{explained['pool']}: {now}, {count_noun(explained['queuedClaims'], 'claim')} queued"
    if decided is None:
        yield f"the size is {explained['decidedBy']}: {wanted}"
    else:
        yield f"size {decided['desiredReplicas']} ({decided['reason']}): {decided['message']}"
        late, idle = decided.get("lateClaimsPercent"), decided.get("idleHoursToday")
        yield f"decided at {decided['decidedTime']}; {late} % of the claims were late; VMs waited {idle} hours that day"
        if change := decided.get("nextChange"):
            yield f"next change: {change['replicas']} at {change['time']} ({change['reason']})"
    demand = explained["demand"]
    if demand is not None:
        yield _demand_line(demand)
    for each in explained["images"]:
        yield f"disk {each['disk']} of new VMs: {each['kind']} {each['namespace']}/{each['name']}"
    yield from explained["problems"]
    if decided is None and demand and demand["claims"]:
        yield "compare sizes and autoscaling with: poolhouse warmpool advise " + explained["pool"]


def _demand_line(demand: Json) -> str:
    text = f"last week: {count_noun(demand['claims'], 'claim')}"
    if demand["countedUntil"] is not None:
        text += f" until {demand['countedUntil']}; you may not list later ones"
    boot = demand["bootSeconds"]
    return text if boot is None else f"{text}; a VM boots in {boot:.0f} s"


def _finite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else round(seconds, 3)


def _seconds(value: Any) -> str:
    return "failed" if value is None else f"{value:.1f} s"
