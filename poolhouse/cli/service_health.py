"""Judges the health of Poolhouse itself, from what one user may see.

No part of Poolhouse reports its own outage, because it would stop with the part that it reports. The user's own
requests show an outage instead: a dry run of a claim goes through the webhook, a dry run of a VM through the webhook
and the defaulter, and the leading controller renews a Lease every few seconds. `service_facts` sends these requests.

A check that the user has no right to is `unknown`, and is no failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import Literal, TypeAlias, TypeVar

from poolhouse.api.apimachinery.timestamps import format_duration, known_time
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.documentation import ERRORS, NO_ADMISSION, NO_DEFAULTER, NO_LEADER, Page
from poolhouse.api.kinds.resource_types import CLAIMS
from poolhouse.runtime.errors import ApiError, Forbidden, NotFound, QuotaExceeded, Unreachable, WebhookFailed

T = TypeVar("T")
Seen: TypeAlias = T | ApiError
"""an answer of the API server, or its error"""
Verdict = Literal["ok", "warning", "failed", "unknown"]

GRACE_SECONDS = 10.0
"""time after the end of a Lease in which the next controller takes it"""
ANSWERED = re.compile(r"^the server |^an error on the server")
"""begins what the API server says about an answer that is no review"""
NO_RIGHT = re.compile(r'cannot create resource "(?P<resource>[^"]+)"')
WORKING_DEFAULTER = frozenset({"DefaulterOverloaded", "HardwareUndecided", "PreferenceUnknown"})
"""reasons for missing defaults that a defaulter gives which works"""


@dataclass(frozen=True)
class Check:
    name: str
    verdict: Verdict
    message: str
    remedy: str = ""
    page: Page | None = None
    """the page of the documentation that helps"""

    def json(self) -> Json:
        return {
            "check": self.name,
            "verdict": self.verdict,
            "message": self.message,
            "remedy": self.remedy,
            "page": str(self.page or ""),
        }


@dataclass(frozen=True)
class Facts:
    """What every command asks."""

    namespace: str
    """where the dry runs were sent"""
    home: str
    """the namespace of Poolhouse's services"""
    now: datetime
    """when the Lease was read, by the clock of the API server"""
    claim: Seen[Json]
    """the dry run of a claim, or of a pool if the cluster does not serve claims"""
    vm: Seen[Json]
    """the dry run of a VM"""
    lease: Seen[Json]
    stack: str = ""
    """the directory of the embedded stack that runs the services; empty if they are Pods"""


def judge(facts: Facts) -> list[Check]:
    return [check(facts) for check in CHECKS]


def failed(checks: Iterable[Check]) -> list[Check]:
    return [each for each in checks if each.verdict == "failed"]


def describe_unknown(checks: Iterable[Check]) -> str:
    """What a user without the rights, or behind a full quota, does not learn; empty if all checks have a result."""
    names = ", ".join(each.name for each in checks if each.verdict == "unknown")
    return f"whether these parts of Poolhouse work is not known: {names}; `poolhouse doctor` says why" if names else ""


def summarize(checks: Sequence[Check]) -> str:
    """The outage of Poolhouse in one line; empty if no check has failed."""
    found = "; ".join(f"{each.name}: {each.message}" for each in failed(checks))
    return f"Poolhouse itself has an outage: {found}; `poolhouse doctor` says what to do" if found else ""


def describe_webhook_failure(error: WebhookFailed) -> str:
    """The error of a request that the API server did not carry out, because a webhook gave no answer."""
    if is_ours(error.webhook):
        fault = "does not work" if ANSWERED.search(error.cause) else "is down"
        return (
            f"Poolhouse's webhook {fault}, so nothing was changed: {error.message}; `poolhouse doctor` checks all "
            f"services, and {ERRORS} says what works without the webhook"
        )
    return f"a webhook of another component is down, so nothing was changed: {error.message}"


def is_ours(webhook: str) -> bool:
    return webhook.endswith(f".{meta.DOMAIN}")


def webhook(facts: Facts) -> Check:
    match facts.claim:
        case WebhookFailed() as error if is_ours(error.webhook):
            return _webhook_down(facts, error.cause)
        case Unreachable() as error if not isinstance(facts.lease, Unreachable):
            return _webhook_down(facts, error.message)
        case ApiError() as error if not _was_asked(error):
            return _not_asked("webhook", facts, error)
    stamped = at(facts.claim, "metadata", "annotations", meta.REQUESTER)
    if not stamped and at(facts.claim, "kind") == CLAIMS.kind:
        return Check(
            "webhook",
            "failed",
            "the API server stores objects of Poolhouse without asking the webhook: its configurations are missing",
            _restore_configurations(facts),
            NO_ADMISSION,
        )
    return Check("webhook", "ok", f"it answers the API server (dry run in namespace {facts.namespace})")


def _was_asked(error: ApiError) -> bool:
    """Whether the API server refused the dry run by the webhook's answer, or after it."""
    return f'{meta.DOMAIN}" denied the request' in error.message or isinstance(error, QuotaExceeded)


def _restore_configurations(facts: Facts) -> str:
    if facts.stack:
        return restart_stack(facts.stack)
    return "restore the webhook configurations with `helm upgrade` or `helm rollback`"


def restart_stack(directory: str) -> str:
    again = " and ".join(f"`poolhouse {verb} --dir {quote(directory)}`" for verb in ("down", "up"))
    return f"restart the stack, which writes them again: {again}"


def restore_trust(facts: Facts) -> str:
    return restart_stack(facts.stack) if facts.stack else "start a controller, which repairs it in seconds"


def _webhook_down(facts: Facts, cause: str) -> Check:
    remedy = (
        f"{_pods(facts, 'webhook')}; until it answers, changes of specs of Poolhouse are refused, and VMs are stored "
        "without defaults. Running VMs, scaling and deletions are not affected"
    )
    if "x509" in cause or "tls" in cause:
        remedy = f"the API server does not trust the webhook's certificate: {restore_trust(facts)}"
    return Check("webhook", "failed", f"a dry run by the API server fails: {cause}", remedy, ERRORS)


def defaulter(facts: Facts) -> Check:
    match facts.vm:
        case WebhookFailed() as error if is_ours(error.webhook):
            return Check("defaulter", "unknown", "the webhook, which asks it, is down: no VM can be created")
        case ApiError() as error:
            return _not_asked("defaulter", facts, error)
    notes = typed(dict, facts.vm, "metadata", "annotations") or {}
    if meta.DEFAULTED_FIELDS in notes:
        return Check("defaulter", "ok", f"it gives a VM its hardware (dry run in namespace {facts.namespace})")
    if (reason := notes.get(meta.UNDEFAULTED)) is not None:
        verdict: Verdict = "warning" if reason in WORKING_DEFAULTER else "failed"
        remedy = f"{_pods(facts, 'defaulter')}; until it answers, VMs are stored without defaults and get them later"
        return Check("defaulter", verdict, f"a VM gets no hardware from it: {reason}", remedy, NO_DEFAULTER)
    if webhook(facts).verdict == "failed":
        return Check("defaulter", "unknown", "the webhook, which asks it, is down: VMs are stored without defaults")
    message = f"VMs of namespace {facts.namespace} are not defaulted: the namespace is exempt, or defaulting is off"
    return Check("defaulter", "unknown", message)


def controllers(facts: Facts) -> Check:
    remedy = f"{_pods(facts, 'controllers')}; until one leads, pools are not scaled, updated or healed, and claims wait"
    match facts.lease:
        case NotFound():
            message = f"no controller has ever led: there is no Lease {meta.CONTROLLERS} in {facts.home}"
            return Check("controllers", "failed", message, remedy, NO_LEADER)
        case Forbidden():
            message = f"you may not read the Lease {meta.CONTROLLERS} in {facts.home}, which shows whether one leads"
            return Check("controllers", "unknown", message)
        case ApiError() as error:
            return Check("controllers", "unknown", f"their Lease cannot be read: {error.message}")
    spec = typed(dict, facts.lease, "spec") or {}
    holder, renewed = spec.get("holderIdentity"), known_time(typed(str, spec, "renewTime") or "")
    age = (facts.now - renewed).total_seconds() if renewed else float("inf")
    ago = f"{format_duration(age)} ago" if renewed else ""
    over = age - (typed(int, spec, "leaseDurationSeconds") or 0)
    if over > GRACE_SECONDS:
        last = f"{holder} renewed its Lease last," if holder else "the last one gave up its Lease"
        message = f"none leads: {last} {ago}" if renewed else "none leads: their Lease was never renewed"
        return Check("controllers", "failed", message, remedy, NO_LEADER)
    if over > 0:
        message = f"{holder or 'the last one'} renewed its Lease {ago}, and it has expired"
        return Check("controllers", "warning", message, remedy, NO_LEADER)
    return Check("controllers", "ok", f"{holder or 'the next one'} leads, and its Lease was renewed {ago}")


def _pods(facts: Facts, component: str) -> str:
    if facts.stack:
        return f"look at {facts.stack}/logs/{component}.log and `poolhouse status --dir {quote(facts.stack)}`"
    return f"look at its Pods with `kubectl get pods -n {facts.home} -l {meta.COMPONENT}={component}`"


def _not_asked(name: str, facts: Facts, error: ApiError) -> Check:
    """A check whose dry run the API server refused before it asked Poolhouse, or for another reason."""
    if isinstance(error, Forbidden) and (found := NO_RIGHT.search(error.message)):
        message = f"you may not create {found['resource']} in namespace {facts.namespace}, so it was not asked"
        return Check(name, "unknown", f"{message}; choose a namespace of yours with -n")
    did = "did not answer" if isinstance(error, Unreachable) else "refused"
    return Check(name, "unknown", f"the API server {did} a dry run in namespace {facts.namespace}: {error.message}")


def cannot(do: str, error: ApiError) -> str:
    """Why the user does not see something."""
    return f"you may not {do}" if isinstance(error, Forbidden) else f"cannot {do}: {error.message}"


CHECKS: tuple[Callable[[Facts], Check], ...] = (webhook, defaulter, controllers)
