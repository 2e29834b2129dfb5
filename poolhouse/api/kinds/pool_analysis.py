"""Analysis of an update: checks that decide whether the new template is good, and their state."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from poolhouse.api.kinds.model import Count, Model, Rule, Time, Tuple, expected, has, list_map
from poolhouse.api.kinds.names import DNS_LABEL

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}
_CONDITION = r"result (<|<=|>|>=|==|!=) (-?[0-9]{1,15}(\.[0-9]{1,15})?)"
Condition = Annotated[
    str,
    Field(
        pattern=f"^{_CONDITION}$",
        json_schema_extra=expected('a comparison of result with a number, such as "result < 0.05"'),
    ),
]


@dataclass(frozen=True)
class Comparison:
    operator: str
    number: float

    def holds(self, result: float) -> bool:
        return OPERATORS[self.operator](result, self.number)


def parse_condition(text: str) -> Comparison:
    """Parses a condition such as `result < 0.05`. Raises ValueError for any other text."""
    found = re.fullmatch(_CONDITION, text)
    if found is None:
        raise ValueError(f"{text!r} is not a comparison of result with a number")
    return Comparison(found[1], float(found[2]))


class PrometheusCheck(Model):
    """A query that the controllers send to the Prometheus of the cluster at an interval. Its result must be one
    number."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.successCondition) || has(self.failureCondition)",
            message='give successCondition or failureCondition, such as `successCondition: "result < 0.05"`',
            holds=lambda value: has(value, "successCondition") or has(value, "failureCondition"),
        ),
    )
    hints: ClassVar[Mapping[str, str]] = {
        "address": "the operator of Poolhouse sets the address of Prometheus",
        "interval": "intervalSeconds",
        "consecutiveErrorLimit": "an error stops the update until the query has a result again",
        "inconclusiveLimit": "an inconclusive result stops the update until the next one",
    }

    query: Annotated[str, Field(min_length=1, max_length=4096)]
    """Query in PromQL whose result is a scalar, or a vector with one sample. Use `sum` or another aggregation."""
    success_condition: Condition | None = None
    """A measurement is successful if this comparison is true: `result`, an operator (<, <=, >, >=, == or !=), and a
    number. Without it, a measurement is successful unless it failed."""
    failure_condition: Condition | None = None
    """A measurement has failed if this comparison is true. Without it, a measurement has failed unless it is
    successful. If both conditions are false, the measurement is inconclusive."""
    interval_seconds: Annotated[Count, Field(ge=5, le=3600)] = 60
    """Seconds between two measurements."""
    initial_delay_seconds: Annotated[Count, Field(le=3600)] = 0
    """Seconds between the first available VM with the new template and the first measurement."""
    count: Annotated[Count, Field(ge=1, le=100)] = 1
    """Number of successful measurements that end an analysis."""
    failure_limit: Annotated[Count, Field(le=100)] = 0
    """Number of failed measurements in an update that are tolerated. One more rolls the update back."""


class JobCheck(Model):
    """A Job that the controllers create from a CronJob. The check is successful if the Job completes."""

    hints: ClassVar[Mapping[str, str]] = {"spec": "cronJob, the name of a CronJob with the spec of the Job"}

    cron_job: Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=52)]
    """Name of a CronJob in the pool's namespace with the label `poolhouse.dev/pool-analysis: "true"`. With
    `suspend: true` it runs only for analyses."""


class AnalysisCheck(Model):
    """A check of an analysis: either `prometheus` or `job`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.prometheus) != has(self.job)",
            message="give exactly one of prometheus and job",
            holds=lambda value: has(value, "prometheus") != has(value, "job"),
        ),
    )

    name: Annotated[str, Field(pattern=DNS_LABEL, max_length=30)]
    """Name of the check in conditions and events."""
    prometheus: PrometheusCheck | None = None
    """A query of metrics. It is measured during the whole update."""
    job: JobCheck | None = None
    """A Job. It runs once in each analysis."""


class Analysis(Model):
    """Decides whether the new template is good. An analysis runs at each step with `analysis`, and after the last VM
    has the template. Queries are also measured between the steps. The update is rolled back if a check fails."""

    hints: ClassVar[Mapping[str, str]] = {
        "templates": "checks: Poolhouse has no AnalysisTemplates",
        "metrics": "checks",
        "prometheus": "put it into an entry of checks",
        "job": "put it into an entry of checks",
    }

    checks: Annotated[Tuple[AnalysisCheck], Field(min_length=1, max_length=8, json_schema_extra=list_map("name"))]
    """Checks, each with its own name. All must be successful. At most 8, because the controllers measure each of them
    at its interval."""


class AnalysisStep(Model):
    """An analysis before the next step."""

    model_config = ConfigDict(json_schema_extra=expected("`{}`: the checks are in updateStrategy.proactive.analysis"))


CheckResult = Literal["Successful", "Failed", "Inconclusive", "Error", "Running"]


class CheckStatus(Model):
    """State of a check."""

    name: str
    """Name of the check."""
    result: CheckResult | None = None
    """Result of the last measurement: Successful, Failed, Inconclusive, Error if it was not possible, or Running."""
    message: str = ""
    """What was measured."""
    measured_at: Time | None = None
    """Time of the last measurement."""
    successful: Count = 0
    """Successful measurements of the present analysis."""
    failed: Count = 0
    """Failed measurements of the update."""
    undecided_since: Time | None = None
    """Time since which no measurement was successful."""
    unsuccessful_since: Time | None = None
    """Time since which each measurement had an answer, and none was successful. Only this time rolls an update back."""
    job: str = ""
    """Name of the Job of the present analysis."""
