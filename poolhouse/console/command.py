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


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1. Default: a free port.")
@click.option("--open/--no-open", "opens", default=False, help="Open the address in the browser of this machine.")
@click.option("--prometheus", default="", metavar="URL", help="Prometheus with KubeVirt's metrics, for charts of VMs.")
@output_option("text")
@all_namespaces
@cluster_options
def console(cluster: Cluster, port: int, opens: bool, prometheus: str, output: str) -> None:
    """Serve a web page on 127.0.0.1 that shows and changes pools, warm pools, claims and policies.

    The page has your rights in the cluster, so only open its address on this machine. It shows all namespaces if you
    may list pools in all, else the namespace of your context; -n chooses one. Nothing is installed in the cluster.
    """
    from poolhouse.console.vm_usage import parse_url

    address = parse_url(prometheus) if prometheus else ""
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    cluster.run(lambda api: _serve(api, cluster, port, opens, address, output))


async def _serve(api: Api, cluster: Cluster, port: int, opens: bool, prometheus: str, output: str) -> None:
    from poolhouse.console.server import serve

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
            await serve(api, cluster, port, prometheus, started)
    except OSError as error:
        raise Failed(f"cannot listen on 127.0.0.1:{port}: {error.strerror}; choose another --port") from None
