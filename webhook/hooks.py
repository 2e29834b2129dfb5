"""What the chart's hooks run: proof that the webhook answers, and its end before an uninstall.

`probe` asks the API server what it thinks of an object that only the webhook can refuse in these words: then the whole
way is good, Service, certificate and rules. `retire` takes the webhook configurations away first, so that nobody is
asked while nobody answers any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Mapping
from typing import Any

import click

from kinds import KINDS, disabled_kinds, meta
from kinds.kind import Kind
from manifests import webhooks
from runtime.api import Api
from runtime.errors import ApiError, NotFound
from runtime.resource import Resource
from service import logs, settings

log = logging.getLogger(__name__)

ASK_SECONDS = 1.0
PATIENCE_SECONDS = "POOLHOUSE_PATIENCE_SECONDS"
CALL_SECONDS = 15


@click.group()
def hooks() -> None:
    """What the Helm chart runs at an installation, an upgrade and an uninstall."""


@hooks.command()
def probe() -> None:
    """Wait until the API server asks the webhook about each kind of ours."""
    raise SystemExit(asyncio.run(_within(_probe(settings.namespace(os.environ, meta.NAMESPACE), _probed(os.environ)))))


@hooks.command()
def retire() -> None:
    """Take the webhook configurations away."""
    raise SystemExit(asyncio.run(_within(_retire())))


def _probed(environment: Mapping[str, str]) -> tuple[Kind, ...]:
    off = disabled_kinds(environment)
    return tuple(kind for kind in KINDS if kind.namespaced and kind.plural not in off)


async def _within(work: Coroutine[Any, Any, None]) -> int:
    logs.configure("hooks")
    seconds = float(os.environ.get(PATIENCE_SECONDS, "290"))
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        log.critical("gave up after %.0f s", seconds)
        return 1
    except ApiError as error:
        log.critical("%s", error)
        return 1
    return 0


async def _probe(namespace: str, kinds: tuple[Kind, ...]) -> None:
    async with await Api.connect(user_agent="poolhouse-probe", timeout_seconds=CALL_SECONDS) as api:
        for kind in kinds:
            said = ""
            while missing := await _unasked(api, namespace, kind):
                if missing != said:
                    log.info("%s: not yet: %s", kind.kind, missing)
                    said = missing
                await asyncio.sleep(ASK_SECONDS)
            log.info("%s: the webhook answers", kind.kind)


async def _unasked(api: Api, namespace: str, kind: Kind) -> str:
    """Why it is not known yet that the webhook is asked about this kind; empty when it is."""
    resource = Resource(kind.group, kind.versions[0], kind.plural, kind.kind)
    metadata = {"name": "poolhouse-probe", "namespace": namespace}
    wrong = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": "none"}
    try:
        await api.create(resource, wrong, dry_run=True)
    except ApiError as error:
        return "" if _ours(error) else error.message
    return "the API server took an object that is none: it does not ask the webhook"


def _ours(error: ApiError) -> bool:
    """The API server says who refused; RBAC and the schema name no webhook."""
    return f".{meta.DOMAIN}" in error.message and "denied the request" in error.message


async def _retire() -> None:
    async with await Api.connect(user_agent="poolhouse-retire", timeout_seconds=CALL_SECONDS) as api:
        for plural, name in webhooks.configuration_names():
            resource = Resource("admissionregistration.k8s.io", "v1", plural, "", namespaced=False)
            try:
                await api.delete(resource, None, name)
                log.info("%s %s: gone", plural, name)
            except NotFound:
                log.info("%s %s: was not there", plural, name)
