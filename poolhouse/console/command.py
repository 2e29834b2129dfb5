"""`poolhouse console`: serves the console on loopback until Ctrl-C."""

from __future__ import annotations

import logging
import webbrowser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from poolhouse.cli.cluster import Cluster, all_namespaces, cluster_options
from poolhouse.cli.output import Failed, echo, output_option, print_result

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api
    from poolhouse.service.prometheus import PrometheusServer


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1. Default: a free port.")
@click.option("--open/--no-open", "opens", default=False, help="Open the address in the browser of this machine.")
@click.option("--prometheus", default="", metavar="URL", help="Prometheus with KubeVirt's metrics, for charts of VMs.")
@click.option(
    "--prometheus-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with `token`, a bearer token, and `ca.crt` for Prometheus. Both are optional.",
)
@output_option("text")
@all_namespaces
@cluster_options
def console(
    cluster: Cluster, port: int, opens: bool, prometheus: str, prometheus_dir: Path | None, output: str
) -> None:
    """Serve a web page on 127.0.0.1 that shows and changes pools, warm pools, claims and policies.

    The page has your rights in the cluster, so only open its address on this machine. It shows all namespaces if you
    may list pools in all, else the namespace of your context; -n chooses one. Nothing is installed in the cluster.
    """
    from poolhouse.service.prometheus import PrometheusServer

    if prometheus_dir and not prometheus:
        raise click.UsageError("--prometheus-dir needs --prometheus URL")
    try:
        server = PrometheusServer.parse("--prometheus", prometheus, prometheus_dir)
    except ValueError as error:
        raise Failed(str(error)) from None
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    cluster.run(lambda api: _serve(api, cluster, port, opens, server, output))


async def _serve(
    api: Api, cluster: Cluster, port: int, opens: bool, prometheus: PrometheusServer | None, output: str
) -> None:
    from poolhouse.console.server import serve
    from poolhouse.console.vm_usage import DEADLINE_SECONDS
    from poolhouse.service.prometheus import connect

    def started(address: str) -> None:
        place = urlsplit(api.host).netloc
        print_result(output, f"The console of {place} is at {address}", address=address, cluster=place)
        echo("Who knows this address can act as you; Ctrl-C ends it.", err=True)
        if opens:
            # Other users of this machine can read the arguments of a browser, but not this file.
            page = private / "console.html"
            page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">')
            webbrowser.open(page.as_uri())

    try:
        with TemporaryDirectory(prefix="poolhouse-") as directory:
            private = Path(directory)
            async with connect(prometheus, DEADLINE_SECONDS) as client:
                await serve(api, cluster, port, client, started)
    except OSError as error:
        raise Failed(f"cannot listen on 127.0.0.1:{port}: {error.strerror}; choose another --port") from None
