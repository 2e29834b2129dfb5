"""`poolhouse api-docs`: opens the page by which a service describes its HTTP API."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
import ssl
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds import meta
from poolhouse.cli.cluster import Cluster, cluster_options
from poolhouse.cli.output import Failed, Unreachable, output_option, print_result
from poolhouse.service.user_cache import cache_dir, writing_cache

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

DEFAULTER = "poolhouse-defaulter"
FORWARDED = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) ")
HIDDEN = "you may not list webhook configurations, which say where the webhook is; give --server URL and --ca FILE"
NO_TOKEN = "the webhook asks for a token, and your kubeconfig has none; use one with a token of `kubectl create token`"


@dataclass(frozen=True)
class Address:
    url: str
    tls: ssl.SSLContext | None = None
    name: str | None = None
    """the name in the certificate, if it is not that of the URL"""


@click.command("api-docs")
@click.argument("service", type=click.Choice(("webhook", "defaulter")), default="webhook")
@click.option("--server", metavar="URL", help="Address of the service. Default: that in the cluster.")
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Certificate authority of --server. Default: those of this machine.",
)
@click.option("--open/--no-open", "opens", default=True, show_default=True, help="Open the page in your browser.")
@output_option("text")
@cluster_options
def api_docs(cluster: Cluster, service: str, server: str | None, ca: Path | None, opens: bool, output: str) -> None:
    """Open the page that describes the HTTP API of the webhook (dry runs, policies) or of the defaulter.

    The page is written to a file, which loads nothing from elsewhere. The webhook shows it to users who may read the
    OpenAPI document of the API server, so the command sends your token, to the webhook alone. It reaches a service in
    the cluster with `kubectl port-forward`.
    """
    content = cluster.run(lambda api: read_page(api, cluster, service, server, ca))
    path = cache_dir() / f"{service}-api.html"
    with writing_cache(Failed):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    print_result(output, f"{path} describes the API of the {service}", service=service, path=str(path))
    if opens:
        webbrowser.open(path.as_uri())


async def read_page(api: Api, cluster: Cluster, service: str, server: str | None, ca: Path | None) -> str:
    import aiohttp

    headers = {"Accept": "text/html"}
    if service == "webhook":
        if not (authorization := await api.authorization()):
            raise Failed(NO_TOKEN)
        headers["Authorization"] = authorization
    limit = aiohttp.ClientTimeout(total=cluster.timeout_seconds)
    async with _address(api, cluster, service, server, ca) as found, aiohttp.ClientSession(timeout=limit) as session:
        if service == "webhook" and urlsplit(found.url).scheme != "https":
            raise Failed(f"{found.url}: must begin with https://, because the command sends your token")
        url = f"{found.url}/docs"
        try:
            async with session.get(
                url, ssl=found.tls or True, server_hostname=found.name, headers=headers, allow_redirects=False
            ) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{url} does not answer: {str(error) or 'timeout'}") from None
    if answer.status != 200:
        raise Failed(f"{url} answers {answer.status}: {_problem(text)}")
    return text


def _problem(text: str) -> str:
    with suppress(ValueError):
        messages = [str(each.get("message")) for _, each in entries(json.loads(text), "problems")]
        return "; ".join(messages) or text[:200]
    return text[:200]


@asynccontextmanager
async def _address(
    api: Api, cluster: Cluster, service: str, server: str | None, ca: Path | None
) -> AsyncIterator[Address]:
    if server is not None:
        yield Address(server.rstrip("/"), ssl.create_default_context(cafile=ca) if ca is not None else None)
        return
    if service == "defaulter" and (local := _endpoint(cluster, service)):
        yield Address(local)
        return
    config = await _client_config(api)
    inside = at(config, "service") or {}
    namespace = str(inside.get("namespace") or meta.NAMESPACE)
    if service == "defaulter":
        async with _forwarded(cluster, namespace, DEFAULTER, "http") as port:
            yield Address(f"http://127.0.0.1:{port}")
        return
    tls = _trust(str(config.get("caBundle") or ""))
    if url := config.get("url"):
        parts = urlsplit(str(url))
        yield Address(f"{parts.scheme}://{parts.netloc}", tls)
        return
    name = str(inside.get("name"))
    async with _forwarded(cluster, namespace, name, str(inside.get("port") or 443)) as port:
        yield Address(f"https://127.0.0.1:{port}", tls, f"{name}.{namespace}.svc")


def _endpoint(cluster: Cluster, service: str) -> str:
    """The address of a service of an embedded stack, whose file is beside the kubeconfig."""
    with suppress(OSError, ValueError, TypeError):
        return str(json.loads((Path(cluster.kubeconfig or "").parent / "endpoints.json").read_text())[service])
    return ""


async def _client_config(api: Api) -> Json:
    """How the API server reaches the webhook. Raises `Failed` without the right to see it."""
    from poolhouse.cli.service_facts import CONFIGURATIONS
    from poolhouse.cli.service_health import is_ours
    from poolhouse.runtime.errors import Forbidden

    try:
        found, _ = await api.list(CONFIGURATIONS[0], label_selector=meta.OURS)
    except Forbidden:
        raise Failed(HIDDEN) from None
    for configuration in found:
        for _, each in entries(configuration, "webhooks"):
            if is_ours(str(each.get("name"))):
                config: Json = each.get("clientConfig") or {}
                return config
    raise Failed("the cluster has no webhook configuration of Poolhouse; `poolhouse doctor` says what is missing")


def _trust(bundle: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle, validate=True).decode("ascii"))
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError):
        raise Failed("the CA bundle of the webhook configuration is damaged; `poolhouse doctor` checks it") from None


@asynccontextmanager
async def _forwarded(cluster: Cluster, namespace: str, service: str, port: str) -> AsyncIterator[int]:
    """A port on this machine that leads to a Service of the cluster, with the user's rights."""
    context = ("--context", cluster.context) if cluster.context else ()
    try:
        process = await asyncio.create_subprocess_exec(
            *("kubectl", *context, "port-forward", "-n", namespace, f"svc/{service}", f":{port}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=cluster.environment,
        )
    except OSError:
        raise Failed("kubectl is not installed, which forwards a port to the service; give --server URL") from None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        try:
            async with asyncio.timeout(cluster.timeout_seconds):
                line = await process.stdout.readline()
                found = FORWARDED.match(line)
                said = b"" if found else await process.stderr.read()
        except TimeoutError:
            raise Unreachable(f"kubectl port-forward to {service} has not begun in time") from None
        if found is None:
            raise Failed(f"kubectl port-forward to {service} failed: {said.decode(errors='replace').strip()}")
        yield int(found[1])
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
