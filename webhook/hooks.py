"""Commands for the hooks of the Helm chart.

`probe` succeeds once the API server calls the webhook for each kind, which proves Service, certificate and rules.
`retire` deletes the webhook configurations before an uninstall, so that no request fails without the webhook.
"""

import asyncio
import logging
import os
from collections.abc import Coroutine, Mapping
from typing import Any

import click

from poolhouse.api.kinds import KINDS, disabled_kinds, meta
from poolhouse.api.kinds.kind import Kind
from poolhouse.manifests import webhooks
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import Resource
from poolhouse.service import logs
from poolhouse.service.settings import DEFAULT_NAMESPACE, LogSettings, setting

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
CALL_SECONDS = 15


class HookSettings(LogSettings):
    patience_seconds: float = setting(
        "POOLHOUSE_PATIENCE_SECONDS", 290, "Time after which a hook of the chart fails.", unit="seconds", gt=0
    )
    namespace: str = setting("POOLHOUSE_NAMESPACE", DEFAULT_NAMESPACE, "Namespace in which a hook tries admission.")


@click.group()
def hooks() -> None:
    """Commands that the Helm chart runs at an installation, an upgrade and an uninstall."""


@hooks.command()
def probe() -> None:
    """Wait until the API server calls the webhook for each kind of Poolhouse."""
    settings = HookSettings.read(os.environ)
    _run(_probe(settings.namespace, probed_kinds(os.environ)), settings)


@hooks.command()
def retire() -> None:
    """Delete the webhook configurations."""
    _run(_retire(), HookSettings.read(os.environ))


def probed_kinds(environment: Mapping[str, str]) -> tuple[Kind, ...]:
    disabled = disabled_kinds(environment)
    return tuple(kind for kind in KINDS if kind.namespaced and kind.plural not in disabled)


def _run(work: Coroutine[Any, Any, None], settings: HookSettings) -> None:
    """Exits with 0, or with 1 after an error or a timeout."""

    async def within_patience() -> None:
        async with asyncio.timeout(settings.patience_seconds):
            await work

    logs.configure("hooks", settings.log_format, settings.log_level)
    try:
        asyncio.run(within_patience())
    except TimeoutError:
        log.critical("gave up after %.0f s", settings.patience_seconds)
        raise SystemExit(1) from None
    except ApiError as error:
        log.critical("%s", error)
        raise SystemExit(1) from None
    raise SystemExit(0)


async def _probe(namespace: str, kinds: tuple[Kind, ...]) -> None:
    async with await Api.connect(user_agent="poolhouse-probe", timeout_seconds=CALL_SECONDS) as api:
        for kind in kinds:
            logged = ""
            while problem := await _probe_problem(api, namespace, kind):
                if problem != logged:
                    log.info("%s: not ready: %s", kind.kind, problem)
                    logged = problem
                await asyncio.sleep(RETRY_SECONDS)
            log.info("%s: the webhook answers", kind.kind)


async def _probe_problem(api: Api, namespace: str, kind: Kind) -> str:
    """Sends an object that the webhook must deny. Returns what is wrong, or "" if the webhook denied the object."""
    metadata = {"name": "poolhouse-probe", "namespace": namespace}
    invalid = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": "none"}
    try:
        await api.create(Resource.of(kind), invalid, dry_run=True)
    except ApiError as error:
        # Only a denial by a webhook names a webhook. Denials by RBAC and by the schema do not.
        denied = f".{meta.DOMAIN}" in error.message and "denied the request" in error.message
        return "" if denied else error.message
    return "the API server accepted an invalid object, so it does not call the webhook"


async def _retire() -> None:
    async with await Api.connect(user_agent="poolhouse-retire", timeout_seconds=CALL_SECONDS) as api:
        for plural, name in webhooks.configuration_names():
            resource = Resource("admissionregistration.k8s.io", "v1", plural, "", namespaced=False)
            try:
                await api.delete(resource, None, name)
                log.info("%s %s: deleted", plural, name)
            except NotFound:
                log.info("%s %s: not found", plural, name)
