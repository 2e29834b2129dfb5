"""`poolhouse doctor`: checks whether Poolhouse itself works."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.cli.cluster import Cluster, cluster_options, stack_of
from poolhouse.cli.output import Failed, echo, is_structured, output_option, print_structured, style
from poolhouse.cli.service_facts import brief_checks, observe, observe_installation, require_answer
from poolhouse.cli.service_health import Check, Verdict, failed, judge, summarize
from poolhouse.service.terminal import Styled, escaped

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

T = TypeVar("T")
COLOURS: dict[Verdict, str] = {"ok": "green", "warning": "yellow", "failed": "red", "unknown": "yellow"}


@click.command()
@output_option("text")
@cluster_options
def doctor(cluster: Cluster, output: str) -> None:
    """Check whether Poolhouse itself works: webhook, defaulter, controllers, certificates, versions, APIs.

    The checks use your own rights: dry runs of a claim and of a VM in your namespace, and what you may read. A check
    that you have no right to is `unknown`. Nothing is changed. Exit code 1: a check has failed; 3: the API server does
    not answer.
    """
    checks = cluster.run(lambda api: check(api, cluster))
    if is_structured(output):
        print_structured(output, [each.json() for each in checks])
    else:
        for each in checks:
            _print(each)
    if found := failed(checks):
        raise Failed(f"{count_noun(len(found), 'check')} failed: {', '.join(each.name for each in found)}", shown=True)


async def check(api: Api, cluster: Cluster) -> list[Check]:
    from poolhouse.cli.installation import judge_installation

    facts = await observe(api, cluster.namespace, cluster.timeout_seconds, stack_of(cluster.kubeconfig))
    require_answer(facts.lease)  # unlike the version, a Lease comes from etcd
    installation = await observe_installation(api, facts.home, cluster.timeout_seconds)
    return [*judge(facts), *judge_installation(facts, installation)]


async def with_outage(api: Api, cluster: Cluster, answer: Awaitable[T]) -> T:
    """Returns the answer, and meanwhile looks for an outage of Poolhouse itself, which a line on stderr names."""
    found, checks = await asyncio.gather(answer, brief_checks(api, cluster.namespace))
    if outage := summarize(checks):
        echo(style(outage, "red"), err=True)
    return found


def _print(each: Check) -> None:
    text = escaped(f"{each.name}: {each.message}", one_line=True)
    echo(Styled(style(each.verdict.ljust(9), COLOURS[each.verdict]) + text))
    remedy = "; ".join(filter(None, (each.remedy, f"see {each.page}" if each.page else "")))
    if remedy and each.verdict in ("warning", "failed"):
        echo(f"{'':9}{remedy}")
