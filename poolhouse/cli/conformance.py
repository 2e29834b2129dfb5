"""Implements `poolhouse conformance`: performs the behaviours of KubeVirt that Poolhouse relies on, on any cluster."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import click

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.behaviours import (
    ANY,
    BEHAVIOURS,
    Behaviour,
    Call,
    Change,
    Create,
    Delete,
    Evacuates,
    Evict,
    Gone,
    Reaches,
    Refusal,
    Remember,
    Replaced,
    Shows,
    Step,
    Target,
)
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings, choose
from poolhouse.api.kubevirt.live_updates import is_live_update
from poolhouse.api.kubevirt.versions import Release
from poolhouse.cli.cluster import Cluster, cluster_options_without
from poolhouse.cli.output import echo, echo_block, is_structured, output_option, print_structured, style
from poolhouse.cli.parameters import Duration
from poolhouse.service.terminal import Styled, escaped

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api
    from poolhouse.runtime.resource import Resource

POLL_SECONDS = 0.2
CLEANUP_SECONDS = 120.0
LABELS = {meta.PART_OF: meta.POOLHOUSE, meta.DEFAULTING: meta.DISABLED}
"""labels of every object, so that Poolhouse leaves the VMs alone where it is installed"""

Outcome = Literal["ok", "differs", "skipped"]
COLOURS = {"ok": "green", "differs": "red", "skipped": "yellow"}


@dataclass(frozen=True)
class Result:
    name: str
    outcome: Outcome
    message: str = ""


class Differs(Exception):
    """KubeVirt did not behave as a step expects."""


@click.command()
@click.option("--no-guests", is_flag=True, help="Skip behaviours that need a running VM.")
@click.option("--only", metavar="NAME", multiple=True, help="Check only this behaviour. Can be repeated.")
@click.option(
    "--list", "listing", is_flag=True, default=None, help="Print the behaviours and why Poolhouse relies on them."
)
@click.option(
    "--timeout",
    "patience_seconds",
    type=Duration(),
    default="2m",
    show_default=True,
    help="How long to wait for each state of a VM.",
)
@output_option("text")
@cluster_options_without("listing")
def conformance(
    cluster: Cluster | None,
    no_guests: bool,
    only: tuple[str, ...],
    listing: bool | None,
    patience_seconds: float,
    output: str,
) -> None:
    """Check that the cluster's KubeVirt behaves as Poolhouse expects, for example before you install Poolhouse.

    The check creates a namespace, runs small VMs without disks in it, one at a time, and deletes it, also after an
    error or Ctrl-C. It changes nothing else. Exit code 1 means that a behaviour differs.
    """
    chosen = select(only)
    if cluster is None:
        _print_list(output, chosen)
        return
    report = None if is_structured(output) else _print_line
    version, results = cluster.run(
        lambda api: check(api, chosen, patience_seconds, guests=not no_guests, report=report)
    )
    if is_structured(output):
        print_structured(output, {"version": version, "behaviours": [vars(result) for result in results]})
    else:
        counts = ", ".join(f"{sum(r.outcome == each for r in results)} {each}" for each in COLOURS)
        echo(f"KubeVirt {version or 'of an unknown version'}: {counts}")
    if any(result.outcome == "differs" for result in results):
        sys.exit(1)


def select(only: Iterable[str]) -> list[Behaviour]:
    by_name = {each.name: each for each in BEHAVIOURS}
    if unknown := [name for name in only if name not in by_name]:
        raise click.UsageError(f"there is no behaviour {unknown[0]}; there are {', '.join(by_name)}")
    return [by_name[name] for name in only] or list(BEHAVIOURS)


def _print_list(output: str, chosen: list[Behaviour]) -> None:
    if is_structured(output):
        rows = [
            {"name": e.name, "what": e.what, "why": e.why, "guest": e.guest, "since": _text(e.since)} for e in chosen
        ]
        print_structured(output, rows)
        return
    for each in chosen:
        echo_block(f"{each.name}: {each.what}.\n    {each.why}")


def _print_line(result: Result) -> None:
    outcome = style(result.outcome.ljust(8), COLOURS[result.outcome])
    message = f": {result.message}" if result.message else ""
    echo(Styled(outcome + escaped(f" {result.name}{message}")))


def _text(release: Release) -> str:
    return ".".join(map(str, release))


async def check(
    api: Api,
    behaviours: Iterable[Behaviour],
    patience_seconds: float,
    *,
    guests: bool = True,
    report: Callable[[Result], None] | None = None,
) -> tuple[str, list[Result]]:
    """Returns KubeVirt's version, "" if it is unknown, and the results. Deletes what it has created."""
    version, settings = await _version(api)
    results = []
    namespace = f"poolhouse-conformance-{uuid4().hex[:8]}"
    try:
        await _create_namespace(api, namespace)
        for number, behaviour in enumerate(behaviours):
            result = _skipped(behaviour, settings, guests=guests)
            if result is None:
                result = await Trial(api, namespace, f"conformance-{number}", patience_seconds).run(behaviour)
            results.append(result)
            if report is not None:
                report(result)
    finally:
        await _shielded(_delete_namespace(api, namespace))
    return version, results


def _skipped(behaviour: Behaviour, settings: ClusterSettings, *, guests: bool) -> Result | None:
    if behaviour.guest and not guests:
        return Result(behaviour.name, "skipped", "it needs a running VM")
    if settings.release is not None and settings.release < behaviour.since:
        return Result(behaviour.name, "skipped", f"it exists since KubeVirt {_text(behaviour.since)}")
    if behaviour.gate is not None and settings.release is not None and not settings.enables(behaviour.gate):
        return Result(behaviour.name, "skipped", f"KubeVirt's feature gate {behaviour.gate.name} is off")
    if behaviour.live and settings.release is not None and not is_live_update(settings):
        return Result(behaviour.name, "skipped", "vmRolloutStrategy of the KubeVirt object is not LiveUpdate")
    return None


async def _version(api: Api) -> tuple[str, ClusterSettings]:
    from poolhouse.cli.cluster import list_visible
    from poolhouse.runtime.resource import KUBEVIRTS

    found = choose(await list_visible(api, KUBEVIRTS, None) or [])
    settings = ClusterSettings.of(found) if found is not None else ClusterSettings()
    return next(iter(settings.versions), ""), settings


async def _create_namespace(api: Api, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": LABELS}}
    await api.request("POST", "/api/v1/namespaces", body=body)


async def _delete_namespace(api: Api, name: str) -> None:
    from poolhouse.runtime.errors import ApiError, NotFound

    for _ in range(3):
        try:
            await api.request("DELETE", f"/api/v1/namespaces/{name}")
            return
        except NotFound:
            return
        except ApiError as error:
            last = error
            await asyncio.sleep(1)
    echo(f"namespace {name} is left behind; delete it with `kubectl delete namespace {name}`: {last}", err=True)


async def _shielded(work: Awaitable[None]) -> None:
    """Finishes the work even if the task is cancelled, as by Ctrl-C."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        async with asyncio.timeout(CLEANUP_SECONDS):
            await task
        raise


class Trial:
    """Performs the steps of one behaviour with one VM."""

    def __init__(self, api: Api, namespace: str, name: str, patience_seconds: float) -> None:
        from poolhouse.api.kinds.kubevirt import VM_RESTORE, VM_SNAPSHOT
        from poolhouse.runtime.resource import VMIS, VMS, Resource

        self._api, self._namespace, self._name, self._patience = api, namespace, name, patience_seconds
        self._resources: dict[Target, Resource] = {
            "VM": VMS,
            "VMI": VMIS,
            "Snapshot": Resource.of(VM_SNAPSHOT),
            "Restore": Resource.of(VM_RESTORE),
        }
        self._uid = ""

    async def run(self, behaviour: Behaviour) -> Result:
        from poolhouse.runtime.errors import ApiError, Unreachable

        try:
            for number, step in enumerate(behaviour.steps, 1):
                try:
                    await self._perform(step)
                except Unreachable:
                    raise
                except (Differs, ApiError) as error:
                    where = f"step {number} of {len(behaviour.steps)}, {describe(step)}: {error}"
                    return Result(behaviour.name, "differs", where)
            return Result(behaviour.name, "ok")
        finally:
            created = [step.target for step in behaviour.steps if isinstance(step, Create)]
            await _shielded(self._delete_all(dict.fromkeys(("VM", "VMI", *created))))

    async def _perform(self, step: Step) -> None:
        match step:
            case Create(spec, refused, target):
                await self._send(refused, self._api.create(self._resources[target], self._document(spec, target)))
            case Change(target, patch, refused):
                await self._send(refused, self._api.patch(self._resources[target], self._namespace, self._name, patch))
            case Call():
                await self._call(step)
            case Reaches():
                await self._reach(step)
            case Shows(target, values):
                await self._until(lambda: self._shown(target, values))
            case Remember():
                self._uid = str(((await self._get("VMI")) or {}).get("metadata", {}).get("uid") or "")
            case Evict(refused):
                await self._send(refused, self._evict(await self._launcher()))
            case Evacuates():
                await self._until(self._evacuation)
            case Replaced():
                await self._until(self._replacement)
            case Delete(target):
                await self._api.delete(self._resources[target], self._namespace, self._name)
            case Gone(target):
                await self._until(lambda: self._absence(target))

    def _document(self, spec: Json, target: Target) -> Json:
        resource = self._resources[target]
        # Not every cluster allows the network binding that KubeVirt would choose.
        domain = {"memory": {"guest": "64Mi"}, "devices": {"autoattachPodInterface": False}}
        inner = {"domain": domain, "terminationGracePeriodSeconds": 0}
        vm = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": self._name}
        kinds: dict[Target, Json] = {
            "VM": {"template": {"spec": inner}},
            "VMI": inner,
            "Snapshot": {"source": vm},
            "Restore": {"target": vm, "virtualMachineSnapshotName": self._name},
        }
        metadata = {"name": self._name, "namespace": self._namespace, "labels": dict(LABELS)}
        document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        return {**document, "spec": merged(kinds[target], spec)}

    async def _send(self, refused: Refusal | None, request: Awaitable[Any]) -> None:
        from poolhouse.runtime.errors import ApiError

        if refused is None:
            await request
            return
        text = refused.text.replace("%s", self._name)
        try:
            await request
        except ApiError as error:
            if error.status != refused.code or text not in error.message:
                raise Differs(f"expected {refused.code} {text!r}, got {error.status} {error.message!r}") from None
        else:
            raise Differs(f"expected {refused.code} {text!r}, but the request was accepted")

    async def _call(self, step: Call) -> None:
        from poolhouse.runtime.resource import Resource

        resource = self._resources[step.target]
        path = Resource("subresources.kubevirt.io", "v1", resource.plural, "").path(
            self._namespace, self._name, step.verb
        )
        request = self._api.respond("PUT", path, body=step.options, headers={"Accept": step.accept})
        if step.refused is not None:
            await self._send(step.refused, request)
            return
        code, body = await request
        if (code, body) != (step.code, b""):
            raise Differs(f"expected {step.code} without a body, got {code} {body[:200].decode(errors='replace')!r}")

    async def _reach(self, step: Reaches) -> None:
        seen: list[str] = []

        async def problem() -> str | None:
            status = (((await self._get("VM")) or {}).get("status") or {}).get("printableStatus")
            if status == step.status:
                return None
            if status and status not in seen:
                seen.append(status)
                if status not in step.through:
                    raise Differs(f"expected {' or '.join((*step.through, step.status))}, got {status}")
            return f"expected {step.status}, got {status or 'no status'}"

        await self._until(problem)

    async def _shown(self, target: Target, values: Any) -> str | None:
        document = await self._get(target)
        if document is None:
            return f"expected {_listed(values.items())}, but the {target} does not exist"
        different = [(path, value) for path, value in values.items() if not _matches(read(document, path), value)]
        if not different:
            return None
        got = _listed((path, read(document, path)) for path, _ in different)
        return f"expected {_listed(different)}, got {got}"

    async def _launcher(self) -> str:
        """Waits for the VMI's launcher Pod, and returns its name."""
        from poolhouse.runtime.resource import PODS

        uid, found = read(await self._get("VMI") or {}, "metadata.uid"), list[str]()

        async def problem() -> str | None:
            selector = f"{meta.KUBEVIRT_CREATED_BY}={uid}"
            pods, _ = await self._api.list(PODS, self._namespace, label_selector=selector)
            found.extend(pod["metadata"]["name"] for pod in pods)
            return None if found else f"expected a Pod with the label {selector}, got none"

        await self._until(problem)
        return found[0]

    async def _evict(self, pod: str) -> None:
        from poolhouse.runtime.resource import PODS

        metadata = {"name": pod, "namespace": self._namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        await self._api.request("POST", PODS.path(self._namespace, pod, "eviction"), body=body)

    async def _evacuation(self) -> str | None:
        from poolhouse.api.kinds.kubevirt import VMI_MIGRATION
        from poolhouse.runtime.resource import Resource

        found, _ = await self._api.list(Resource.of(VMI_MIGRATION), self._namespace)
        ours = (each for each in found if read(each, "spec.vmiName") == self._name)
        if any(read(each, f"metadata.annotations.{meta.KUBEVIRT_EVACUATION}") for each in ours):
            return None
        return f"expected a migration with the annotation {meta.KUBEVIRT_EVACUATION}, got none"

    async def _replacement(self) -> str | None:
        vmi = await self._get("VMI")
        uid, phase = read(vmi or {}, "metadata.uid"), read(vmi or {}, "status.phase")
        if uid not in (None, self._uid) and phase == "Running":
            return None
        return f"expected another VMI that runs, got {'the same' if uid == self._uid else uid or 'none'} ({phase})"

    async def _absence(self, target: Target) -> str | None:
        return None if await self._get(target) is None else f"the {target} still exists"

    async def _until(self, problem: Callable[[], Awaitable[str | None]]) -> None:
        """Calls `problem` until it returns None. Raises `Differs` with the last problem after the patience."""
        last: str | None = ""
        try:
            async with asyncio.timeout(self._patience):
                while last := await problem():  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise Differs(f"{last} after {self._patience:g} s") from None

    async def _get(self, target: Target) -> Json | None:
        from poolhouse.runtime.errors import NotFound

        try:
            return await self._api.get(self._resources[target], self._namespace, self._name)
        except NotFound:
            return None

    async def _delete_all(self, targets: Iterable[Target]) -> None:
        """Deletes the VM, so that the next behaviour has its capacity."""
        from poolhouse.runtime.errors import ApiError

        for target in targets:
            with contextlib.suppress(ApiError):
                await self._api.delete(self._resources[target], self._namespace, self._name, grace_seconds=0)


def merged(base: Json, changes: Json) -> Json:
    """The base with the changes, which are a JSON merge patch."""
    result = copy.deepcopy(base)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def read(document: Any, path: str) -> Any:
    """The value at a path such as `status.phase`. `conditions.TYPE` is a condition's status, with its reason if the
    status is False or the reason is known."""
    if path.startswith("conditions."):
        conditions = ((document.get("status") or {}).get("conditions")) or ()
        found = next((each for each in conditions if each.get("type") == path.removeprefix("conditions.")), None)
        return None if found is None else "/".join(filter(None, (found.get("status"), found.get("reason"))))
    value = document
    parts = path.split(".")
    while parts:
        if isinstance(value, list):
            index = int(parts.pop(0))
            value = value[index] if index < len(value) else None
        elif isinstance(value, dict):
            # A key such as kubevirt.io/nodeName contains dots.
            count = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in value), 1)
            value = value.get(".".join(parts[:count]))
            parts = parts[count:]
        else:
            return None
    return value


def _matches(found: Any, wanted: Any) -> bool:
    if wanted is ANY:
        return found not in (None, "")
    return bool(found == wanted or (isinstance(found, str) and found.split("/")[0] == wanted))


def _listed(pairs: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{path} {_value(value)}" for path, value in pairs)


def _value(value: Any) -> str:
    return repr(value) if value is ANY else json.dumps(value)


def describe(step: Step) -> str:
    match step:
        case Call(target, verb):
            return f"{verb} the {target}"
        case Reaches(status):
            return f"wait for {status}"
        case Create(target=target) | Delete(target):
            return f"{type(step).__name__.lower()} the {target}"
        case Change(target):
            return f"change the {target}"
        case Shows(target):
            return f"look at the {target}"
        case Gone(target):
            return f"wait until the {target} is gone"
        case Evict():
            return "evict the launcher Pod"
        case Evacuates():
            return "wait for the migration"
        case _:
            return "wait for another VMI" if isinstance(step, Replaced) else "remember the VMI"
